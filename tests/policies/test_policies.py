"""A policy in numpy acts as the learner's own greedy policy: every method, every learner, agent by agent."""

import dataclasses
import importlib.util
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from teams import BATTLE, FORAGER, LBF, ROBOT, ROWS, STEPS, made_up, make, policy_of

from prism_marl import envs
from prism_marl.errors import UserError
from prism_marl.learners import IQL, LEARNERS, MAPPO, MATD3, VDN, QMix
from prism_marl.policies import Policy, load_policy, write_policy
from prism_marl.sharing import METHODS
from prism_marl.types import Observation


@pytest.fixture(scope="module")
def recorded() -> Observation:
    """Observations of the game itself."""
    env = envs.make(LBF)
    return jax.jit(jax.vmap(lambda key: env.reset(key)[1]))(jax.random.split(jax.random.key(1), ROWS))


def assert_alike(learner, state, policy, observations, agents=slice(None)):
    """The same actions wherever rounding cannot exchange them, over some steps with memory."""
    acting = learner.policy(state)
    theirs, mine = learner.memory(acting, ROWS), policy.reset(ROWS)
    equal = []
    for step in range(STEPS):
        obs = Observation(*(jnp.asarray(part) for part in observations(step)))
        theirs, expected, _ = learner.act(acting, theirs, obs, jax.random.key(0), jnp.int32(0), "greedy")
        local, avail, role = (np.asarray(part)[:, agents] for part in (obs.local, obs.avail, obs.role))
        values, _ = policy.outputs(local, mine, role)
        action, mine = policy.act(local, mine, avail, role)
        expected = np.asarray(expected)[:, agents]
        if policy.contract.kind == "continuous":
            np.testing.assert_allclose(action, expected, atol=2e-5)
            equal.append(True)
            continue
        best = np.sort(np.where(avail, values, -np.inf), axis=-1)[..., ::-1]
        clear = best[..., 0] - best[..., 1] > 1e-4 * np.abs(best[..., 0]).clip(1)
        assert (action == expected)[clear].all()
        equal.append((action == expected).mean())
        if policy.contract.last_action:
            mine[..., policy.contract.hidden :] = np.eye(policy.contract.actions)[expected]
    assert np.mean(equal) > 0.999
    return True


@pytest.mark.parametrize("method", METHODS)
def test_every_method_acts_as_the_recurrent_learner_on_the_games_own_observations(method, recorded):
    learner, state = make(method, FORAGER, envs.describe(LBF))
    assert assert_alike(learner, state, policy_of(learner, state), lambda step: recorded)
    assert assert_alike(learner, state, policy_of(learner, state, factored=True), lambda step: recorded)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_acts_as_the_continuous_learner(method):
    learner, state = make(method, MATD3(), ROBOT)
    policy = policy_of(learner, state)
    assert assert_alike(learner, state, policy, lambda step: made_up(ROBOT, step))
    assert assert_alike(learner, state, policy_of(learner, state, agent=2), lambda step: made_up(ROBOT, step), 2)
    seen = made_up(ROBOT, 0).local
    np.testing.assert_array_equal(  # one vector for all is enough, as everybody observes the same
        policy.act(seen[:, 0], policy.reset(ROWS))[0], policy.act(seen, policy.reset(ROWS))[0]
    )


def test_every_learner_of_the_package_says_how_its_policy_acts():
    specs = {"discrete": BATTLE, "continuous": ROBOT}
    for cls, kind in ((one, kind) for one in LEARNERS.values() for kind in one.kinds):
        learner, state = make("fups_id", cls(), specs[kind])
        policy = policy_of(learner, state)
        assert assert_alike(learner, state, policy, lambda step, spec=learner.spec: made_up(spec, step))


@pytest.mark.parametrize("spec", [BATTLE, ROBOT])
@pytest.mark.parametrize("settings", [MAPPO(recurrent=False, scale_inputs=True), MAPPO(behind_gru=1)])
def test_stochastic_policies_act_by_their_best_guess_and_explore_as_they_trained(settings, spec):
    learner, state = make("prism", settings, spec)
    policy = policy_of(learner, state)
    assert assert_alike(learner, state, policy, lambda step: made_up(spec, step))
    obs, rng = made_up(spec, 0), np.random.default_rng(0)
    said, _ = policy.outputs(obs.local, policy.reset(ROWS))
    if spec.kind == "continuous" and not settings.recurrent:
        assert (np.abs(said) > 1).any()  # otherwise nothing is cut
    drawn = np.stack([policy.act(obs.local, policy.reset(ROWS), obs.avail, explore=rng)[0] for _ in range(300)])
    if spec.kind == "discrete":
        shares = np.stack([(drawn == action).mean(0) for action in range(spec.actions)], -1)
        expected = jax.nn.softmax(np.where(obs.avail, said, -np.inf), axis=-1)
        assert np.abs(shares - expected).max() < 0.2 and np.abs(shares - expected).mean() < 0.02
    else:
        inside = np.abs(said) < 0.2
        sizes = np.broadcast_to(np.asarray(learner.deployment(state).amount), said.shape)
        assert np.abs(drawn).max() == 1 and drawn.std(0)[inside].mean() == pytest.approx(sizes[inside].mean(), rel=0.05)


