"""Builds the wheel and the source archive, and tries them as a stranger would: each Python that is found gets a clean
environment outside the repository, the wheel, and every command that a first hour needs.

    make wheel                                    # dist/, and a table of what was tried
    python release/check.py --pythons 3.12 --json release.json

Nothing is uploaded. Packages come from wherever pip is told to look.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ("3.11", "3.12", "3.13")
WITHOUT = "not installed: "  # after which a message names the command that installs it
SMALL = ("--steps", "1000")


@dataclass
class Try:
    """What was tried in one environment."""

    python: str
    packages: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failed: str = ""


class FailedError(Exception):
    """A command did not end as it must."""


def main() -> int:
    parser = argparse.ArgumentParser(description="Build the wheel and the source archive, and try them.")
    parser.add_argument("--pythons", nargs="+", default=list(VERSIONS), help="versions to try, of those installed")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--quick", action="store_true", help="install no extras")
    found = parser.parse_args()
    dist = ROOT / "dist"
    wheel, archive = build(dist)
    compare(wheel, archive)
    tries = []
    for version in found.pythons:
        python = interpreter(version)
        if python is None:
            print(f"Python {version}: not installed, so not tried")
            continue
        with tempfile.TemporaryDirectory(prefix="prism-marl-") as place:
            tries.append(attempt(python, wheel, Path(place), extras=not found.quick))
    show(tries)
    if found.json is not None:
        found.json.write_text(json.dumps([asdict(one) for one in tries], indent=1) + "\n")
    return 1 if not tries or any(one.failed for one in tries) else 0


def build(dist: Path) -> tuple[Path, Path]:
    """The wheel, made from the source archive as pip would do it, and the archive."""
    shutil.rmtree(dist, ignore_errors=True)
    hatchling = [sys.executable, "-m", "hatchling", "build", "-d", str(dist)]
    call([*hatchling, "-t", "sdist"], ROOT)
    (archive,) = dist.glob("*.tar.gz")
    with tempfile.TemporaryDirectory(prefix="prism-marl-") as place:
        with tarfile.open(archive) as file:
            file.extractall(place, filter="data")
        (source,) = Path(place).iterdir()
        call([*hatchling, "-t", "wheel"], source)
    (wheel,) = dist.glob("*.whl")
    print(", ".join(f"{path.name} {path.stat().st_size / 2**20:.1f} MiB" for path in (wheel, archive)))
    return wheel, archive


def compare(wheel: Path, archive: Path) -> None:
    """The wheel holds every file of the package, the archive the tests and docs besides."""
    tracked = call(["git", "ls-files", "src/prism_marl"], ROOT).split()
    with zipfile.ZipFile(wheel) as file:
        inside = {f"src/{name}" for name in file.namelist()}
    with tarfile.open(archive) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    for missing in sorted(set(tracked) - inside):
        raise FailedError(f"the wheel lacks {missing}")
    for missing in sorted({*tracked, "README.md", "LICENSE", "Makefile", "requirements.lock"} - names):
        raise FailedError(f"the source archive lacks {missing}")


def interpreter(version: str) -> Path | None:
    """A Python of this version: on the path, or one of pyenv's."""
    found = shutil.which(f"python{version}")
    works = [found or "", "-c", "import venv, ensurepip"]  # a shim of pyenv may stand for no Python at all
    if found and subprocess.run(works, capture_output=True, check=False).returncode == 0:
        return Path(found)
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return next(iter(sorted((root / "versions").glob(f"{version}.*/bin/python{version}"), reverse=True)), None)


def attempt(python: Path, wheel: Path, place: Path, *, extras: bool) -> Try:
    """Install the wheel into a clean environment and run the commands of a first hour, in an empty folder."""
    version = call([str(python), "-c", "import platform; print(platform.python_version())"], place).strip()
    print(f"Python {version} ...", flush=True)
    one, stranger = Try(version), Stranger(place)
    try:
        for name, step in steps(stranger, python, wheel, extras=extras):
            begun = time.monotonic()
            step()
            one.seconds[name] = round(time.monotonic() - begun, 1)
        one.packages = stranger.packages()
    except FailedError as error:
        one.failed = str(error)
        print(error)
    return one


