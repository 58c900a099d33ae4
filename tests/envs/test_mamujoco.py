"""Robots against gymnasium's own v4 environments, bit for bit, and the promises of a ``RowsEnv``."""

import gc
import os
import signal
import subprocess
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import mujoco
import numpy as np
import pytest

from prism_marl import envs
from prism_marl.envs.mamujoco import ROBOTS, engine, make_mamujoco, processes
from prism_marl.envs.mamujoco import contacts as contact_lists
from prism_marl.envs.mamujoco import robots as robots_module
from prism_marl.envs.mamujoco.fields import fields, joints, motors
from prism_marl.envs.mamujoco.pool import Pool
from prism_marl.envs.mamujoco.processes import Processes
from prism_marl.envs.mamujoco.robots import Robots
from prism_marl.envs.mamujoco.rules import RULES
from prism_marl.envs.mamujoco.stepping import workspace
from prism_marl.envs.mamujoco.swimmer import LONGEST, build_swimmer
from prism_marl.envs.mamujoco.tasks import HORIZON, find_task
from prism_marl.errors import UserError
from prism_marl.experiment.presets import preset
from prism_marl.render.draw import scene_to_image, scene_to_text
from prism_marl.render.video import write_film
from prism_marl.scene import NOBODY, colour_of, scene_to_json

ORIGINALS = {
    "ant-4x2": "Ant-v4",
    "halfcheetah-2x3": "HalfCheetah-v4",
    "hopper-3x1": "Hopper-v4",
    "walker2d-2x3": "Walker2d-v4",
    "walker2d-6x1": "Walker2d-v4",
}
SMALL = ("hopper-3x1", "swimmer-2x2")


def robots(variant: str, number: int, threads: int | None = 1) -> Robots:
    env = make_mamujoco(variant, number, threads)
    assert isinstance(env, Robots)
    return env


def original(variant: str) -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*out of date.*", category=DeprecationWarning)
        return gymnasium.make(ORIGINALS[variant]).unwrapped


def actions(env: Robots, rng: np.random.Generator) -> np.ndarray:
    return rng.uniform(-1, 1, (env.number, env.spec.agents, env.spec.actions)).astype(np.float32)


def raw(env: Robots) -> dict[str, np.ndarray]:
    """Positions and velocities in double precision."""
    _, places, _ = engine.row_layout(env.engine, env.model)
    states = env.snapshot()["states"]
    return {"qpos": states[:, places["QPOS"]], "qvel": states[:, places["QVEL"]]}


# the original


@pytest.mark.parametrize("variant", ORIGINALS)
def test_thousands_of_steps_are_gymnasiums_bit_for_bit(variant: str):
    """Closed loop: nothing is copied over after the start, so that any difference would grow."""
    rows, steps = 4, 900
    env, judges = robots(variant, rows, 2), [original(variant) for _ in range(4)]
    rng, seeds, falls = np.random.default_rng(3), np.arange(50, 50 + rows), 0
    env.reset(np.arange(rows), seeds)
    seen = [judge.reset(seed=int(seed))[0] for judge, seed in zip(judges, seeds, strict=True)]
    strength = rng.uniform(0.3, 1.0, rows)  # gentle rows live longer
    for _ in range(steps):
        state = np.asarray(env.observe().state)
        contacts = RULES[find_task(variant).robot].contacts
        np.testing.assert_array_equal(state[:, : len(seen[0])], np.stack(seen).astype(np.float32))
        assert state.shape[1] == len(seen[0]) + contacts and not state[:, len(seen[0]) :].any()
        action = actions(env, rng) * strength[:, None, None].astype(np.float32)
        step, inside = env.step(action), raw(env)
        for row, judge in enumerate(judges):
            seen[row], reward, fallen, _, _ = judge.step(action[row].reshape(-1).astype(np.float64))
            np.testing.assert_array_equal(inside["qpos"][row], judge.data.qpos)
            np.testing.assert_array_equal(inside["qvel"][row], judge.data.qvel)
            assert float(step.reward[row]) == pytest.approx(reward, rel=1e-6, abs=1e-6)
            assert bool(step.terminated[row]) == fallen and not step.truncated[row]
            if fallen:
                falls += 1
                env.reset(np.array([row]), np.array([1000 + falls]))
                seen[row] = judge.reset(seed=1000 + falls)[0]
    assert falls > 2 or variant.startswith("halfcheetah")


