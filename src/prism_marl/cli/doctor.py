"""``prism-marl doctor``: what is installed, what this machine can do, and the command for whatever is missing."""

import os
import platform
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from prism_marl import __version__
from prism_marl.cli.arguments import Arguments
from prism_marl.cli.requirements import PACKAGE, Requirement, extras_of, requirements_of
from prism_marl.cli.screen import counted, show, show_json, table
from prism_marl.envs.mamujoco.camera import graphics_packages
from prism_marl.errors import UserError, install_command
from prism_marl.render.mp4 import find_ffmpeg
from prism_marl.runs.machine import cache_folder, configure_jax
from prism_marl.storage.cache import Cache, cache_limit, folders_of

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
DEVELOPMENT = ("dev",)  # extras for work on this package itself

State = Literal["ok", "missing", "broken"]


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, how it is, and what to do about it. Only what is ``broken`` keeps runs from
    working; what is ``missing`` serves some of them."""

    name: str
    state: State
    about: str
    remedy: str = ""


def run(argv: list[str]) -> int:
    """Look at everything; returns 1 if something is broken that every run needs."""
    parser = Arguments(
        "doctor",
        "Show versions, devices, extras and caches, and the command for whatever is missing. Nothing is downloaded. "
        "Exit code 1 if something that every run needs is broken.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    found = parser.parse_strictly(argv)
    sections: dict[str, Callable[[], Iterable[Finding]]] = {
        "Versions": versions,
        "Devices": devices,
        "Extras": extras,
        "Programs and libraries": programs,
        "Cached programs": caches,
    }
    findings = {name: list(look()) for name, look in sections.items()}
    broken = [finding for section in findings.values() for finding in section if finding.state == "broken"]
    if found.json:
        show_json({name: [asdict(finding) for finding in section] for name, section in findings.items()})
    else:
        _show(findings, len(broken))
    return 1 if broken else 0


def _show(findings: dict[str, list[Finding]], broken: int) -> None:
    for number, (title, section) in enumerate(findings.items()):
        rows = table(f"\n{title}" if number else title, ("what", "state"), text=("",))
        for finding in section:
            about = finding.about + (f"\n{finding.remedy}" if finding.remedy else "")
            rows.add_row(finding.name, finding.state, about)
        show(rows)
    show(
        "",
        f"{counted(broken, 'thing')} that every run needs is broken."
        if broken
        else "Everything that a run needs works.",
    )


def versions() -> Iterable[Finding]:
    """This package, Python, and the packages that every run needs."""
    yield Finding(PACKAGE, "ok", f"{__version__}, {Path(__file__).parents[1]}")
    yield Finding("python", "ok", f"{platform.python_version()}, {platform.system()} {platform.machine()}")
    needed = requirements_of(PACKAGE)
    if needed is None:
        command = install_command("-e", ".")
        yield Finding("packages", "missing", f"{PACKAGE} is not installed, so what it needs is not known", command)
    for requirement in needed or ():
        yield _required(requirement)


def _required(requirement: Requirement) -> Finding:
    if requirement.fits:
        return Finding(requirement.name, "ok", str(requirement.version))
    held = "not installed" if requirement.version is None else f"{requirement.version}, needed is {requirement.wanted}"
    return Finding(requirement.name, "broken", held, install_command(f"{requirement.name}{requirement.wanted}"))


def devices() -> Iterable[Finding]:
    """What JAX computes on; each device multiplies two matrices."""
    try:
        import jax
        import jax.numpy as jnp

        configure_jax()
        for device in jax.devices():
            ones = jax.device_put(jnp.ones((64, 64)), device)
            right = float((ones @ ones).sum()) == 64**3
            name = f"{device.platform} {device.id}"
            yield Finding(name, "ok" if right else "broken", device.device_kind if right else "computes wrong numbers")
        if jax.default_backend() == "cpu" and shutil.which("nvidia-smi"):
            about = "nvidia-smi is installed, but JAX computes on the CPU"
            yield Finding("gpu", "missing", about, install_command(extra="cuda"))
    except Exception as error:  # a driver or a broken package may raise anything
        reason = str(error).partition("\n")[0]
        yield Finding("jax", "broken", f"cannot compute ({type(error).__name__}: {reason})", install_command("jax"))


def extras() -> Iterable[Finding]:
    """Packages that some tasks, formats or trackers need."""
    for extra in extras_of(PACKAGE):
        if extra in DEVELOPMENT:
            continue
        needed = requirements_of(PACKAGE, extra) or []
        lacking = [part for part in needed if not part.fits]
        held = ", ".join(f"{part.name} {part.version or 'missing'}" for part in needed)
        wrong = [f"{part.name} must be {part.wanted}" for part in lacking if part.version is not None]
        about = "; ".join([held, *wrong])
        yield Finding(extra, "missing" if lacking else "ok", about, install_command(extra=extra) if lacking else "")


def programs() -> Iterable[Finding]:
    """Programs beside Python: for videos, for MuJoCo's renderer, for the tests of the report."""
    try:
        yield Finding("ffmpeg", "ok", f"{find_ffmpeg()}: videos as MP4")
    except UserError:
        command = f"install ffmpeg, or {install_command(extra='video')}"
        yield Finding("ffmpeg", "missing", "videos as MP4; GIFs work without it", command)
    if held := graphics_packages():
        chosen = f", MUJOCO_GL={os.environ['MUJOCO_GL']}" if os.environ.get("MUJOCO_GL") else ""
        yield Finding("graphics", "ok", f"{', '.join(held)}{chosen}: MuJoCo's renderer (--camera)")
    else:
        about = "MuJoCo's renderer (--camera); stick figures work without it"
        yield Finding("graphics", "missing", about, "apt-get install libegl1")
    browser = os.environ.get("CHROME") or next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser:
        yield Finding("browser", "ok", f"{browser}: for tests of the report")
    else:
        about = "only the tests of the report need Chromium or Chrome; any browser shows a report"
        yield Finding("browser", "missing", about, "apt-get install chromium")


def caches() -> Iterable[Finding]:
    """The folders of compiled programs."""
    folder = cache_folder()
    if folder is None:
        yield Finding("cache", "missing", "no programs are kept: PRISM_MARL_CACHE is empty or names a bucket")
        return
    for name, place in zip(("machine code", "lowered programs"), folders_of(folder), strict=True):
        files = Cache(place).files()
        held, limit = sum(size for _, size, _ in files) / 2**20, cache_limit() // 2**20
        yield Finding(name, "ok", f"{place}: {counted(len(files), 'file')}, {held:.1f} of {limit} MiB")
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not os.access(above, os.W_OK):
        yield Finding(
            "folder", "missing", f"{above} cannot be written, so every start compiles", "set PRISM_MARL_CACHE"
        )