class Stranger:
    """Somebody with a new environment and an empty folder, who has never seen the repository."""

    def __init__(self, place: Path):
        self.venv, self.folder = place / "venv", place / "work"
        self.folder.mkdir()
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PRISM_", "JAX_"))}
        self.variables = kept | {"HOME": str(place), "XDG_CACHE_HOME": str(place / "cache"), "JAX_PLATFORMS": "cpu"}

    def python(self, *words: str) -> str:
        return call([str(self.venv / "bin" / "python"), *words], self.folder, self.variables)

    def command(self, *words: str, code: int = 0) -> str:
        return call([str(self.venv / "bin" / "prism-marl"), *words], self.folder, self.variables, code)

    def install(self, *words: str) -> None:
        """Must print nothing: a page of warnings is no welcome."""
        printed = self.python("-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words)
        if printed.strip():
            raise FailedError(f"pip install {' '.join(words)} printed: {printed.strip()[:2000]}")

    def told_to_install(self, *words: str) -> None:
        """A command that lacks an extra names the command that installs it; that very line must work."""
        said = self.command(*words, code=2)
        line = said.partition(WITHOUT)[2].strip()
        if "pip install" not in line:
            raise FailedError(f"prism-marl {' '.join(words)} does not say what to install: {said}")
        call(["sh", "-c", f"{line} --quiet --disable-pip-version-check"], self.folder, self.variables)
        self.command(*words)

    def packages(self) -> dict[str, str]:
        rows = json.loads(self.python("-m", "pip", "list", "--format", "json", "--disable-pip-version-check"))
        return {row["name"]: row["version"] for row in rows}


def steps(one: Stranger, python: Path, wheel: Path, *, extras: bool) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is tried, in order, with a name for the table."""
    yield "venv", lambda: call([str(python), "-m", "venv", str(one.venv)], one.folder)
    yield "install", lambda: one.install(str(wheel))
    yield "import", lambda: one.python("-W", "error", "-c", "import prism_marl; print(prism_marl.__version__)")
    yield "doctor", lambda: one.command("doctor")
    yield "play lbf", lambda: one.command("play", "lbf")
    yield "play lbf as a film", lambda: one.command("play", "lbf", "--out", "film.gif")
    yield "demo", lambda: one.command("demo", *SMALL, "--out", "demo")
    yield "report", lambda: one.command("report", "demo", "--out", "page")
    yield "eval", lambda: one.command("eval", "demo/prism", "--episodes", "4", "--render", "text")
    yield "export", lambda: one.command("export", "demo/prism", "--out", "team.safetensors")
    yield "play a file", lambda: one.command("play", "team.safetensors")
    yield "completion", lambda: one.command("completion", "bash")
    if extras:
        yield "extra onnx", lambda: one.told_to_install("export", "demo/prism", "--out", "team.onnx")
        yield "extra mujoco", lambda: one.told_to_install("play", "halfcheetah", "--out", "robot.gif")


def call(words: Sequence[str], folder: Path, variables: dict[str, str] | None = None, code: int = 0) -> str:
    """Everything that a command printed; raises if it ends with another code or prints a traceback."""
    done = subprocess.run(
        words, cwd=folder, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != code or "Traceback" in done.stdout:
        raise FailedError(f"{' '.join(words)} ended with {done.returncode}, not {code}:\n{done.stdout[-3000:]}")
    return done.stdout


def show(tries: list[Try]) -> None:
    """A table in Markdown: seconds of every step, and the versions that matter."""
    names = list(dict.fromkeys(name for one in tries for name in one.seconds))
    print("\n| | " + " | ".join(f"Python {one.python}" for one in tries) + " |")
    print("|---|" + "--:|" * len(tries))
    for package in ("jax", "equinox", "numpy", "optax", "safetensors"):
        print(f"| {package} | " + " | ".join(one.packages.get(package, "") for one in tries) + " |")
    for name in names:
        print(f"| {name}, seconds | " + " | ".join(str(one.seconds.get(name, "not reached")) for one in tries) + " |")
    for one in tries:
        print(f"Python {one.python}: {'FAILED' if one.failed else 'everything worked'}")


if __name__ == "__main__":
    sys.exit(main())
