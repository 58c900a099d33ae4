"""``prism-marl cache``: what the programs that are kept between starts take, and how to make them less."""

from pathlib import Path

from prism_marl.cli.arguments import Arguments, whole
from prism_marl.cli.screen import show, table
from prism_marl.errors import UserError
from prism_marl.runs.machine import cache_folder
from prism_marl.storage.cache import LIMIT_VARIABLE, Cache, cache_limit, folders_of

KINDS = ("machine code of XLA", "lowered programs")


def run(argv: list[str]) -> int:
    """Show the cache, and shrink it if asked to."""
    parser = Arguments(
        "cache",
        "Show the cache of compiled programs. Each of its folders has a size limit; the least recently used programs "
        "are deleted first. "
        f"The limit is {cache_limit() // 2**20} MiB; the variable {LIMIT_VARIABLE} sets another.",
    )
    parser.add_argument(
        "--shrink",
        type=whole,
        metavar="MIB",
        help="delete least recently used programs until each folder has at most this size",
    )
    parser.add_argument(
        "--clear", action="store_true", help="delete all cached programs; the next start compiles again"
    )
    found = parser.parse_strictly(argv)
    if found.shrink is not None and (found.clear or not 0 <= found.shrink < 2**30):
        raise UserError("--shrink: give a number of MiB, and leave out --clear")
    folder = cache_folder()
    if folder is None:
        show("No programs are kept: PRISM_MARL_CACHE is empty, or names a bucket that JAX itself looks after.")
        return 0
    limit = 0 if found.clear else None if found.shrink is None else found.shrink * 2**20
    _show(folder, limit)
    return 0


def _show(folder: Path, limit: int | None) -> None:
    rows = table(f"Programs kept in {folder}", ("kind",), ("files", "MiB", "deleted now"))
    for kind, place in zip(KINDS, folders_of(folder), strict=True):
        cache = Cache(place)
        gone = 0 if limit is None else cache.shrink(limit)
        files = cache.files()
        held = sum(size for _, size, _ in files) / 2**20
        rows.add_row(kind, f"{len(files)}", f"{held:.1f}", f"{gone}")
    show(rows)