@pytest.mark.parametrize("variant", ["ant-4x2", "hopper-3x1", "walker2d-2x3"])
def test_rewards_and_falls_of_any_state_are_gymnasiums(variant: str):
    """In double precision, also beyond what play reaches."""
    judge, rng, rules = original(variant), np.random.default_rng(0), RULES[find_task(variant).robot]
    judge.reset(seed=0)
    position = judge.init_qpos + rng.normal(0, 0.5, (400, judge.model.nq))
    velocity = rng.normal(0, 20, (400, judge.model.nv)) * rng.choice([1, 10], (400, 1))
    velocity[:5, -1] = [np.nan, np.inf, -np.inf, 100.0, -100.0]
    expected, clipped = [], []
    for place, speed in zip(position, velocity, strict=True):
        judge.data.qpos[:], judge.data.qvel[:] = place, speed
        expected.append(bool(judge.is_healthy))
        clipped.append(judge._get_obs().astype(np.float32))
    assert rules.healthy is not None and rules.healthy(position, velocity).tolist() == expected
    assert 10 < sum(expected) < 390
    np.testing.assert_array_equal(rules.observe(position, velocity)[:, : len(clipped[0])], np.stack(clipped))
    action, speed = rng.uniform(-1, 1, (400, judge.model.nu)), rng.normal(0, 3, 400)
    wanted = [v + judge._healthy_reward - judge.control_cost(a) for v, a in zip(speed, action, strict=True)]
    np.testing.assert_allclose(rules.reward(speed, action), wanted, rtol=1e-12, atol=1e-12)


def test_ants_reward_follows_the_torso_as_the_engine_saw_it_last():
    """Not the first position: the engine computes where bodies are before it moves them a last time."""
    env, judge, rng = robots("ant-4x2", 1), original("ant-4x2"), np.random.default_rng(0)
    env.reset(np.array([0]), np.array([9]))
    judge.reset(seed=9)
    gaps = []
    for _ in range(20):
        before = raw(env)["qpos"][0, 0]
        action = actions(env, rng)
        step = env.step(action)
        _, reward, *_ = judge.step(action.reshape(-1).astype(np.float64))
        naive = (raw(env)["qpos"][0, 0] - before) / 0.05 + 1 - 0.5 * np.square(action).sum()
        gaps.append(abs(naive - reward))
        assert float(step.reward[0]) == pytest.approx(reward, abs=1e-6)
    assert max(gaps) > 1e-3


def test_swimmers_are_a_plain_loop_over_the_engine():
    env, rng = robots("swimmer-3x2", 2, 2), np.random.default_rng(1)
    model = mujoco.MjModel.from_xml_string(swimmer_text(6))
    assert env.model.opt.timestep == 0.005 and (model.nq, model.nu) == (9, 6)
    for name in ("body_mass", "body_inertia", "body_pos", "body_ipos", "jnt_axis", "jnt_range", "dof_armature"):
        np.testing.assert_allclose(getattr(env.model, name), getattr(model, name), atol=1e-12, err_msg=name)
    datas = [mujoco.MjData(model) for _ in range(2)]
    env.reset(np.arange(2), np.array([4, 5]))
    for data, seed in zip(datas, (4, 5), strict=True):
        draws = np.random.default_rng(seed)
        data.qpos[:], data.qvel[:] = draws.uniform(-0.1, 0.1, 9), draws.uniform(-0.1, 0.1, 9)
        mujoco.mj_forward(model, data)
    for _ in range(HORIZON):
        action = actions(env, rng)
        step = env.step(action)
        for row, data in enumerate(datas):
            before, data.ctrl[:] = data.qpos[0], action[row].reshape(-1)
            for _ in range(4):
                mujoco.mj_step(model, data)
            np.testing.assert_allclose(raw(env)["qpos"][row], data.qpos, atol=1e-9)
            seen = np.concatenate([data.qpos[2:], data.qvel])
            np.testing.assert_allclose(step.obs.state[row], seen, rtol=1e-6, atol=1e-6)
            reward = (data.qpos[0] - before) / 0.02 - 1e-4 * np.square(action[row].astype(np.float64)).sum()
            assert float(step.reward[row]) == pytest.approx(reward, abs=1e-6)
            assert not step.terminated[row]
    assert step.truncated.all() and np.abs(raw(env)["qpos"][:, 0]).max() > 0.05


