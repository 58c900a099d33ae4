"""``prism-marl reproduce``: trains the experiments of a figure or table of the paper, and writes its files."""

import argparse
import os
from pathlib import Path

from rich.table import Table

from prism_marl.cli.arguments import Arguments, some_path
from prism_marl.cli.executing import add_executor_options, chosen_executor, conclude
from prism_marl.cli.screen import counted, show, table
from prism_marl.errors import UserError
from prism_marl.paper.numbers import write_result
from prism_marl.paper.plan import Estimate, Plan, in_words, make_plan, size_in_words
from prism_marl.paper.registry import TARGETS, target_named
from prism_marl.paper.scales import SCALES, Scale, at_scale, scale_named
from prism_marl.paper.target import Curve, Target, gather
from prism_marl.reports.finals import final_return
from prism_marl.sweeps.executors import Executor
from prism_marl.sweeps.grid import run_sweep
from prism_marl.sweeps.live_view import SweepView


def run(argv: list[str]) -> int:
    """Plan, train what is not finished, plot. Returns 1 if an experiment failed."""
    options = _parse(argv)
    if options.target is None:
        _list_targets()
        return 0
    target, scale = target_named(options.target), scale_named(options.scale)
    executor = chosen_executor(options)
    curves = at_scale(target.curves(options.real), scale)
    if not curves and options.plan:
        show(f"{target.name} is counted, which takes seconds; nothing is trained.")
        return 0
    if not curves or options.draw_only:
        _plot(target, scale, curves, options.out)
        return 0
    plan = make_plan(target.sweep(curves), options.out)
    if not options.plan:
        _refuse_if_nothing_can_run(target, plan)
    _show_plan(target, scale, curves, plan)
    if options.plan:
        return 0
    if scale.essential:  # runs are so short that compiling takes most of the time; workers inherit this variable
        os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    code = _train(target, curves, plan, options, executor)
    _plot(target, scale, curves, options.out)
    return code


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = Arguments(
        "reproduce",
        "Make a figure or table of the paper: train what is not finished yet, then draw. Without a target: list them.",
        epilog="Scales: " + "; ".join(f"{scale.name}: {scale.about}" for scale in SCALES.values()),
    )
    parser.add_argument("target", nargs="?", help="for example fig-lbf")
    parser.add_argument("--scale", default="laptop", help="smoke, laptop or paper (default: laptop)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--plan", action="store_true", help="only print the experiments with memory and time")
    only.add_argument("--draw-only", action="store_true", help="train nothing; draw from the finished runs")
    parser.add_argument("--real", action="store_true", help="SMACv2 in StarCraft II (smacv2/) instead of skirmish/")
    out = Path("runs/reproduce")
    parser.add_argument("--out", type=some_path, default=out, help=f"folder (default: {out})")
    add_executor_options(parser)
    return parser.parse_strictly(argv)


def _list_targets() -> None:
    rows = table("Targets", ("name",), text=("what it is in the paper",))
    for target in TARGETS.values():
        rows.add_row(target.name, target.about)
    scales = table("\nScales", ("name",), text=("what it does",))
    for scale in SCALES.values():
        scales.add_row(scale.name, scale.about)
    show(rows, scales, "\nprism-marl reproduce TARGET --scale SCALE --plan says what would run.")


def _show_plan(target: Target, scale: Scale, curves: tuple[Curve, ...], plan: Plan) -> None:
    rows = table(f"{target.name} at scale {scale.name}", ("panel", "line"), ("steps x seeds", "memory", "time"), ("",))
    first = {curve.experiment: curve for curve in reversed(curves)}  # the first curve of each experiment
    waiting = plan.waiting
    for estimate in plan.estimates:
        experiment = estimate.experiment
        rows.add_row(
            first[experiment].panel,
            first[experiment].label,
            f"{experiment.run.steps:,} x {experiment.run.seeds}",
            size_in_words(estimate.bytes),
            in_words(estimate.seconds) if estimate in waiting else "",
            f"{estimate.state}; {estimate.source}" if estimate in waiting else _why_not_waiting(estimate),
        )
    parts: list[Table | str] = [rows, _total(plan)]
    parts += [f"{task} cannot run here and is left out: {why}" for task, why in plan.impossible.items()]
    show(*parts)


def _why_not_waiting(estimate: Estimate) -> str:
    return "finished" if estimate.state == "finished" else "cannot run here"


def _total(plan: Plan) -> str:
    waiting, done = len(plan.waiting), sum(estimate.state == "finished" for estimate in plan.estimates)
    biggest = max((estimate.bytes for estimate in plan.waiting), default=0)
    text = f"{counted(waiting, 'experiment')} to run, {done} finished before."
    if waiting:
        text += f" Memory: at most {size_in_words(biggest)} for one, and what compiled updates need besides."
        known = waiting - plan.unknown
        text += f" Time one after the other: about {in_words(plan.seconds)}" if known else " Time: not known"
        text += f" for {known}, not known for {plan.unknown}." if known and plan.unknown else "."
    return text


def _refuse_if_nothing_can_run(target: Target, plan: Plan) -> None:
    if plan.impossible and all(estimate.experiment.task in plan.impossible for estimate in plan.estimates):
        task, why = next(iter(plan.impossible.items()))
        raise UserError(f"{target.name}: {task} cannot run here ({why})", code=1)


def _train(
    target: Target, curves: tuple[Curve, ...], plan: Plan, options: argparse.Namespace, executor: Executor
) -> int:
    able = [curve for curve in curves if curve.experiment.task not in plan.impossible]
    sweep = target.sweep(able)
    with SweepView(sweep.experiments, options.out, final=final_return) as view:
        outcome = run_sweep(sweep, options.out, executor, on_event=view.on_event)
    return conclude(outcome, sweep, options.out)


def _plot(target: Target, scale: Scale, curves: tuple[Curve, ...], out: Path) -> None:
    gathered = gather(curves, out)
    stem = out / "figures" / (f"{target.name}-{scale.name}" if curves else target.name)
    facts = {"target": target.name, "scale": scale.name if curves else None, "missing": list(gathered.missing)}
    written = write_result(target.plot(gathered), stem, f"{target.name}: {target.about}", facts)
    show(*gathered.missing, *(str(path) for path in written))
