"""The door to JaxMARL, kept with a stand-in that has its interface: JaxMARL itself is too heavy for the lock."""

import sys
import types
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_marl import envs
from prism_marl.envs.jaxmarl import make_jaxmarl
from prism_marl.errors import UserError
from prism_marl.experiment.experiment import Experiment, Net, Run
from prism_marl.learners import QMix
from prism_marl.runs import runner
from prism_marl.sharing import method


class Inner(NamedTuple):
    clock: jax.Array
    unit_types: jax.Array


class Wrapped(NamedTuple):
    state: Inner


class Space:
    def __init__(self, n: int | None):
        if n is not None:
            self.n = np.int64(n)


class Toy:
    """Two agents that see the clock; the second has fewer numbers and more actions. Ends at ``end``, with a bonus."""

    unit_type_bits = 6
    max_steps: int | None = 5

    def __init__(self, end: int = 9, whole: bool = False, masks: bool = True, actions: int | None = 2, **more: Any):
        if more.keys() - {"scenario"}:
            raise TypeError(f"unexpected argument {next(iter(more))}\nand more")
        self.agents, self.end, self.whole, self.masks, self.first = ["a", "b"], end, whole, masks, actions

    def action_space(self, agent: str) -> Space:
        return Space(self.first if agent == "a" else 3)

    def reset(self, key: jax.Array) -> tuple[dict[str, jax.Array], Wrapped]:
        state = Wrapped(Inner(jnp.int32(0), jnp.array([4, 2, 1])))
        return self._see(state), state

    def step_env(self, key: jax.Array, state: Wrapped, actions: dict[str, jax.Array]) -> Any:
        state = Wrapped(state.state._replace(clock=state.state.clock + 1))
        over = state.state.clock >= self.end
        rewards = {"a": 0.25 * actions["a"] + 1.0 * over, "b": 0.5 * actions["b"] + 1.0 * over}
        return self._see(state), state, rewards, {"a": over, "b": over, "__all__": over}, {}

    def get_avail_actions(self, state: Wrapped) -> dict[str, jax.Array]:
        if not self.masks:
            raise NotImplementedError
        return {"a": jnp.array([1, 0]), "b": jnp.array([1, 1, 0])}

    def _see(self, state: Wrapped) -> dict[str, jax.Array]:
        clock = state.state.clock.astype(jnp.float32)
        seen = {"a": jnp.full((2, 2), clock), "b": jnp.full(3, clock + 10)}
        return seen | ({"world_state": jnp.full(7, clock)} if self.whole else {})


@pytest.fixture(autouse=True)
def package(monkeypatch) -> None:
    scenarios = {"3m": "three marines"}
    smax: Any = types.ModuleType("jaxmarl.environments.smax")
    smax.map_name_to_scenario = scenarios.__getitem__
    whole: Any = types.ModuleType("jaxmarl")
    whole.registered_envs, whole.__version__ = ["toy", "HeuristicEnemySMAX", "endless"], "0.2.0"

    def make(name: str, **settings: Any) -> Toy:
        env = Toy(**settings)
        if name == "endless":
            env.max_steps = None
        return env

    whole.make = make
    for name, module in (("jaxmarl", whole), ("jaxmarl.environments.smax", smax)):
        monkeypatch.setitem(sys.modules, name, module)


def play(env: Any, action: list[int], steps: int) -> tuple[Any, Any]:
    state, obs = env.reset(jax.random.key(0))
    for _ in range(steps):
        state, step = jax.jit(env.step)(jax.random.key(0), state, jnp.array(action))
    return obs, step