@pytest.mark.parametrize("settings", [VDN(last_action=True), IQL(), QMix(last_action=True)])
@pytest.mark.parametrize("method", ["prism", "nops", "adaps"])
def test_last_actions_legal_actions_and_single_agents(settings, method):
    learner, state = make(method, settings, BATTLE)
    observations = lambda step: made_up(BATTLE, step)  # noqa: E731
    assert assert_alike(learner, state, policy_of(learner, state), observations)
    for agent in range(3):
        one = policy_of(learner, state, agent=agent, factored=agent == 1)
        assert one.bytes < policy_of(learner, state).bytes or method != "nops"
        assert assert_alike(learner, state, one, observations, agent)


def test_roles_choose_the_matrices():
    learner, state = make("prism", QMix(last_action=True), BATTLE, masks="role")
    observations = lambda step: made_up(BATTLE, step)  # noqa: E731
    policy = policy_of(learner, state)
    assert assert_alike(learner, state, policy, observations)
    assert assert_alike(learner, state, policy_of(learner, state, factored=True), observations)
    assert assert_alike(learner, state, policy_of(learner, state, agent=1), observations, 1)
    obs = observations(0).local
    other, own = (policy.outputs(obs, policy.reset(ROWS), role=np.full((ROWS, 3), role))[0] for role in (0, 1))
    assert np.abs(other - own).max() > 0.01
    with pytest.raises(UserError, match="role: this policy has matrices for 2 unit types"):
        policy.act(obs, policy.reset(ROWS))
    with pytest.raises(UserError, match="role: 2 is outside 0 to 1"):
        policy.act(obs, policy.reset(ROWS), role=np.full((ROWS, 3), 2))


@pytest.fixture(scope="module")
def team():
    learner, state = make("prism", QMix(last_action=True), BATTLE)
    return policy_of(learner, state)


def test_one_sample_needs_no_batch_axis(team):
    obs, avail = made_up(BATTLE, 0).local, made_up(BATTLE, 0).avail
    many, memory = team.act(obs, team.reset(ROWS), avail)
    one, alone = team.act(obs[5], team.reset(), avail[5])
    np.testing.assert_array_equal(one, many[5])
    np.testing.assert_allclose(alone, memory[5], atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"obs": np.zeros((2, 3, 6))}, r"obs: has the shape \[2, 3, 6\].*expects \[2, 3, 7\]"),
        ({"obs": np.zeros((4, 3, 7))}, r"obs: has the shape \[4, 3, 7\].*expects \[2, 3, 7\]"),
        ({"memory": np.zeros((2, 3, 5))}, "memory: has the shape"),
        ({"avail": np.ones((2, 3, 2))}, "avail: has the shape"),
    ],
)
def test_wrong_shapes_are_named(team, arguments, words):
    good = {"obs": np.zeros((2, 3, 7)), "memory": team.reset(2)}
    with pytest.raises(UserError, match=words):
        team.act(**{**good, **arguments})


def test_exploring_is_what_training_does_in_the_end(team):
    rng, obs = np.random.default_rng(3), np.repeat(made_up(BATTLE, 0).local[:1], 4000, axis=0)
    avail = np.ones((4000, 3, 6), bool)
    avail[..., 4] = False
    greedy = team.act(obs, team.reset(4000), avail)[0]
    action = team.act(obs, team.reset(4000), avail, explore=rng)[0]
    assert (action != 4).all() and 0.02 < (action != greedy).mean() < 0.06  # 5% random, of which one in five is greedy
    again = team.act(obs, team.reset(4000), avail, explore=np.random.default_rng(3))[0]
    np.testing.assert_array_equal(action, again)

    learner, state = make("fups", MATD3(explore=0.1), ROBOT)
    robot = policy_of(learner, state)
    seen = np.repeat(made_up(ROBOT, 0).local[:1], 4000, axis=0)
    mean, noisy = (robot.act(seen, robot.reset(4000), explore=how)[0] for how in (False, rng))
    inside = np.abs(mean) < 0.6
    assert inside.any() and 0.09 < (noisy - mean)[inside].std() < 0.11 and np.abs(noisy).max() <= 1


