"""The command line: finds the command, runs it, and prints every expected error as one sentence."""

import gc
import importlib
import os
import re
import sys

from prism_marl.errors import UserError, nearest, storage_error
from prism_marl.training.compiling import exit_if_compiling

COMMANDS = {
    "train": "train a team, or continue a run that was interrupted",
    "sweep": "train a grid of experiments, on this machine or on a Ray cluster",
    "eval": "evaluate a trained team in greedy episodes; show one as text, GIF or MP4",
    "diversity": "measure how far the agents of a trained team differ in behaviour, weights and gradients",
    "play": "watch a trained team: an example that comes with the package, a run, or an exported policy",
    "export": "write a trained policy as ONNX, safetensors or NPZ, for use without this package",
    "report": "write an HTML page that compares runs: curves, final results, masks, parameters, replays",
    "reproduce": "reproduce a figure or table of the paper: train the missing runs, then draw",
    "footprint": "count the parameters of every sharing method on a task, shared and per agent",
    "list": "list tasks, sharing methods, learners and presets",
    "doctor": "check the installation: versions, devices, optional packages, caches",
    "completion": "print a shell script that completes commands, tasks, methods and options",
    "cache": "show or delete cached compiled programs",
    "demo": "train three teams on a task in which agents must differ, and write their report",
}

INTERRUPTED = 130  # exit code after Ctrl-C or SIGTERM


def main(argv: list[str] | None = None) -> int:
    """Entry point of ``prism-marl``; returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    # Actors of robots run in numpy with small products: more threads would only slow down each other and the physics.
    # numpy reads this variable when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Tracing makes many objects that stay: looking at all of them less often saves a tenth of its time.
    gc.set_threshold(50_000, 20, 50)
    code = _answered(argv)
    if code == INTERRUPTED:
        exit_if_compiling(code)
    return code


def _answered(argv: list[str]) -> int:
    """Run the command; whatever it raises that can be expected becomes one sentence and an exit code."""
    try:
        _refuse_invalid_text(argv)
        return _run(argv)
    except UserError as error:
        return _complain(error)
    except BrokenPipeError:  # the reader of our output has ended, e.g. `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("prism-marl: interrupted", file=sys.stderr)  # noqa: T201
        return INTERRUPTED
    except OSError as error:  # of a file or folder, where the command itself does not expect it
        return _complain(storage_error(error))


def _refuse_invalid_text(argv: list[str]) -> None:
    """Raise for a zero byte, which no file name can have, and for broken characters, which cannot be printed."""
    for number, word in enumerate(argv, 1):
        if "\0" in word or word.encode(errors="ignore").decode() != word:
            raise UserError(f"word {number} of the command ('{word}') has bytes that are not text; type it again")


def _complain(error: UserError) -> int:
    """Print the error as one line; a name that it quotes may have line breaks or be very long."""
    sentence = "".join(sign if sign.isprintable() else " " for sign in str(error))
    sentence = re.sub(r"\S{500,}", lambda long: f"{long[0][:200]}...", sentence)
    print(f"prism-marl: {sentence}", file=sys.stderr)  # noqa: T201
    return error.code


def _run(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(_usage())  # noqa: T201
        return 0
    if argv[0] == "--version":
        from prism_marl import __version__

        print(f"prism-marl {__version__}")  # noqa: T201
        return 0
    if argv[0] not in COMMANDS:
        raise UserError(f"there is no command '{argv[0]}'; {nearest(argv[0], COMMANDS)}")
    # Imported on demand: `prism-marl --help` must not wait for JAX.
    command = importlib.import_module(f"prism_marl.cli.{argv[0]}")
    return command.run(argv[1:])


def _usage() -> str:
    lines = [f"  {name:<10} {about}" for name, about in COMMANDS.items()]
    return "\n".join(
        [
            "usage: prism-marl COMMAND [options]",
            "",
            *lines,
            "",
            "prism-marl COMMAND --help explains a command. Start with: prism-marl train lbf/10x10-3p-3f",
        ]
    )