def swimmer_text(count: int) -> str:
    """The published swimmer, written the long way: alternating joints, nothing collides."""
    link = '<geom type="capsule" size="0.1" density="1000" contype="0" conaffinity="0" fromto="0 0 0 -1 0 0"/>'
    body = ""
    for k in reversed(range(count)):
        sign = 1 if k in (0, count - 1) else (-1) ** (k + 1)
        hinge = f'<joint name="j{k}" type="hinge" axis="0 0 {sign}" limited="true" range="-100 100" armature="0.1"/>'
        body = f'<body pos="{0.5 if k == 0 else -1} 0 0">{link}{hinge}{body}</body>'
    motors = "".join(f'<motor joint="j{k}" gear="150" ctrllimited="true" ctrlrange="-1 1"/>' for k in range(count))
    root = "".join(
        f'<joint type="{kind}" axis="{axis}" armature="0.1"/>'
        for kind, axis in (("slide", "1 0 0"), ("slide", "0 1 0"), ("hinge", "0 0 1"))
    )
    return f"""<mujoco><compiler angle="degree" inertiafromgeom="true"/>
    <option density="4000" viscosity="0.1" integrator="RK4" timestep="0.005"/><worldbody>
    <geom name="floor" type="plane" size="0 0 1" pos="0 0 -0.1" contype="0" conaffinity="0"/>
    <body>{link.replace("0 0 0 -1 0 0", "1.5 0 0 0.5 0 0")}{root}{body}</body></worldbody>
    <actuator>{motors}</actuator></mujoco>"""


@pytest.mark.parametrize("variant", [*ROBOTS, "swimmer-10x2"])
def test_starts_are_spread_as_published(variant: str):
    count, rules = 400, RULES[find_task(variant).robot]
    env = robots(variant, count)
    env.reset(np.arange(count), np.arange(count))
    held = raw(env)
    place, speed = held["qpos"] - env.model.qpos0, held["qvel"]
    assert np.abs(place).max() <= rules.noise and place.std() == pytest.approx(rules.noise / np.sqrt(3), rel=0.05)
    if rules.normal:
        assert np.abs(speed).max() > 2.5 * rules.noise and speed.std() == pytest.approx(rules.noise, rel=0.05)
    else:
        assert np.abs(speed).max() <= rules.noise and speed.std() == pytest.approx(rules.noise / np.sqrt(3), rel=0.05)
    assert abs(place.mean()) < 0.05 * rules.noise and abs(speed.mean()) < 0.05 * rules.noise


# what a RowsEnv promises


@pytest.mark.parametrize("variant", [*ROBOTS, "swimmer-10x2"])
def test_sizes_partitions_and_fields_are_those_of_the_model(variant: str):
    env, task = robots(variant, 2), find_task(variant)
    spec, obs, model = env.spec, env.observe(), env.model
    assert envs.describe(f"mamujoco/{variant}") == spec and not envs.is_compiled(f"mamujoco/{variant}")
    assert spec.kind == "continuous" and spec.shared_observation and spec.horizon == 1000
    assert spec.agents * spec.actions == model.nu and spec.roles == spec.agents
    assert obs.local.shape == (2, spec.agents, spec.observation) and obs.state.shape == (2, spec.state)
    assert obs.local.dtype == obs.state.dtype == np.float32 and obs.avail.shape == (2, spec.agents, spec.actions)
    assert obs.avail.all() and obs.role.tolist() == [list(range(spec.agents))] * 2
    np.testing.assert_array_equal(obs.local, np.repeat(np.asarray(obs.state)[:, None], spec.agents, axis=1))
    moved = [model.joint(int(joint)).name for joint in model.actuator_trnid[:, 0]]
    assert tuple(moved) == motors(task)
    names = [model.joint(k).name for k in range(model.njnt)]
    assert tuple(names[len(names) - model.nu :]) == joints(task)
    held = fields(task)
    assert [f.index for f in held] == list(range(spec.observation))
    assert [f.agent for f in held if f.name.startswith("position.") and f.agent is not None] == [
        moved.index(name) // task.joints for name in joints(task)
    ]
    np.testing.assert_array_equal(model.actuator_ctrlrange, [[-1.0, 1.0]] * model.nu)