def test_agents_become_an_axis_and_what_is_shorter_is_padded():
    env = envs.make("jaxmarl/toy")
    assert (env.spec.agents, env.spec.observation, env.spec.state, env.spec.actions) == (2, 4, 8, 3)
    assert env.spec.horizon == 5 and env.spec.roles == 2 and env.spec.version == "jaxmarl 0.2.0"
    obs, step = play(env, [1, 2], 1)
    assert obs.local.tolist() == [[0, 0, 0, 0], [10, 10, 10, 0]] and obs.role.tolist() == [0, 1]
    assert obs.avail.tolist() == [[True, False, False], [True, True, False]]
    assert step.obs.state.tolist() == [1, 1, 1, 1, 11, 11, 11, 0]
    assert float(step.reward) == pytest.approx(0.25 + 1.0) and not step.terminated and not step.truncated
    assert step.metrics == {}
    assert env.spec.reward == "agent" and step.agent_reward.tolist() == pytest.approx([0.25, 1.0])


def test_states_masks_and_rewards_as_the_environment_has_them():
    env = make_jaxmarl("toy?whole=true&masks=false&reward=mean")
    obs, step = play(env, [1, 2], 2)
    assert env.spec.state == 7 and not env.spec.state_is_joint and step.obs.state.tolist() == [2] * 7
    assert obs.avail.tolist() == [[True, True, False], [True, True, True]]
    assert float(step.reward) == pytest.approx((0.25 + 1.0) / 2)
    assert env.spec.reward == "team" and step.agent_reward is None


@pytest.mark.parametrize(
    ("variant", "steps", "terminated", "truncated"),
    [("toy", 5, False, True), ("toy?end=3", 3, True, False), ("toy?end=5", 5, False, True)],
)
def test_one_done_is_read_by_the_clock(variant: str, steps: int, terminated: bool, truncated: bool):
    _, step = play(make_jaxmarl(variant), [0, 0], steps)
    assert (bool(step.terminated), bool(step.truncated)) == (terminated, truncated)


def test_smax_brings_unit_types_and_victories():
    env = make_jaxmarl("smax-3m?end=2")
    assert (
        env.spec.roles == 6
        and env.spec.metrics == ("battle_won",)
        and env.reward == "mean"
        and env.spec.reward == "team"
    )
    obs, step = play(env, [0, 0], 1)
    assert obs.role.tolist() == [4, 2] and float(step.metrics["battle_won"]) == 0
    _, step = play(env, [0, 0], 2)
    assert bool(step.terminated) and float(step.metrics["battle_won"]) == 1 and float(step.reward) == 1


@pytest.mark.parametrize(
    ("variant", "hint"),
    [
        ("tyo", "JaxMARL has no 'tyo'; did you mean 'toy'"),
        ("smax-4m", "SMAX has no scenario '4m'"),
        ("toy?size=3", r"refuses 'jaxmarl/toy\?size=3' \(unexpected argument size\); change"),
        ("toy?reward=max", "must be 'agent', 'sum' or 'mean', not 'max'"),
        ("toy?actions=none", "a Space of actions; choose an environment with Discrete"),
        ("endless", r"how long an episode may last; write 'jaxmarl/endless\?horizon=100'"),
        ("toy?horizon=soon", "how long an episode may last"),
    ],
)
def test_what_cannot_be_played_is_refused_in_one_sentence(variant: str, hint: str):
    with pytest.raises(UserError, match=hint) as error:
        envs.make(f"jaxmarl/{variant}")
    assert "\n" not in str(error.value)


def test_without_the_package_one_sentence_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "jaxmarl", None)
    with pytest.raises(UserError, match=r"pip install .*'prism-marl\[jaxmarl\]'"):
        envs.make("jaxmarl/smax-3m")


def test_it_trains(tmp_path):
    small = QMix(batch=2, buffer=4, embed=4, hypernet=4, epsilon_anneal=100, last_action=True)
    schedule = Run(steps=20, seeds=1, envs=2, eval_every=20, eval_episodes=2, measures=0)
    folder = runner.run(Experiment("jaxmarl/toy", method("fups")(), small, Net(width=4), schedule), tmp_path / "run")
    assert (folder / "done").exists()
