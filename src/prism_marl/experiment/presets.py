"""The paper's hyper-parameters, task by task, each field with its source.

Sources: [P] the paper's tables and text, [V] the reference implementation it builds on, [C] our choice where neither
says anything; reasons are in docs/design.md.
"""

from dataclasses import dataclass, field, fields, replace
from typing import Any

from prism_marl import sharing
from prism_marl.envs import describe
from prism_marl.errors import UserError, nearest
from prism_marl.experiment import boards, on_policy
from prism_marl.experiment.experiment import Experiment, Net, Run
from prism_marl.learners import LEARNERS, MATD3, QMix, Settings
from prism_marl.learners import learner as find_learner
from prism_marl.learners.mappo_settings import PPOSettings
from prism_marl.learners.value_settings import ValueSettings
from prism_marl.sharing import Sharing


@dataclass(frozen=True)
class Preset:
    """Defaults of one task family; ``sharing`` holds per-method settings that differ from the method's own, ``tasks``
    settings of the learner that differ from task to task, ``table`` those in which the paper's table differs."""

    learner: Settings
    network: Net
    run: Run
    sharing: dict[str, dict[str, Any]]
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    table: dict[str, Any] = field(default_factory=dict)


_LBF_TABLE: dict[str, Any] = {  # what the paper prints; no method ends above 0.2 with it (docs/results.md)
    "lr": 5e-4,  # [P]
    "td_lambda": 0.6,  # [P] the only explicit statement, though the code base has no TD(lambda) for this task
    "half_loss": True,  # goes with TD(lambda) in the code base that has it
    "target_rate": 0.0,  # [P][V] copies, every ``target_interval`` gradient steps
    "epsilon_anneal": 50_000,  # [P]
}
_LBF_TUNED: dict[str, Any] = {  # values that EPyMARL's authors tuned for this task
    "lr": 3e-4,
    "td_lambda": 0.0,
    "half_loss": False,
    "target_rate": 0.01,
    "epsilon_anneal": 200_000,
}
_LBF = Preset(
    learner=QMix(
        **_LBF_TUNED,  # [C] the default is to learn; presets ``paper`` and ``table`` have the table's rows
        buffer=5_000,  # [P] episodes
        batch=32,  # [P] episodes
        clip=10.0,  # [P]
        gamma=0.99,  # [P]
        target_interval=200,  # [P][V] gradient steps, where the target is copied
        embed=32,  # [P]
        hypernet=64,  # [P]
        episodes_per_update=1,  # [V] one gradient step for each episode
        last_action=False,  # [V] observation and id alone
        time_limit_ends=True,  # [V] the wrapper reports no time limit, so the clock counts as a true end
        standardise_rewards=True,  # [V] on in that code base; docs/results.md says what it changes
    ),
    table=_LBF_TABLE,
    network=Net(width=64),  # [P]
    run=Run(steps=3_000_000, envs=1, eval_every=50_000, eval_episodes=100),  # [P] steps, envs; [V] evaluation
    sharing={
        "prism": {"common": 0.6, "ortho": 0.01, "diversity": 5.0},  # [P]
        "kaleidoscope": {
            "diversity": 0.5,
            "reset_interval": 200_000,
            "reset_ratio": 0.1,
        },  # [V] values of that code base
        "seps": {"clusters": 2, "pretraining": 50_000},  # [P] clusters; [C] steps
        "adaps": {"clusters": 2, "pretraining": 50_000, "ratio": 0.1},  # [P] clusters, ratio; [C] steps
        "snp": {"ratio": 0.1},  # [P]
    },
)

_SMACV2 = Preset(
    learner=QMix(
        epsilon_anneal=100_000,  # [P]
        buffer=5_000,  # [P]
        batch=128,  # [P]
        lr=1e-3,  # [P]
        clip=10.0,  # [P]
        gamma=0.99,  # [P]
        td_lambda=0.6,  # [P]
        target_interval=50,  # [P] 200 episodes = 50 gradient steps at 4 episodes each
        embed=32,  # [P]
        hypernet=64,  # [P]
        episodes_per_update=4,  # [V]
        last_action=True,  # [V]
        time_limit_ends=False,  # [V]
    ),
    network=Net(width=64),  # [P]
    run=Run(
        steps=5_000_000,  # [P]
        envs=4,  # [P]
        eval_every=10_000,  # [V]
        eval_episodes=32,  # [V]
        save_every=25,  # [C] a checkpoint holds the replay buffer, 2 GiB for each seed once that is full
    ),
    sharing={
        "prism": {"common": 0.5, "ortho": 0.01, "diversity": 5.0, "masks": "role"},  # [P]
        "kaleidoscope": {"diversity": 5.0, "masks": "role"},  # [V]
        "seps": {"clusters": 3, "pretraining": 100_000},  # [P] clusters; [C] steps
        "adaps": {"clusters": 3, "pretraining": 100_000, "ratio": 0.1},  # [P] clusters, ratio; [C] steps
        "snp": {"ratio": 0.1},  # [P]
        "cash": {"types": "role"},  # [C] what a unit can do follows from its type
        "gradps": {"clones": 3},  # [V] of its authors' code
    },
)