def test_agents_own_consecutive_motors():
    task = ROBOTS["ant-4x2"]
    legs = [motors(task)[i : i + 2] for i in range(0, 8, 2)]
    assert legs == [("hip_4", "ankle_4"), ("hip_1", "ankle_1"), ("hip_2", "ankle_2"), ("hip_3", "ankle_3")]
    env = robots("walker2d-6x1", 1)
    env.step(np.arange(6.0).reshape(1, 6, 1) / 10)
    _, places, _ = engine.row_layout(env.engine, env.model)
    np.testing.assert_array_equal(env.snapshot()["states"][0, places["CTRL"]], np.arange(6.0) / 10)


@pytest.mark.parametrize("variant", ["ant-4x2", *SMALL])
def test_a_snapshot_continues_with_the_same_bits(variant: str):
    env, rng = robots(variant, 5, 2), np.random.default_rng(2)
    played = [actions(env, rng) for _ in range(40)]
    for action in played[:17]:
        env.step(action)
    env.reset(np.array([1]), np.array([77]))
    held, first = env.snapshot(), []
    assert held["clock"].tolist() == [17, 0, 17, 17, 17]
    other = robots(variant, 5, 1)  # another object with another number of threads, with a life of its own
    for action in played[:3]:
        other.step(action)
    for action in played[17:]:
        first.append(env.step(action))
    other.restore(held)
    for action, wanted in zip(played[17:], first, strict=True):
        found = other.step(action)
        np.testing.assert_array_equal(found.obs.state, wanted.obs.state)
        np.testing.assert_array_equal(found.reward, wanted.reward)
        np.testing.assert_array_equal(found.terminated, wanted.terminated)
    assert all(np.array_equal(a, b) for a, b in zip(env.snapshot().values(), other.snapshot().values(), strict=True))
    with pytest.raises(UserError, match=r"does not fit 4 rows .* run\.envs"):
        robots(variant, 4).restore(held)


def test_without_the_solvers_last_solution_the_bits_would_differ():
    env, rng = robots("ant-4x2", 8, 1), np.random.default_rng(0)
    for _ in range(20):
        env.step(actions(env, rng))
    held, action = env.snapshot(), actions(env, rng)
    _, places, _ = engine.row_layout(env.engine, env.model)
    env.step(action)
    wanted = raw(env)["qvel"]
    held["states"][:, places["WARMSTART"]] = 0
    env.restore(held)
    env.step(action)
    assert not np.array_equal(raw(env)["qvel"], wanted)


@pytest.mark.parametrize("variant", SMALL)
def test_an_episode_depends_on_its_seed_and_actions_alone(variant: str):
    rng = np.random.default_rng(5)
    wide, narrow = robots(variant, 6, 3), robots(variant, 1, 1)
    played = [actions(wide, rng) for _ in range(30)]
    wide.reset(np.arange(6), np.array([9, 3, 3, 8, 7, 2**31 - 1]))
    wide.step(played[0])
    wide.reset(np.array([4]), np.array([3]))
    narrow.reset(np.array([0]), np.array([3]))
    for action in played:
        wide_step, narrow_step = wide.step(action), narrow.step(action[4:5])
        np.testing.assert_array_equal(wide_step.obs.state[4], narrow_step.obs.state[0])
        assert wide_step.reward[4] == narrow_step.reward[0]
    starts = robots(variant, 3)
    starts.reset(np.arange(3), np.array([1, 2, 1]))
    state = starts.observe().state
    assert np.array_equal(state[0], state[2]) and not np.array_equal(state[0], state[1])


def test_the_clock_cuts_off_and_wins_over_a_fall():
    env = robots("hopper-3x1", 3)
    held = env.snapshot()
    held["clock"][:] = [HORIZON - 1, HORIZON - 1, 5]
    _, places, _ = engine.row_layout(env.engine, env.model)
    held["states"][1:, places["QPOS"].start + 1] = 0.5  # lying down
    env.restore(held)
    step = env.step(np.zeros((3, 3, 1)))
    assert step.terminated.tolist() == [False, False, True] and step.truncated.tolist() == [True, True, False]
    assert step.reward.dtype == np.float32


