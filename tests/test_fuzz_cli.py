"""Whatever is typed after ``prism-marl`` ends in work, help, or one sentence, and a refusal leaves nothing behind.

The words are drawn from each command's own help, so a new command is covered as soon as it is in ``cli.COMMANDS``.
"""

import contextlib
import functools
import io
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prism_marl import cli
from prism_marl.experiment import config
from prism_marl.experiment.presets import preset
from prism_marl.runs import runner
from synthetic import make_run

LBF = "lbf/4x4-2p-1f"
NUMBERS = ["0", "-1", "1e400", "nan", "1.5", "9" * 400, "2147483648", "-0.0", "1_0", "٣", "0x10", "", "true", "none"]
NAMES = ["prism", "prsim", "paper", "papre", "qmx", "all", "text", "x.gif", "x.png", "x.html", "<b>&\"'"]
TASKS = [
    LBF, "lbf/4x4-2p", "lfb/4x4-2p-1f", "roles/0", "roles/" + "9" * 30, "smacv2/terran_5_vs_5", "mamujoco/ant-2x4",
    "pettingzoo/os", "pettingzoo/no.such?a=((", "jaxmarl/x", "рой/4", "/", "..", "lbf/../x", "reach/2",
]  # fmt: skip
PATHS = [
    "file", "file/x", "empty", "runs", "runs/one", "new/deep/x.html", "..", "/", "/proc/none/x", "x" * 300, "x\0", ".",
    "\udcff", "-", "~",
]  # fmt: skip
SHAPES = [
    "--", "-x", "--x", "--.", "--run.", "--run..steps", "--sharing.__class__", "--learner.lr", "--run.steps=3",
    "--sharing.comon", "--learner.algorithm=qmx", "--task", "@file", "$(id)", "%s%n", "\x1b[31m\n\r\u202e",
]  # fmt: skip
FIELDS = [path for path, _, _ in config.options(preset(LBF, "prism"))]
MANY = int(os.environ.get("PRISM_MARL_FUZZ", "80"))  # lines for each command; a soak asks for more, and for others
SEARCH = settings(
    max_examples=MANY, deadline=None, database=None, derandomize=MANY <= 80, suppress_health_check=list(HealthCheck)
)


class WorkBeginsError(BaseException):
    """The command has accepted its words and would now train for hours."""


@functools.cache
def options(command: str) -> tuple[str, ...]:
    """What the command's own help offers."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown), pytest.raises(SystemExit) as end:
        cli.main([command, "--help"])
    assert end.value.code == 0
    found = tuple(sorted(set(re.findall(r"--[a-z][a-z-]*", shown.getvalue()))))
    assert "--help" in found
    return found


def lines(command: str):
    known = options(command)
    word = st.one_of(
        st.sampled_from([option for option in known if option != "--paper"]),  # whose whole point is to take seconds
        st.builds(lambda name, value: f"{name}={value}", st.sampled_from(known), st.sampled_from(NUMBERS + PATHS)),
        *(st.sampled_from(pool) for pool in (NUMBERS, NAMES, TASKS, PATHS, SHAPES)),
        st.text(max_size=12),
        st.integers().map(str),
    )
    fields = st.builds(
        lambda name, value: f"--{name}={value}", st.sampled_from(FIELDS), st.sampled_from(NUMBERS + NAMES)
    )
    valid = st.sampled_from([[], [LBF], ["runs/one"], [LBF, "--sharing", "seps"], ["reach/2"]])
    return st.builds(lambda start, rest: start + rest, valid, st.lists(word | fields, max_size=6))


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A file, an empty folder and a finished run."""
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "file").write_text("x")
    (folder / "empty").mkdir()
    make_run(folder / "runs", name="one", evaluations=2, seeds=1)
    return folder