_MAMUJOCO = Preset(
    learner=MATD3(
        actor_lr=5e-4,  # [P]
        critic_lr=1e-3,  # [P]
        gamma=0.99,  # [P]
        n_step=10,  # [V] where ``tasks`` has no entry: the value of the many-segment swimmer
        batch=1_000,  # [P]
        buffer=1_000_000,  # [P]
        warmup=10_000,  # [V]
        train_interval=50,  # [P]
        updates=50,  # [V] one for each step of all environments
        policy_freq=2,  # [P]
        explore=0.1,  # [P]
        target_noise=0.2,  # [P]
        target_clip=0.5,  # [P]
        tau=0.005,  # [P]
        n_critics=5,  # [P]
        critic_width=256,  # [P]
        # [C] The class with five critics exists in Kaleidoscope's code alone, where critics have LayerNorm, and the
        # paper's counts include it. Given to one method only, it decides every comparison (docs/results.md).
        critic_layernorm=True,
        actor_q="mean",  # [V] of Kaleidoscope, which the number of critics comes from
        repeat_shared_polyak=True,  # [V] a shared target actor is averaged once for each agent
        standardise_inputs=True,  # [V]
    ),
    table={"warmup_on_top": True},  # [V] the reference does not count its random steps
    network=Net(width=256),  # [P]
    run=Run(steps=10_000_000, envs=10, eval_every=100_000, eval_episodes=40),  # [P] steps; [V] the rest
    sharing={
        "prism": {"common": 0.5, "ortho": 0.01, "diversity": 0.1},  # [P]
        "kaleidoscope": {"diversity": 0.1, "reset_ratio": 0.5, "critic_diversity": 0.1},  # [V]
        "seps": {"clusters": 2, "pretraining": 200_000},  # [P] clusters; [C] steps
        "adaps": {"clusters": 2, "pretraining": 200_000, "ratio": 0.1},  # [P] clusters, ratio; [C] steps
        "snp": {"ratio": 0.1},  # [P]
    },
    tasks={  # [V] tuned for each robot; the paper's table prints Ant's pair for all: preset paper_table
        "mamujoco/ant-4x2": {"n_step": 5},
        "mamujoco/halfcheetah-2x3": {"n_step": 10},
        "mamujoco/hopper-3x1": {"n_step": 5},
        "mamujoco/walker2d-2x3": {"n_step": 20, "policy_freq": 8},
        "mamujoco/walker2d-6x1": {"n_step": 25},
        "mamujoco/swimmer-10x2": {"n_step": 10},
    },
)

_REACH = Preset(  # [C] ten steps: learn fast
    learner=replace(
        _MAMUJOCO.learner, n_step=3, batch=128, buffer=20_000, warmup=1_000, critic_width=64, tau=0.02, gamma=0.9
    ),
    network=Net(width=64),
    run=Run(steps=20_000, envs=10, eval_every=5_000, eval_episodes=20),
    sharing=_MAMUJOCO.sharing | {"seps": {"pretraining": 1_000}, "adaps": {"pretraining": 1_000}},
)

# [C] Values for games of one's own are not tuned, and those of a single step need no tuning.
_UNTUNED = replace(_LBF, learner=replace(_LBF.learner, **_LBF_TABLE), table={})

_ROLES = Preset(  # [C] a game of one step: learn fast, explore enough
    learner=replace(_UNTUNED.learner, epsilon_anneal=2_000, lr=3e-3, buffer=512, batch=64, target_interval=50),
    network=Net(width=32),
    run=Run(steps=6_000, envs=8, eval_every=2_000, eval_episodes=8),
    sharing={
        # Any number of steps does: no data makes two agents alike here, and k-means splits any unequal codes in two.
        "seps": {"pretraining": 512},
        "adaps": {"pretraining": 512},
        "lorasa": {"switch_step": 3_000},  # both phases
        "gradps": {"interval": 500},  # several changes
        "hetdps": {"interval": 1_500},
    },
)