def test_threads_end_with_the_environment_and_report_failures():
    before = set(threading.enumerate())
    env = robots("hopper-3x1", 4, 3)
    helpers = set(threading.enumerate()) - before
    assert len(helpers) == 2
    env.step(np.zeros((4, 3, 1)))
    gone = weakref.ref(env)
    del env
    gc.collect()
    assert gone() is None
    done = []

    def job(workspace: int, rows: Iterator[int]) -> None:
        for row in rows:
            if row == 3:
                raise ValueError("row 3")
            done.append(row)

    pool = Pool([1, 2], job)
    helpers = (set(threading.enumerate()) - before) | helpers
    pool.start(slice(0, 8))
    pool.start(slice(8, 12))  # not touched by the failure of the others
    with pytest.raises(ValueError, match="row 3"):
        pool.wait(slice(0, 8))
    pool.wait(slice(8, 12))
    assert sorted(done)[-4:] == [8, 9, 10, 11]
    del done[:]
    pool.start(slice(4, 9))  # and the pool lives on
    pool.wait(slice(4, 9))
    assert sorted(done) == [4, 5, 6, 7, 8]
    pool.close()
    assert len(helpers) == 3
    for thread in helpers:
        thread.join(10)
        assert not thread.is_alive()


@pytest.mark.parametrize("variant", ["ant-4x2", "hopper-3x1"])
def test_processes_move_rows_with_the_same_bits_as_threads(variant: str):
    task, rng = ROBOTS[variant], np.random.default_rng(3)
    crew, alone = Robots(task, 5, processes=3), robots(variant, 5, 1)
    for number in range(30):
        action = actions(alone, rng)
        found, wanted = crew.step(action), alone.step(action)
        np.testing.assert_array_equal(found.obs.state, wanted.obs.state)
        np.testing.assert_array_equal(found.reward, wanted.reward)
        if number == 10:
            crew.reset(np.array([2]), np.array([7]))
            alone.reset(np.array([2]), np.array([7]))
    other = Robots(task, 5, processes=2)
    other.restore(alone.snapshot())
    reached = alone.step(action).obs.state
    np.testing.assert_array_equal(other.step(action).obs.state, reached)
    others = list(other._workers._members)
    del other
    gc.collect()
    assert all(member.wait(10) == 0 for member in others)
    members = list(crew._workers._members)
    members[1].kill()
    members[1].wait()
    np.testing.assert_array_equal(crew.step(action).obs.state, reached)  # others do its work
    crew.close()
    assert all(member.returncode is not None for member in members)


def test_lost_physics_processes_are_replaced_and_change_no_bit(monkeypatch):
    crew, alone = Robots(ROBOTS["hopper-3x1"], 6, processes=2), robots("hopper-3x1", 6, 1)
    action, first, second = actions(alone, np.random.default_rng(3)), slice(0, 3), slice(3, 6)

    def moved_with(fault: Callable[[Any], Any]) -> None:
        """Rows move while one process is lost with what it holds and the other stands still."""
        members, wanted = crew._workers._members[:], alone.step(action)
        for member in members:
            member.send_signal(signal.SIGSTOP)
        crew.begin(first, action[first])
        crew.begin(second, action[second])
        crew._position[2:5] = 7.0  # half a step may have been written
        fault(members[1])
        with pytest.warns(UserWarning, match="a physics process .* stepped again"):
            states = [crew.finish(part).obs.state for part in (first, second)]
        np.testing.assert_array_equal(np.concatenate(states), wanted.obs.state)
        assert all(member.returncode is not None for member in members)

    open_files = len(list(Path("/proc/self/fd").iterdir()))
    moved_with(lambda member: member.kill())
    monkeypatch.setattr(processes, "PATIENCE", 0.0)  # so that it passes with the first look
    moved_with(lambda member: None)
    monkeypatch.setattr(processes, "PATIENCE", 60.0)
    np.testing.assert_array_equal(crew.step(action).obs.state, alone.step(action).obs.state)
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files
    broken = [sys.executable, "-c", "raise SystemExit(3)"]
    monkeypatch.setattr(processes, "_start_member", lambda *_: subprocess.Popen(broken))
    for member in crew._workers._members:
        member.kill()
    with (
        pytest.warns(UserWarning, match="exit code"),
        pytest.raises(UserError, match=r"ended \(exit code 3\), 4 times in a row; .*start the run again"),
    ):
        crew.step(action)
    crew.close()
    assert not crew._workers._members and len(list(Path("/proc/self/fd").iterdir())) == open_files - 2


