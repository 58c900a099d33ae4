"""Values of QMIX and its kin for games on a board, the warehouse and particles: [C], all of our own choosing."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from prism_marl.experiment.experiment import Net, Run

if TYPE_CHECKING:
    from prism_marl.experiment.presets import Preset


def presets(base: "Preset", tuned: dict[str, Any]) -> dict[str, "Preset"]:
    """The presets by family, from that of games without values of their own and the tuned values of LBF."""
    learner: Any = replace(
        base.learner,
        **{name: tuned[name] for name in ("td_lambda", "half_loss", "target_rate")},
        lr=1e-3,
        epsilon_anneal=50_000,
        buffer=1_000,
        scale_inputs=True,
        standardise_rewards=False,
    )
    board = replace(  # 15 to 40 steps with everything in view
        base,
        learner=learner,
        network=Net(width=64),
        run=Run(steps=200_000, envs=8, eval_every=20_000, eval_episodes=64),
        sharing=base.sharing | {"seps": {"pretraining": 10_000}, "adaps": {"pretraining": 10_000}},
        tasks={"simple_spread/64": {"buffer": 200}},  # half a megabyte each
    )
    warehouse = replace(  # long episodes in which little is paid at first
        board,
        learner=replace(learner, epsilon_anneal=200_000, buffer=500, batch=16),
        run=replace(board.run, steps=1_000_000, eval_every=100_000, eval_episodes=32),
    )
    particles = replace(  # a known package: no process of its own; places are real numbers near 1, rewards are not
        board,
        learner=replace(learner, scale_inputs=False, standardise_rewards=True),
        run=replace(board.run, patience=0.0),
    )
    games = dict.fromkeys(("dispersion", "navigation", "simple_spread", "predator_prey"), board)
    return games | {"warehouse": warehouse, "mpe2": particles}