@pytest.fixture
def place(folder, monkeypatch) -> Path:
    """Stand in that folder; no command gets as far as training in it."""

    def begin(*arguments, **options):
        raise WorkBeginsError

    monkeypatch.chdir(folder)
    monkeypatch.setenv("PRISM_MARL_CACHE", str(folder / "cache"))  # `cache --clear` is among the words
    monkeypatch.setattr(runner, "make_trainer", begin)
    monkeypatch.setattr(subprocess, "Popen", begin)
    return folder


def entries(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


def answer(argv: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = cli.main(argv)
        except SystemExit as end:  # --help
            code = end.code
        except WorkBeginsError:
            code = 0
    assert isinstance(code, int)
    return code, out.getvalue(), err.getvalue()


def check(argv: list[str], folder: Path) -> None:
    before = entries(folder)
    code, out, err = answer(argv)
    new = entries(folder) - before
    assert code in (0, 2), (argv, err)
    if code:
        assert not new and out == "", (argv, new, out)
        assert err.startswith("prism-marl: ") and err.count("\n") == 1 and err.removesuffix("\n").isprintable(), argv
        assert len(err) < 3_000, argv
    for path in sorted(new, reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_any_words_after_a_command_end_in_work_or_one_sentence(place, command):
    @SEARCH
    @given(lines(command))
    def search(words):
        check([command, *words], place)

    search()


@SEARCH
@given(st.lists(st.text(max_size=20), max_size=3))
def test_any_command_is_known_or_suggested(words):
    code, _, err = answer(words)
    assert (code == 0) == (not words or words[0] in (*cli.COMMANDS, "-h", "--help", "--version")) or err.count(
        "\n"
    ) == 1


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_a_misspelt_command_or_option_suggests_the_nearest(place, command):
    assert f"did you mean '{command}'?" in answer([command + command[-1]])[2]
    for option in options(command):
        code, _, err = answer([command, LBF, option[:-1] + option[-1] * 2])
        assert code == 2 and option in err, err


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["train", "lbf/4x4-2p-1ff"], "did you mean 'lbf/"),
        (["train", "lbv/10x10-3p-3f"], "'lbf/10x10-3p-3f'"),
        (["train", "petingzoo/my.game"], "'pettingzoo/my.game'"),
        (["train", "mamujoco/hoper-3x1"], "'hopper-3x1'"),
        (["train", LBF, "--sharing", "kaleidoskope"], "'kaleidoscope'"),
        (["train", LBF, "--preset", "scaledd"], "'scaled'"),
        (["train", LBF, "--learner.algorithm", "qmx"], "'qmix'"),
        (["train", LBF, "--learner.gama", "1"], "'--learner.gamma'"),
        (["train", LBF, "--lerner.gamma", "1"], "'--learner.gamma'"),
        (["footprint", LBF, "--method", "prsm"], "'prism'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_a_misspelt_name_suggests_the_nearest(place, words, hint):
    code, _, err = answer(words)
    assert code == 2 and hint in err, err


@pytest.mark.parametrize("out", ["file/x", "x" * 300, "/proc/none/x"], ids=["below a file", "too long", "no folder"])
def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path, out):
    (tmp_path / "file").write_text("x")
    words = ["train", LBF, "--width", "4", "--out", str(tmp_path / out)]
    before = entries(tmp_path)
    code, printed, err = answer(words)
    assert code == 2 and printed == "" and err.count("\n") == 1 and entries(tmp_path) == before


def test_bytes_that_are_no_text_from_a_real_shell():
    """The system hands over whatever was typed; a terminal's encoding is no excuse for a traceback."""
    command = [shutil.which("env") or "env", "LC_ALL=C", "PYTHONUTF8=0", sys.executable, "-m", "prism_marl.cli"]
    for words in ([b"train", b"lbf/\xff\xfe"], [b"report", b"\xc3\x28", b"--title", b"\xff"], [b"tr\xc3\xa4in"]):
        done = subprocess.run([*(os.fsencode(word) for word in command), *words], capture_output=True, timeout=60)
        assert done.returncode == 2 and done.stdout == b""
        assert done.stderr.startswith(b"prism-marl: ") and done.stderr.count(b"\n") == 1