def test_many_cores_are_used_by_processes_and_few_by_threads(monkeypatch):
    for number, cores, kind in ((12, 2, Pool), (3, 9, Pool), (12, 9, Processes)):
        monkeypatch.setattr(robots_module, "usable_cores", lambda cores=cores: cores)
        env = Robots(ROBOTS["hopper-3x1"], number)
        assert isinstance(env._workers, kind)
        env.close()


# names, versions, long swimmers


@pytest.mark.parametrize(("variant", "agent"), [("halfcheetah-2x3", 1), ("swimmer-2x2", 0)])
def test_a_damaged_agent_moves_as_a_whole_one_that_pushes_a_quarter(variant: str, agent: int):
    """A quarter is a power of two, so the bits are the same; what is paid for is the command, not the torque."""
    whole, damaged = robots(variant, 2), robots(f"{variant}-damaged{agent}", 2)
    rng, gentle = np.random.default_rng(4), np.ones((whole.spec.agents, 1), np.float32)
    gentle[agent] = 0.25
    for _ in range(20):
        action = actions(whole, rng)
        one, other = whole.step(action * gentle), damaged.step(action)
        np.testing.assert_array_equal(one.obs.local, other.obs.local)
        effort = RULES[find_task(variant).robot].effort * ((action * gentle) ** 2 - action**2).sum(axis=(1, 2))
        np.testing.assert_allclose(other.reward - one.reward, effort, atol=1e-4)
    told = envs.describe(f"mamujoco/{variant}-damaged{agent}")
    assert told.name == damaged.spec.name and told.agents == whole.spec.agents
    assert preset(told.name, "prism").learner == preset(whole.spec.name, "prism").learner


def test_sizes_need_no_engine(monkeypatch):
    for module in [name for name in sys.modules if name.partition(".")[0] == "mujoco"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "mujoco", None)
    assert envs.describe("mamujoco/ant-4x2").state == 111
    assert envs.describe("mamujoco/swimmer-1024x2").state == 4 * 1024 + 4
    with pytest.raises(UserError, match=r"not installed: .*pip install .*'prism-marl\[mujoco\]'"):
        envs.make_rows("mamujoco/ant-4x2", 1)


@pytest.mark.parametrize(
    ("version", "margin", "hint"),
    [
        ("3.4.0", 1.0, None),
        ("3.5.0", 0.5, None),
        ("3.5", 0.5, None),
        ("3.5.0rc1", 0.5, None),
        ("3.17.0", 0.5, None),
        ("3.1.6", None, "too old"),
        ("3.2.3", None, "too old"),
        ("3.2.4", 1.0, None),
        ("4.0.0", None, "moves robots differently .*'mujoco==3.4.0'"),
        ("4.1.0.dev3", None, "moves robots differently"),
    ],
)
def test_other_engines_are_corrected_or_refused(monkeypatch, version: str, margin: float | None, hint: str | None):
    twin = types.ModuleType("mujoco")
    twin.__dict__.update({**vars(mujoco), "__version__": version})
    monkeypatch.setitem(sys.modules, "mujoco", twin)
    if hint:
        with pytest.raises(UserError, match=hint):
            make_mamujoco("ant-4x2", 1)
        return
    for variant in ("ant-4x2", "hopper-3x1"):
        judge = original(variant).model
        assert np.ptp(judge.geom_margin) == 0 < judge.geom_margin[0]  # one margin for all: half and half is the larger
        listed = robots(variant, 1).model
        np.testing.assert_array_equal(listed.pair_margin, judge.geom_margin[0])  # a listed pair's is taken as it is
        with monkeypatch.context() as context:
            context.setattr(contact_lists, "MOST", 0)
            np.testing.assert_array_equal(robots(variant, 1).model.geom_margin, judge.geom_margin * margin)


# work that changes no number


