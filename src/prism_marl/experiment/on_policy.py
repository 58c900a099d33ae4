"""Values of MAPPO and IPPO for each family of tasks, each with its source.

Sources: [V] the implementations whose values others use: the authors' own ("on-policy", for battles) and HARL's tuned
ones for robots; [C] our choice where neither says anything.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from prism_marl.learners import MAPPO


@dataclass(frozen=True)
class OnPolicy:
    """What differs from a family's preset when it is learned on-policy."""

    learner: MAPPO
    width: int
    run: dict[str, Any]
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)
    sharing: dict[str, dict[str, Any]] = field(default_factory=dict)


# [C] The adaptive coefficient goes by the size of the surrogate, which does not fall as a policy gets better, as errors
# of values do: with the paper's 5.0 the term would drown the task's gradient of masks for good.
DIVERSITY: dict[str, dict[str, Any]] = {"prism": {"diversity": 0.1}, "kaleidoscope": {"diversity": 0.1}}

BATTLES = OnPolicy(
    learner=MAPPO(
        length=400,  # [V]
        epochs=5,  # [V]
        minibatches=1,  # [V]
        recurrent=True,  # [V]
        chunk=10,  # [V]
        behind_gru=1,  # [C] none there; ours has at least one
        actor_lr=5e-4,  # [V]
        critic_lr=5e-4,  # [V]
        gamma=0.99,  # [V]
        gae_lambda=0.95,  # [V]
        ratio_clip=0.2,  # [V]
        value_clip=0.2,  # [V]
        entropy=0.01,  # [V]
        huber=10.0,  # [V]
        value_norm=True,  # [V]
        advantages="batch",  # [V]
        grad_clip=10.0,  # [V]
        standardise_inputs=True,  # [V] a LayerNorm in front; its scale and shift are part of the next layer here
    ),
    width=64,  # [V]
    run={"envs": 8},  # [V]
)

ROBOTS = OnPolicy(
    learner=MAPPO(
        length=200,  # [V]
        epochs=5,  # [V] where ``tasks`` has no entry: Ant's
        minibatches=1,  # [V]
        recurrent=False,  # [V]
        actor_lr=5e-4,  # [V]
        critic_lr=5e-4,  # [V]
        gamma=0.99,  # [V]
        gae_lambda=0.95,  # [V]
        ratio_clip=0.1,  # [V]
        value_clip=0.1,  # [V] the same number as above
        entropy=0.0,  # [V]
        huber=10.0,  # [V]
        value_norm=True,  # [V]
        advantages="batch",  # [V]
        grad_clip=10.0,  # [V]
        standardise_inputs=True,  # [V] a LayerNorm in front
    ),
    width=128,  # [V] of three hidden layers; ours has two
    run={"envs": 20},  # [V]
    tasks={  # [V] tuned for each robot
        "mamujoco/halfcheetah-2x3": {"ratio_clip": 0.05, "value_clip": 0.05, "epochs": 15, "entropy": 0.01},
        "mamujoco/hopper-3x1": {"ratio_clip": 0.05, "value_clip": 0.05, "epochs": 10, "lr_decay": True},
        "mamujoco/walker2d-2x3": {
            "ratio_clip": 0.05,
            "value_clip": 0.05,
            "actor_lr": 1e-3,
            "critic_lr": 1e-3,
            "minibatches": 2,
            "lr_decay": True,
        },
        "mamujoco/walker2d-6x1": {"entropy": 0.01},
    },
)

LBF = OnPolicy(  # [C] the field is in full view, so nothing need be remembered
    learner=MAPPO(
        length=32,
        epochs=4,
        minibatches=4,
        recurrent=False,
        actor_lr=1e-3,
        critic_lr=1e-3,
        scale_inputs=True,
        time_limit_ends=True,
    ),
    width=64,
    run={"envs": 16},
)

# [C] Values for games of one's own are not tuned; such a game may need memory.
GAMES = OnPolicy(learner=MAPPO(length=64, epochs=4, minibatches=2, standardise_inputs=True), width=64, run={"envs": 8})

ROLES = OnPolicy(  # [C] a game of one step: learn fast
    learner=MAPPO(
        length=4,
        epochs=4,
        minibatches=4,
        recurrent=False,
        actor_lr=3e-3,
        critic_lr=3e-3,
        value_clip=0.0,
    ),
    width=32,
    run={"envs": 32, "steps": 40_000, "eval_every": 10_000},
    sharing={
        "lorasa": {"switch_step": 20_000},
        "gradps": {"interval": 4_000},
        "hetdps": {"interval": 10_000},
    },  # several phases
)

# [C] Two that crowd into one turn must go on trying others; with an entropy of 0.01 a team stays at half for long.
PASS = replace(ROLES, learner=replace(ROLES.learner, entropy=0.1))

ORCHARD = OnPolicy(  # [C] everything is in view, and episodes are short
    learner=MAPPO(
        length=16,
        epochs=4,
        minibatches=4,
        recurrent=False,
        actor_lr=2e-3,
        critic_lr=2e-3,
        scale_inputs=True,
        time_limit_ends=True,
    ),
    width=64,
    run={"envs": 64, "steps": 300_000, "eval_every": 30_000, "eval_episodes": 64},
)

# [C] Targets are found by chance at first: with less entropy a team stops looking for them, and with a longer view it
# does not see which step paid.
BOARD = replace(
    ORCHARD,
    learner=replace(ORCHARD.learner, entropy=0.02, gamma=0.95),
    run=ORCHARD.run | {"steps": 1_000_000, "eval_every": 100_000},
)

WAREHOUSE = replace(  # [C] an errand takes tens of steps, and what is around a corner has to be remembered or learned
    BOARD,
    learner=replace(BOARD.learner, length=50, gamma=0.98),
    run={"envs": 64, "steps": 10_000_000, "eval_every": 500_000, "eval_episodes": 32},
)

REACH = OnPolicy(  # [C] ten steps: learn fast
    learner=MAPPO(
        length=20, epochs=8, minibatches=4, recurrent=False, actor_lr=1e-3, critic_lr=1e-3, gamma=0.9, entropy=0.0
    ),
    width=64,
    run={"envs": 20, "steps": 100_000, "eval_every": 20_000},
)

FAMILIES: dict[str, OnPolicy] = {
    "lbf": LBF,
    "lbforaging": LBF,
    "skirmish": BATTLES,
    "smacv2": BATTLES,
    "jaxmarl": BATTLES,
    "mamujoco": ROBOTS,
    "roles": ROLES,
    "groups": ROLES,
    "matrix": ROLES,
    "pass": PASS,
    "orchard": ORCHARD,
    "dispersion": BOARD,
    "navigation": BOARD,
    "simple_spread": BOARD,
    "predator_prey": BOARD,
    "warehouse": WAREHOUSE,
    "reach": REACH,
    "reach_jax": REACH,
}


def values_of(family: str, kind: str) -> OnPolicy:
    """The values of a family, or of a task with the same kind of actions."""
    return FAMILIES.get(family, ROBOTS if kind == "continuous" else GAMES)
