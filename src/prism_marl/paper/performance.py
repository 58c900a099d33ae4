"""Performance of eight sharing methods: foraging, battles, robots."""

from prism_marl.paper.panels import curve_result
from prism_marl.paper.target import Curve, Target, as_reference, battle, method_curve

METHODS = ("nops", "fups", "fups_id", "seps", "snp", "adaps", "kaleidoscope", "prism")
MAIN = ("nops", "fups_id", "prism")  # at the smallest scale: no sharing, full sharing, ours
ROBOTS = ("ant-4x2", "halfcheetah-2x3", "hopper-3x1", "walker2d-2x3", "walker2d-6x1", "swimmer-10x2")


def compare(tasks: list[str]) -> tuple[Curve, ...]:
    """All methods on each task; Prism is the reference."""
    made = [method_curve(task, method, essential=method in MAIN) for task in tasks for method in METHODS]
    return tuple(as_reference(curve) if curve.experiment.sharing.method == "prism" else curve for curve in made)


TARGETS = (
    Target(
        "fig-lbf",
        "performance on Level-Based Foraging (Figure 'homogeneous', first panel)",
        curve_result,
        lambda real: compare(["lbf/10x10-3p-3f"]),
    ),
    Target(
        "fig-smacv2",
        "performance on three SMACv2 maps (Figure 'homogeneous', other panels)",
        curve_result,
        lambda real: compare([battle(race, real) for race in ("terran", "protoss", "zerg")]),
    ),
    Target(
        "fig-mamujoco",
        "performance on six robots (Figure 'heterogeneous')",
        curve_result,
        lambda real: compare([f"mamujoco/{robot}" for robot in ROBOTS]),
    ),
)