@pytest.mark.parametrize("ending", [".safetensors", ".npz"])
def test_files_come_back_bit_by_bit_and_damage_is_told_in_a_sentence(team, ending, tmp_path):
    path = tmp_path / "a folder" / f"my policy{ending}"
    write_policy(team, path)
    again = load_policy(path)
    assert again.contract == team.contract
    assert list(again.tensors) == sorted(team.tensors)  # a page that shows them is the same every time
    for name, value in team.tensors.items():
        np.testing.assert_array_equal(again.tensors[name], value)
    content = path.read_bytes()
    write_policy(team, path)
    assert path.read_bytes() == content  # equal policies are equal files
    middle = len(content) // 2
    edited = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    for damaged in (content[:-1], content[:100], b"", edited, b"something else entirely"):
        path.write_bytes(damaged)
        with pytest.raises(UserError, match="export the run again") as error:
            load_policy(path)
        assert "\n" not in str(error.value)


def test_foreign_files_are_refused(tmp_path, team):
    import safetensors.numpy

    safetensors.numpy.save_file({"x": np.zeros(3)}, tmp_path / "x.safetensors")
    np.savez(tmp_path / "x.npz", x=np.zeros(3))
    np.savez(tmp_path / "code.npz", x=np.array([{"a": 1}], dtype=object), allow_pickle=True)
    for name in ("x.safetensors", "x.npz", "code.npz"):
        with pytest.raises(UserError, match="export the run again"):
            load_policy(tmp_path / name)
    with pytest.raises(UserError, match="there is no policy file"):
        load_policy(tmp_path / "none.npz")
    (tmp_path / "a.pt").write_bytes(b"")
    with pytest.raises(UserError, match=r"ends in \.safetensors or \.npz"):
        load_policy(tmp_path / "a.pt")
    with pytest.raises(UserError, match="for an ONNX runtime"):
        load_policy(tmp_path / "a.onnx")
    for name in ("explore", "fc1.bias", "fc1.weight"):  # numbers in place of tables
        number = Policy.__new__(Policy)
        number.contract, number.tensors = team.contract, team.tensors | {name: np.array(1, np.float32)}
        write_policy(number, tmp_path / "z.npz")
        with pytest.raises(UserError, match="export the run again"):
            load_policy(tmp_path / "z.npz")
    strange = dataclasses.replace(team.contract, observation=8)  # a valid checksum, but arrays of another size
    team.contract, held = strange, team.contract
    try:
        write_policy(team, tmp_path / "y.npz")
    finally:
        team.contract = held
    with pytest.raises(UserError, match="does not fit its description"):
        load_policy(tmp_path / "y.npz")


def test_the_example_reads_shared_factors_and_networks_without_memory(tmp_path):
    """The arrays of both forms, laid beside ``load_policy``, which the tests hold against the learner."""
    spec = importlib.util.spec_from_file_location("play_policy", Path(__file__).parents[2] / "examples/play_policy.py")
    assert spec and spec.loader
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    seen = np.random.default_rng(0).integers(0, 5, (20, 3, 15)).astype(np.float32)
    for settings in (QMix(last_action=True, scale_inputs=True), MAPPO(recurrent=False, standardise_inputs=True)):
        learner, state = make("prism", settings, envs.describe("lbf/5x5-3p-2f"))
        policy = policy_of(learner, state, factored="every")
        path = write_policy(policy, tmp_path / "team.npz")
        act, mine, theirs = example.numpy_policy(str(path)), policy.reset(), policy.reset()[None]
        for obs in seen:
            expected, mine = policy.act(obs, mine)
            action, theirs = act(obs, theirs, 6)
            np.testing.assert_array_equal(action, expected)
            np.testing.assert_allclose(theirs[0], mine, atol=1e-5)


BLOCKED = """
import sys
for name in ("jax", "jaxlib", "equinox", "optax", "jaxtyping"):
    sys.modules[name] = None  # importing it raises
import numpy as np
import prism_marl as pm
import prism_marl.policies
policy = pm.load_policy(sys.argv[1])
memory = policy.reset(batch=2)
c = policy.contract
action, memory = policy.act(np.zeros((2, c.agents, c.observation)), memory)
print(action.tolist())
"""


def without_jax(path: Path) -> str:
    """What a process says that cannot import JAX."""
    done = subprocess.run([sys.executable, "-c", BLOCKED, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_no_jax_is_needed_to_act(team, tmp_path, trained):
    write_policy(team, tmp_path / "policy.safetensors")
    zeros = np.zeros((2, 3, 7))
    assert without_jax(tmp_path / "policy.safetensors").strip() == str(team.act(zeros, team.reset(2))[0].tolist())
    policy = load_policy(trained)
    zeros = np.zeros((2, policy.contract.agents, policy.contract.observation))
    assert without_jax(trained).strip() == str(policy.act(zeros, policy.reset(2))[0].tolist())