@pytest.mark.parametrize("variant", [*ROBOTS, "swimmer-4x2"])
def test_the_lean_model_moves_as_the_raw_one(variant: str):
    """Without the search for contacts and for parts that can be solved apart; the clocks are off in both."""
    mujoco_engine, task = engine.load_engine(), find_task(variant)
    models = [load(mujoco_engine, task) for load in (engine.load_model, engine.load_raw_model)]
    island = int(mujoco.mjtDisableBit.mjDSBL_ISLAND)
    assert [bool(model.opt.disableflags & island) for model in models] == [True, False]
    datas, rng, touched = [workspace(mujoco_engine, model) for model in models], np.random.default_rng(0), 0
    for number in range(600):
        action = rng.uniform(-1, 1, models[0].nu)
        for model, data in zip(models, datas, strict=True):
            if number % 100 == 0:
                mujoco.mj_resetData(model, data)
            data.ctrl[:] = action
            mujoco.mj_step(model, data, 5)
        np.testing.assert_array_equal(datas[0].qpos, datas[1].qpos)
        np.testing.assert_array_equal(datas[0].contact.geom, datas[1].contact.geom)
        touched += datas[0].ncon
    assert touched or variant.startswith("swimmer")


def test_pairs_that_may_touch_are_listed_and_no_others():
    """Most robots meet the floor alone; Hopper's limbs may also touch each other, unless they are neighbours."""
    counts = {variant: robots(variant, 1).model.npair for variant in ROBOTS}
    assert counts == {"ant-4x2": 13, "halfcheetah-2x3": 8, "hopper-3x1": 7, "walker2d-2x3": 7, "walker2d-6x1": 7}
    assert not robots("ant-4x2", 1).model.geom_contype.any()


@pytest.mark.parametrize("change", ['solref="0.01 1"', 'priority="1"', 'solmix="2"'])
def test_a_model_whose_pairs_would_be_mixed_is_left_as_it_is(tmp_path: Path, change: str):
    file = tmp_path / "model.xml"
    ball = f'<body pos="0 0 1"><freejoint/><geom name="ball" size="0.1" {change}/></body>'
    file.write_text(f'<mujoco><worldbody><geom name="floor" type="plane" size="1 1 1"/>{ball}</worldbody></mujoco>')
    model = mujoco.MjModel.from_xml_path(str(file))
    assert contact_lists.with_listed_contacts(mujoco, file, model, model.geom_margin) is model
    file.write_text(file.read_text().replace(change, ""))
    model = mujoco.MjModel.from_xml_path(str(file))
    assert contact_lists.with_listed_contacts(mujoco, file, model, model.geom_margin).npair == 1
    file.write_text(file.read_text().replace('name="ball"', ""))  # nobody can be listed without a name
    model = mujoco.MjModel.from_xml_path(str(file))
    assert contact_lists.with_listed_contacts(mujoco, file, model, model.geom_margin) is model


def test_workspaces_have_no_clocks_unless_somebody_chose_one():
    model = robots("hopper-3x1", 1).model
    data = workspace(mujoco, model)
    mujoco.mj_step(model, data)
    timers = data.timer[mujoco.mjtTimer.mjTIMER_STEP]
    assert timers.number == 1 and timers.duration == 0
    try:
        mujoco.set_mjcb_time(lambda: 7.0)
        workspace(mujoco, model)
        assert mujoco.get_mjcb_time() is not None
    finally:
        mujoco.set_mjcb_time(None)


def test_robots_that_never_touch_at_a_distance_need_no_correction():
    for variant in ("halfcheetah-2x3", "walker2d-2x3", "swimmer-2x2"):
        assert not robots(variant, 1).model.geom_margin.any()


@pytest.mark.parametrize(
    ("task", "hint"),
    [
        ("mamujoco/ant-2x4", "did you mean 'ant-4x2'"),
        ("mamujoco/ant-4x2-damaged4", "name the damaged agent, 0 to 3; try mamujoco/ant-4x2-damaged0"),
        ("mamujoco/ant-4x2-damaged", "name the damaged agent, 0 to 3"),
        ("mamujoco/ant-4x2-damaged0-damaged1", "name the damaged agent, 0 to 3"),
        ("mamujoco/swimmer-1025x2", "1 to 1024 agents"),
        ("mamujoco/swimmer-0x2", "1 to 1024 agents"),
        ("mamujoco/swimmer-1024x2", f"up to {LONGEST} joints, not 2048"),
        ("lbf/10x10-3p-3f", "has no rows on the host"),
    ],
)
def test_what_cannot_be_built_is_one_sentence(task: str, hint: str):
    with pytest.raises(UserError, match=hint) as error:
        envs.make_rows(task, 1)
    assert "\n" not in str(error.value)


