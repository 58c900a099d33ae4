"""``prism-marl export``: a trained policy for use without this package."""

import argparse

from prism_marl.cli.arguments import Arguments, some_path, whole
from prism_marl.cli.screen import show
from prism_marl.cli.trust import add_trusted_modules, trusted_experiment
from prism_marl.policies.export import ENDINGS, Exported
from prism_marl.policies.policy import Policy
from prism_marl.runs.exporting import export_run
from prism_marl.runs.machine import configure_jax, full_memory_explained


def run(argv: list[str]) -> int:
    """Export the newest checkpoint of a run folder."""
    parser = Arguments("export", "Write the trained policy of a run to a file, and its description to FILE.json.")
    parser.add_argument("run", type=some_path, help="run folder")
    parser.add_argument(
        "--format", choices=list(ENDINGS), help="file format (default: by the suffix of --out, or onnx)"
    )
    parser.add_argument("--out", type=some_path, help="file to write (default: policy-seed-N in the run folder)")
    parser.add_argument("--seed", type=whole, help="which seed's policy (default: the first)")
    who = parser.add_mutually_exclusive_group()
    who.add_argument("--agent", type=whole, help="only this agent, with its own matrices; agents count from 0")
    who.add_argument("--team", action="store_true", help="the whole team in one file (the default)")
    parser.add_argument(
        "--factored", action="store_true", help="store shared singular vectors once, in layers in which this is smaller"
    )
    add_trusted_modules(parser)
    found = parser.parse_strictly(argv)
    trusted_experiment(found.run, found.module)
    configure_jax()
    with full_memory_explained():
        written, policy, sizes = export_run(
            found.run, found.out, format=found.format, seed=found.seed, agent=found.agent, factored=found.factored
        )
    show(*_sentences(written, policy, sizes, found))
    return 0


def _sentences(written: Exported, policy: Policy, sizes: dict[str, int], found: argparse.Namespace) -> list[str]:
    """What was written, in a few lines."""
    c = policy.contract
    who = f"{c.agents} agents" if c.agent is None else f"agent {c.agent} of {c.agents}"
    state = "the end of the run" if c.finished else "a run that is not finished"
    lines = [
        f"{written.path}: {c.method} on {c.task}, {who}, seed {c.seed}",
        f"from checkpoint {c.checkpoint:08d} at step {c.steps:,}, {state}",
        f"{written.parameters:,} parameters, {written.bytes:,} bytes, "
        f"{written.multiply_adds:,} multiply-adds for an action of one agent",
        f"{written.latency.microseconds:,.1f} microseconds a call (batch 1, one core, {written.latency.runtime})",
        f"compared with the trained policy by {written.checked}; described in {written.contract_path.name}",
    ]
    dense, factored = sizes["dense"], sizes["factored"]
    if dense == factored:
        if found.factored:
            lines.append("--factored: no layer is smaller with shared factors, so all are plain matrices")
    else:
        lines.append(
            f"with shared factors {factored:,} bytes of numbers, as plain matrices {dense:,}: "
            f"the factors are smaller{'' if found.factored else ' (--factored)'}"
        )
    return lines