_FAMILIES = {
    "lbf": _LBF,
    "lbforaging": replace(_LBF, run=replace(_LBF.run, patience=0.0)),  # [C] a known package: no process of its own
    "skirmish": _SMACV2,
    "smacv2": _SMACV2,
    "jaxmarl": _SMACV2,  # [C] SMAX is why it is there
    "mamujoco": _MAMUJOCO,
    "roles": _ROLES,
    "groups": _ROLES,
    "matrix": _ROLES,
    "pass": _ROLES,
    **boards.presets(_UNTUNED, _LBF_TUNED),
    "reach": _REACH,
    "reach_jax": _REACH,
}
_DEFAULTS = {"qmix": _UNTUNED, "matd3": _MAMUJOCO}  # of a learner on tasks whose family has no values for it

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    # [P] the values of the paper's table where the default has others, which is on LBF. Of robots the reference's count
    # of steps, with its random ones on top. Elsewhere the default is it.
    "paper": {},
    # [P] as ``paper``, and only what the table prints: rewards as they are.
    "table": {"standardise_rewards": False},
    # [V] as ``paper``, with the learner of the code base whose table the paper prints for LBF: one-step target, squared
    # error without the half, standardised rewards. A control, because the TD(lambda) rows may be a slip.
    "epymarl": {"td_lambda": 0.0, "half_loss": False, "standardise_rewards": True},
    # The default of LBF, for every task that is trained with QMIX.
    "epymarl_tuned": {**_LBF_TUNED, "standardise_rewards": True},
    # [C] as ``paper``, with observations in [-1, 1]: raw cell numbers start values far above any return.
    "scaled": {"scale_inputs": True},
    # [P] robots with the one pair that the table prints, instead of the values tuned for each.
    "paper_table": {"n_step": 5, "policy_freq": 2, "warmup_on_top": True},
    # [C] robots whose critics have no LayerNorm but for Kaleidoscope's: what was the default before.
    "plain_critics": {"critic_layernorm": False, "warmup_on_top": True},
}
_FROM_THE_TABLE = ("paper", "table", "epymarl", "scaled")  # these begin with the table's rows


def preset(task: str, method: str, variant: str = "default", learner: str | None = None) -> Experiment:
    """The experiment for this task and method, or the nearest to it with another learner: the paper's, but where its
    table keeps a team from learning."""
    describe(task)  # a wrong task name is the first thing to complain about
    word = variant.replace("-", "_")
    if word not in VARIANTS:
        raise UserError(f"preset: there is no '{variant}'; {nearest(word, VARIANTS)}")
    entry, changes = _entry(task, learner), VARIANTS[word]
    known = {field.name for field in fields(entry.learner)}
    if not changes.keys() <= known:
        fitting = ", ".join(name for name, other in VARIANTS.items() if other.keys() <= known)
        algorithm = entry.learner.algorithm
        raise UserError(f"preset: '{variant}' is not for '{task}', which is trained with {algorithm}; try {fitting}")
    printed = {name: value for name, value in entry.table.items() if word in _FROM_THE_TABLE and name in known}
    whole = task.partition("-damaged")[0]  # a damaged robot has the values of the whole one
    values = entry.tasks.get(whole, {}) | printed | changes
    settings: Any = replace(entry.learner, **values)  # pyright: ignore[reportArgumentType]
    return Experiment(task, method_settings(task, method, learner), settings, entry.network, entry.run)


def method_settings(task: str, method: str, learner: str | None = None) -> Sharing:
    """A method's settings for a task."""
    cls = sharing.method(method)
    settings = dict(_entry(task, learner).sharing.get(cls.method, {}))
    if "clusters" in settings:  # a small team cannot fill them all
        settings["clusters"] = min(settings["clusters"], describe(task).agents)
    return cls(**settings)  # pyright: ignore[reportCallIssue]


def _entry(task: str, learner: str | None = None) -> Preset:
    """The preset of a family and a learner, by default the one that the family's benchmark uses. A family without one
    starts from that of a benchmark with the same kind of actions."""
    found = _FAMILIES.get(task.partition("/")[0])
    if found is None:
        found = _MAMUJOCO if describe(task).kind == "continuous" else _UNTUNED
    if learner is None:
        return found
    wanted = find_learner(learner)
    if isinstance(found.learner, wanted):
        return found
    if issubclass(wanted, PPOSettings):
        return _on_policy(task, found, wanted)
    if issubclass(wanted, ValueSettings):  # learners of action values share their settings with QMIX
        base = found if isinstance(found.learner, ValueSettings) else _UNTUNED
        return replace(base, learner=_shared_settings(base.learner, wanted))
    name = next(name for name, known in LEARNERS.items() if known is wanted)
    return _DEFAULTS[name] if name in _DEFAULTS else replace(found, learner=wanted(), tasks={}, table={})  # pyright: ignore


def _on_policy(task: str, found: Preset, wanted: type[Settings]) -> Preset:
    """A family's preset with the values of learning on-policy, which MAPPO and IPPO share."""
    values = on_policy.values_of(task.partition("/")[0], describe(task).kind)
    names = found.sharing.keys() | values.sharing.keys() | on_policy.DIVERSITY.keys()
    parts = (found.sharing, on_policy.DIVERSITY, values.sharing)
    return Preset(
        learner=_shared_settings(values.learner, wanted),
        network=Net(width=values.width),
        run=replace(found.run, **values.run),
        sharing={name: {k: v for part in parts for k, v in part.get(name, {}).items()} for name in names},
        tasks=values.tasks,
    )


def _shared_settings(source: Settings, wanted: type[Settings]) -> Settings:
    """Another learner's settings with all values that it has in common with this one."""
    names = {field.name for field in fields(wanted)} - {"algorithm"}  # pyright: ignore[reportArgumentType]
    taken = {field.name: getattr(source, field.name) for field in fields(source) if field.name in names}  # pyright: ignore
    return wanted(**taken)