def test_rows_and_threads_are_checked():
    for number, threads in ((0, 1), (1, 0)):
        with pytest.raises(UserError, match="at least 1 row and 1 thread"):
            make_mamujoco("hopper-3x1", number, threads)
    with pytest.raises(UserError, match="played on the host"):
        envs.make("mamujoco/hopper-3x1")


def test_long_swimmers_start_gently_and_stay_whole():
    model = build_swimmer(mujoco, 300)  # deeper than a text could be nested by some readers
    assert model.nv == 303 and model.nu == 300
    env, rng = robots("swimmer-128x2", 1), np.random.default_rng(0)
    assert np.abs(raw(env)["qvel"]).max() <= 0.1 * (67 / 259) ** 1.5
    for _ in range(3):
        step = env.step(actions(env, rng))
    assert np.isfinite(step.obs.state).all() and np.abs(raw(env)["qvel"]).max() > 0.5  # not reset by the engine


# pictures


@pytest.mark.parametrize("variant", [*ROBOTS, "swimmer-10x2"])
def test_stick_figures_follow_the_robot_and_wear_the_agents_colours(variant: str, tmp_path: Path):
    env, rng = robots(variant, 2), np.random.default_rng(0)
    for _ in range(5):
        env.step(actions(env, rng))
    scene = env.scene(1)
    bars = [shape for shape in scene.shapes if shape.kind == "bar" and shape.size > 0.3]
    assert {shape.colour for shape in bars} - {NOBODY} == set(range(env.spec.agents))
    for shape in bars:
        assert 0 <= shape.x <= scene.width and 0 <= shape.y + shape.dy <= scene.height
    assert scene.caption.startswith("step 5/1000, ") and scene.extra["step"] == 5
    assert scene_to_json(scene)["shapes"][-1]["dx"] == scene.shapes[-1].dx
    text = scene_to_text(scene)
    assert "ABCDEFGHIJ"[env.spec.agents - 1] in text and len(text.splitlines()[0]) == round(scene.width)
    colours = {colour for _, colour in scene_to_image(scene).getcolors(1 << 20) or ()}
    assert tuple(bytes.fromhex(colour_of(scene.shapes[-1])[1:])) in colours  # nothing is in front of the last one
    if variant == "hopper-3x1":
        assert env.scene(0) == env.scene(0) != scene
        assert write_film([env.scene(0), scene], tmp_path / "hop.gif").stat().st_size > 1000


def test_a_figure_is_as_long_as_the_robot():
    env = robots("hopper-3x1", 1)
    held = env.snapshot()
    _, places, _ = engine.row_layout(env.engine, env.model)
    held["states"][0, places["QPOS"]] = [3.0, 1.25, 0, 0, 0, 0]  # upright
    env.restore(held)
    torso, thigh, leg, _ = (shape for shape in env.scene(0).shapes if shape.kind == "bar" and shape.size > 0.3)
    assert [abs(part.dy) / 16 for part in (torso, thigh, leg)] == pytest.approx([0.4, 0.45, 0.5])
    assert [part.x for part in (torso, thigh, leg)] == pytest.approx([32.0] * 3)


def test_the_camera_works_or_names_a_package():
    """In a process of its own: graphics libraries are chosen once, and some print."""
    code = (
        "import sys\nfrom prism_marl import envs\nfrom prism_marl.envs.mamujoco.camera import frames\n"
        "from prism_marl.errors import UserError\n"
        "if 'blind' in sys.argv:\n    import ctypes.util\n    ctypes.util.find_library = lambda name: None\n"
        "env = envs.make_rows('mamujoco/hopper-3x1', 2, 1)\n"
        "try:\n    made = frames('mamujoco/hopper-3x1', [env.snapshot()] * 2, 1, width=64, height=48)\n"
        "    print(len(made), made[0].shape, made[0].dtype, made[0].std() > 5)\n"
        "except UserError as error:\n    print(error)\n"
    )
    free = {name: value for name, value in os.environ.items() if name != "MUJOCO_GL"}

    def answer(*words: str, **setting: str) -> str:
        command = [sys.executable, "-c", code, *words]
        return subprocess.run(command, env=free | setting, capture_output=True, text=True, check=True).stdout.strip()

    assert answer() == "2 (48, 64, 3) uint8 True" or "install libegl1 or libosmesa6" in answer()
    blind = answer("blind")
    assert "install libegl1 or libosmesa6 and set MUJOCO_GL" in blind and "stick figure needs neither" in blind
    assert "\n" not in blind
