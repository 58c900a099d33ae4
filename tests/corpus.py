"""Everything that reads a file which a stranger may have made, and inputs that are made to break it.

``READERS`` has a line for each reader: how a sound file of its kind is written, and how it is read. ``attack`` damages
the sound file with its structure in mind (trees of JSON, headers of arrays and archives, with sizes and checksums that
fit again), reads it, and allows a result or a ``UserError``, within bounds on time and memory.
"""

import contextlib
import functools
import gzip
import io
import json
import os
import random
import resource
import shutil
import signal
import struct
import tarfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import safetensors.numpy
from rich.console import Console

from prism_marl.cli.trust import trusted_experiment
from prism_marl.errors import UserError
from prism_marl.experiment.experiment import Start
from prism_marl.experiment.presets import preset
from prism_marl.policies.contract import Contract
from prism_marl.policies.files import load_policy, policy_file, write_policy
from prism_marl.policies.policy import Policy
from prism_marl.reports.figure_files import FigureFiles
from prism_marl.reports.page import render_page
from prism_marl.reports.page_data import load_study
from prism_marl.runs import checkpoint, history
from prism_marl.runs.folder import START, load_experiment, locked
from prism_marl.runs.masks import first_spectra
from prism_marl.runs.rows import Rows, noted
from prism_marl.runs.saved_layers import saved_layers
from prism_marl.runs.user_files import explain_unknown_names
from prism_marl.runs.warm_start import check_fit, kept_networks
from prism_marl.storage.cache import Cache, sealed
from prism_marl.storage.files import HeldFolder, check_plain, read_text
from prism_marl.storage.sealed import digest, serialise
from prism_marl.sweeps.files import load_sweep
from prism_marl.sweeps.live_view import SweepView
from prism_marl.training.build import make_learner
from synthetic import make_run, write_json
from tiny import small

SECONDS = 20  # for one input
MEMORY = 2**30  # bytes that reading one may take


class Reader(NamedTuple):
    """One kind of file."""

    name: str
    kind: str  # how it is damaged: a key of ``DAMAGE``
    write: Callable[[Path], Path]  # writes a sound one into an empty folder; returns the file
    read: Callable[[Path], object]  # reads it


NOTES = {"evaluation": 1, "rows": {name: [1, "x"] for name in ("eval", "train", "timing")}}
PROGRESS = {"steps": 1, "total": 2, "rate": 1.0, "text": "", "pid": 3, "time": 4.0}
GRID = {"tasks": ["roles/2"], "sharing": ["fups"], "options": {"run.seed": [1, 2]}}
TEMPLATE = {"a": np.zeros((2, 3), np.float32), "b": np.zeros(4, np.int32)}
DEPLOYMENT = {"agents": 2, "parameters": 30, "bytes": 120, "multiply_adds": 20, "microseconds": 7.5, "runtime": "numpy"}
USER_FILES = [{"name": "mine.py", "sha256": "0" * 64}]
PLAYED = Contract(
    task="roles/2", method="prism", learner="qmix", agents=2, agent=None, observation=2, actions=2, kind="discrete",
    rule="argmax", exploration="epsilon", network=("fc1", "relu", "gru", "fc2"), hidden=3, last_action=True, ids=0,
    scale=1.0, standardise=False, by_role=False, roles=2, identity=(0, 1), action_names=("left", "right"),
)  # fmt: skip
SHAPES = {
    "fc1.weight": (2, 4, 5), "fc1.bias": (2, 5), "input.weight": (1, 5, 9), "input.bias": (1, 9),
    "hidden.weight": (1, 3, 9), "hidden.bias": (1, 9), "fc2.V": (3, 2), "fc2.s": (2, 2), "fc2.U": (2, 2),
    "fc2.bias": (1, 2), "explore": (1, 1),
}  # fmt: skip


def run_file(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        return make_run(folder, evaluations=2, seeds=2, replays=1, name="run") / name

    return write


def text_file(name: str, text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        (folder / name).write_text(text)
        return folder / name

    return write


def machine_of_a_run(folder: Path) -> Path:
    (folder / "config.json").write_text("{}")
    return text_file("machine.json", json.dumps({"jax": "0", "segments": [{"step": 0, "jax": "0"}]}))(folder)


def packed_spectra(folder: Path) -> Path:
    run = make_run(folder, evaluations=2, seeds=2, replays=0, name="run")
    with tarfile.open(run / "spectra.tar.gz", "w:gz") as tar:
        tar.add(run / "spectra", "spectra")
    shutil.rmtree(run / "spectra")
    return run / "spectra.tar.gz"


def layered(folder: Path) -> Path:
    """A checkpoint of two seeds of a network with one layer of Prism."""
    (folder / "config.json").write_text(small("roles/2", "prism", run__seeds="2").to_json())
    sizes = {"U": (5, 3), "s": (3,), "V": (4, 3), "bias": (5,), "threshold": (2, 2)}
    layer = {name: np.ones((2, *size), np.float32) for name, size in sizes.items()}
    state = {f"seeds.state.online.agent.fc1.{name}": value for name, value in layer.items()}
    return checkpoint.save(folder / "checkpoints", 1, state, {"evaluation": 1})


def kept(folder: Path) -> Path:
    Cache(folder).write("key", b"content" * 10)
    return Cache(folder).path("key")


def policy(folder: Path, ending: str) -> Path:
    """A policy of four layers: plain matrices, and shared factors."""
    arrays = {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}
    return write_policy(Policy(PLAYED, arrays), folder / f"x{ending}")


def acting(path: Path) -> None:
    """A policy that can be read can be played, too."""
    found = load_policy(path)
    memory = found.reset(2)
    obs = np.ones((*memory.shape[:-1], found.contract.observation), np.float32)
    for _ in range(2):
        _, memory = found.act(obs, memory)


def shown_policy(folder: Path) -> Path:
    """In a run whose page plays it."""
    run = make_run(folder, task="roles/2", evaluations=2, seeds=1, replays=0, agents=2, name="run")
    (run / "policies").mkdir()
    policy(folder, ".safetensors").rename(policy_file(run, 0))
    return policy_file(run, 0)


def deployment(folder: Path) -> Path:
    run = make_run(folder, evaluations=2, seeds=1, replays=0, name="run")
    write_json(run / "deployment.json", DEPLOYMENT)
    return run / "deployment.json"


@functools.cache
def networks() -> dict[str, np.ndarray]:
    """Those of two seeds."""
    build = jax.vmap(make_learner(small("roles/2", "fups")).build_agent)
    return checkpoint.flatten(build(jax.random.split(jax.random.key(0), 2)))


def start(folder: Path) -> Path:
    (folder / START).write_bytes(serialise(networks(), {}))
    return folder / START


def begun(path: Path) -> None:
    """The networks that a run begins with, if its settings name this very file."""
    try:
        found = digest(safetensors.numpy.load(check_plain(path, path.parent, 2**26).read_bytes()), "")
    except Exception:
        found = "another"
    experiment = small("roles/2", "fups").changed(start=Start(digest=found))
    check_fit(experiment, kept_networks(experiment, path.parent))


def page_of(path: Path) -> str:
    """The page of the run that a file belongs to, as far as it goes without drawing."""
    run = next(parent for parent in path.parents if parent.name == "run")
    return render_page(load_study([run]))


def resumed(path: Path) -> None:
    with locked(path.parent) as held:
        history.resume(path.parent, 7, {"jax": "1"}, held)
    assert isinstance(held, HeldFolder)


def lost(path: Path) -> object:
    """What a continued run asks a file of rows."""
    return Rows(path).complaint([100, "0" * 32])


READERS = (
    Reader("config.json of a run", "json", text_file("config.json", preset("roles/2", "prism").to_json()),
           lambda path: load_experiment(path.parent)),
    Reader("config.json of a run that is evaluated", "json",
           text_file("config.json", small("roles/2", "prism").to_json()),
           lambda path: trusted_experiment(path.parent, []).validate()),
    Reader("config.json on a page", "json", run_file("config.json"), page_of),
    Reader("machine.json on a page", "json", run_file("machine.json"), page_of),
    Reader("machine.json of a run that goes on", "json",
           machine_of_a_run, resumed),
    Reader("footprint.json", "json", run_file("footprint.json"), page_of),
    Reader("replay", "json", run_file("replays/seed0.json"), page_of),
    Reader("eval.jsonl", "rows", run_file("eval.jsonl"), page_of),
    Reader("train.jsonl", "rows", run_file("train.jsonl"), page_of),
    Reader("timing.jsonl", "rows", run_file("timing.jsonl"), page_of),
    Reader("diversity.jsonl", "rows", run_file("diversity.jsonl"), page_of),
    Reader("eval.jsonl in a live view", "rows", run_file("eval.jsonl"), lambda path: watched(path.parent)),
    Reader("rows of a run that goes on", "rows", run_file("train.jsonl"), lost),
    Reader("spectra", "arrays", run_file("spectra/000001.safetensors"), page_of),
    Reader("first spectra", "arrays", run_file("spectra/000000.safetensors"),
           lambda path: first_spectra(path.parents[1])),
    Reader("archive of spectra", "archive", packed_spectra, page_of),
    Reader("checkpoint", "arrays",
           lambda folder: checkpoint.save(folder / "checkpoints", 1, TEMPLATE, {"evaluation": 1}),
           lambda path: checkpoint.load_newest(path.parent, TEMPLATE)),
    Reader("checkpoint without its replay", "arrays",
           lambda folder: checkpoint.save(folder / "checkpoints", 1, TEMPLATE, {"evaluation": 1}),
           lambda path: checkpoint.load_newest(path.parent, {"b": TEMPLATE["b"]}, without="a")),
    Reader("checkpoint for another framework", "arrays", layered, lambda path: saved_layers(path.parents[1])),
    Reader("notes of a checkpoint", "json",
           text_file("notes", json.dumps(NOTES)),
           lambda path: noted(parsed(path))),
    Reader("progress.json", "json",
           text_file("progress.json", json.dumps(PROGRESS)),
           lambda path: watched(path.parent)),
    Reader("grid of a sweep", "json",
           text_file("grid.json", json.dumps(GRID)),
           load_sweep),
    Reader("manifest of figures", "json", text_file("figures.json", '{"files": ["a.png"]}'),
           lambda path: manifest(path)),
    Reader("policy", "arrays", functools.partial(policy, ending=".safetensors"), acting),
    Reader("policy in NPZ", "npz", functools.partial(policy, ending=".npz"), acting),
    Reader("policy on a page", "arrays", shown_policy, page_of),
    Reader("deployment.json", "json", deployment, page_of),
    Reader("networks to begin with", "arrays", start, begun),
    Reader("modules.json", "json", text_file("modules.json", json.dumps(USER_FILES)),
           lambda path: explain_unknown_names('{"sharing": {"method": "mine"}}', path.parent)),
    Reader("kept program", "kept", kept, lambda path: Cache(path.parent).read("key")),
)  # fmt: skip


def watched(folder: Path) -> object:
    """The line of a sweep's live view about an experiment that runs in a folder."""
    experiment = small("roles/2", "fups")
    view = SweepView([experiment], folder.parent, Console(file=io.StringIO(), width=100))
    view.folders[experiment], view.states[experiment] = folder, "running"
    view.console.print(view.table())
    return view._cells(experiment)


def parsed(path: Path) -> Any:
    """The content that ``noted`` gets, as the reader of checkpoints gives it."""
    try:
        return json.loads(read_text(path, path.parent))
    except (OSError, ValueError, RecursionError):
        return None


def manifest(path: Path) -> set[str]:
    figures = path.parent / "figures"
    figures.mkdir(exist_ok=True)
    path.rename(figures / path.name)
    return FigureFiles(path.parent / "index.html").own


# Damage.

NUMBERS = (0, -1, 1, 2**31, 2**63, -(2**63), 10**400, 1e308, -1e308, 1e-320, 0.1, -0.0)
WORDS = (
    "",
    "x",
    "nan",
    "</script><script>alert(1)</script>",
    "[/x]",
    "\ud800",
    "a" * 5_000,
    "../../x",
    "\0",
    "٣",
    "$x$",
)
KEYS = (
    *("seed", "step", "evaluation", "return", "frames", "shapes", "kind", "steps", "task", "sharing", "method"),
    *("segments", "run", "seeds", "__metadata__", "shape", "dtype", "data_offsets", "x", "\ud800", "a.b.c"),
)
LONG = "1" + "0" * 5_000
RAW = (
    *("NaN", "Infinity", "-Infinity", "1e999", "-1e999", LONG, "[" * 980 + "]" * 980, '"\\ud800"', "{}", "[]", "null"),
    *('{"a":' * 500 + "1" + "}" * 500, "true", "[" + "[]," * 2_000 + "0]"),
)
MARK = "@@raw@@"


def value(dice: random.Random) -> Any:
    kind = dice.randrange(6)
    if kind == 0:
        return dice.choice(NUMBERS)
    if kind == 1:
        return dice.choice(WORDS)
    if kind == 2:
        return MARK + dice.choice(RAW)
    if kind == 3:
        return [value(dice) for _ in range(dice.randrange(4))]
    if kind == 4:
        return {dice.choice(KEYS): value(dice) for _ in range(dice.randrange(4))}
    return dice.choice([None, True, False])


def places(tree: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a tree of JSON."""
    found = []
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, inner in items:
            found.append((node, key))
            waiting.append(inner)
    return found


def changed_tree(dice: random.Random, tree: Any) -> Any:
    for _ in range(dice.choice([1, 1, 2, 5])):
        spots = places(tree)
        if not spots or dice.random() < 0.05:
            return value(dice)
        node, key = dice.choice(spots)
        act = dice.randrange(5)
        if act == 0:
            del node[key]
        elif act == 1 and isinstance(node, dict):
            node[dice.choice(KEYS)] = node[key]
        elif act == 2 and isinstance(node, list):
            node.extend([node[key]] * dice.choice([1, 10, 500]))
        else:
            node[key] = value(dice)
    return tree


def written(dice: random.Random, tree: Any) -> str:
    text = json.dumps(tree)
    while (at := text.find(f'"{MARK}')) >= 0:
        raw = json.JSONDecoder().raw_decode(text[at:])
        text = text[:at] + raw[0].removeprefix(MARK) + text[at + raw[1] :]
    if dice.random() < 0.1 and text.startswith("{") and len(text) > 2:
        text = '{"task": 1, "task": 2, ' + text[1:]
    return text


def damaged_json(dice: random.Random, content: bytes) -> bytes:
    return written(dice, changed_tree(dice, json.loads(content))).encode(errors="surrogatepass")


def damaged_rows(dice: random.Random, content: bytes) -> bytes:
    lines = content.splitlines()
    for _ in range(dice.choice([1, 2, 10])):
        at = dice.randrange(len(lines))
        act = dice.randrange(4)
        if act == 0:
            try:
                lines[at] = damaged_json(dice, lines[at])
            except (ValueError, RecursionError):  # it was damaged before
                lines[at] = b"{}"
        elif act == 1:
            lines += [lines[at]] * dice.choice([1, 50])
        elif act == 2:
            lines[at] = lines[at][: dice.randrange(len(lines[at]) + 1)]
        else:
            seeds = ({"seed": n, "step": n % 3, "return": n} for n in range(dice.choice([3, 300, 1_000])))
            lines += [json.dumps(row).encode() for row in seeds]
    return b"\n".join(lines) + dice.choice([b"", b"\n", b"\n\n\n", b"\xff\xfe\n"])


SEALED = ("content", "contract")  # texts that a checksum covers


def other_array(dice: random.Random, value: np.ndarray) -> np.ndarray:
    """Of another shape, of another type, or full of another number."""
    shapes = [(0,), (), (1, 1, 1), (2, 3, 27), (1, 400, 5), (2**20, 0, 2**20), (1, 1, 50_000), (3, 4), value.shape[:-1]]
    kinds = [np.float32, np.float16, np.int8, np.bool_, np.float64, np.uint64]
    act = dice.randrange(3)
    shape = dice.choice(shapes) if act == 0 else value.shape
    kind = dice.choice(kinds) if act == 1 else value.dtype
    number = dice.choice([0, 1, -1, np.nan, np.inf, 3e38] if np.issubdtype(kind, np.floating) else [0, 1])
    return np.full(shape, number, kind)


def changed_text(dice: random.Random, text: str) -> str:
    """Mostly the same tree with something else in it."""
    if dice.random() < 0.2:
        return dice.choice([*RAW, "x"])
    try:
        return written(dice, changed_tree(dice, json.loads(text))).encode(errors="replace").decode()
    except (ValueError, RecursionError):
        return dice.choice([*RAW, "x"])


def damaged_npz(dice: random.Random, content: bytes) -> bytes:
    """Entries that are something else; often with a checksum that is right for them."""
    with np.load(io.BytesIO(content), allow_pickle=False) as held:
        arrays = {name: held[name] for name in held.files}
    texts = {name: str(arrays.pop(name)) for name in ("contract", "digest")}
    for name in dice.sample(sorted(arrays), dice.choice([0, 1, 1, len(arrays)])):
        arrays[name] = other_array(dice, arrays[name])
    if dice.random() < 0.5:
        texts["contract"] = changed_text(dice, texts["contract"])
    if dice.random() < 0.8:
        texts["digest"] = digest(arrays, texts["contract"])
    file = io.BytesIO()
    packing = dice.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    with zipfile.ZipFile(file, "w", packing) as archive, warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a name that comes twice
        for name, value in {**arrays, **{name: np.array(text) for name, text in texts.items()}}.items():
            entry = io.BytesIO()
            np.lib.format.write_array(entry, value)
            archive.writestr(f"{name}.npy", strange_entry(dice, entry.getvalue()))
            if dice.random() < 0.05:
                archive.writestr(f"{name}.npy", dice.randbytes(100))
        if dice.random() < 0.05 and packing != zipfile.ZIP_STORED:
            file_of = io.BytesIO()
            np.lib.format.write_array(file_of, np.zeros(2 ** dice.choice([20, 25]), np.float32))
            archive.writestr("zeros.npy", file_of.getvalue())
    return file.getvalue()


def strange_entry(dice: random.Random, entry: bytes) -> bytes:
    """Now and then an array whose header claims more than there is, or an object, which would be a pickle."""
    if dice.random() < 0.95:
        return entry
    kind, shape = dice.choice(
        [("|O", (1,)), ("<f4", (2**40,)), ("<f4", (2**20, 0, 2**20)), ("<f8", (-1,)), ("<U9", ())]
    )
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape})
    return file.getvalue() + dice.randbytes(64)


def damaged_arrays(dice: random.Random, content: bytes) -> bytes:
    """A header that says something else; sometimes with a checksum that is right for whatever it says."""
    size = int.from_bytes(content[:8], "little")
    tree, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    if dice.random() < 0.5:  # other arrays and other texts, soundly packed
        made = safetensors.numpy.load(content)
        some = dice.choice([0, 1, 1, len(made)])
        made |= {name: other_array(dice, made[name]) for name in dice.sample(sorted(made), min(some, len(made)))}
        notes = {key: f"{word}" for key, word in dict(tree.get("__metadata__", {})).items()}
        if notes and dice.random() < 0.7:
            name = dice.choice(sorted(notes))
            notes[name] = changed_text(dice, notes[name])
        if "digest" in notes and dice.random() < 0.8:
            notes["digest"] = digest(made, next((notes[name] for name in SEALED if name in notes), ""))
        return safetensors.numpy.save(made, notes)
    header = written(dice, changed_tree(dice, tree)).encode(errors="surrogatepass")
    claimed = dice.choice([len(header)] * 6 + [0, 2**62, len(header) - 1])
    return struct.pack("<Q", claimed) + header + data


def damaged_archive(dice: random.Random, content: bytes) -> bytes:
    plain = bytearray(gzip.decompress(content))
    for _ in range(dice.choice([1, 2, 4])):
        at = 512 * dice.randrange(max(1, len(plain) // 512))
        field, width = dice.choice([(0, 100), (124, 12), (156, 1), (345, 155), (257, 6)])
        plain[at + field : at + field + width] = dice.choice(
            [b"\xff" * width, b"\0" * width, b"7" * width, b"L" * width, dice.randbytes(width), b"9" * width]
        )
        if dice.random() < 0.8:
            plain[at + 148 : at + 156] = b" " * 8
            plain[at + 148 : at + 156] = b"%06o\0 " % (sum(plain[at : at + 512]) % 8**6)
    if dice.random() < 0.05:
        plain += bytes(2**26)
    return gzip.compress(bytes(plain), 1)


def damaged_kept(dice: random.Random, content: bytes) -> bytes:
    body = dice.randbytes(dice.randrange(50))
    return dice.choice([sealed("other", body) + body, content[: dice.randrange(len(content))], body, content + b"x"])


def damaged_bytes(dice: random.Random, content: bytes) -> bytes:
    held = bytearray(content)
    for _ in range(dice.choice([1, 3, 30])):
        at = dice.randrange(len(held) + 1)
        act = dice.randrange(5)
        if act == 0 and at < len(held):
            held[at] ^= 1 << dice.randrange(8)
        elif act == 1:
            held = held[:at]
        elif act == 2:
            held[at:at] = dice.choice([b"\0" * 100, b"\xff", b"[" * 2_000, b'{"a":' * 2_000, b'"', b"9" * 6_000])
        elif act == 3:
            held[at : at + 50] = b""
        else:
            held += held[:at]
        held = held[: 2**20]
    return bytes(held)


DAMAGE = {
    "json": damaged_json,
    "rows": damaged_rows,
    "arrays": damaged_arrays,
    "archive": damaged_archive,
    "npz": damaged_npz,
    "kept": damaged_kept,
}


def put(dice: random.Random, reader: Reader, path: Path) -> None:
    """Put something hostile in the place of a sound file."""
    content = path.read_bytes()
    fate = dice.random()
    if fate < 0.03:
        path.unlink()
        dice.choice([os.mkfifo, os.mkdir, lambda p: p.symlink_to("/etc/passwd"), lambda p: p.symlink_to(p.name)])(path)
        return
    if fate < 0.05:
        os.truncate(path, dice.choice([2**25, 2**28, 2**42]))
        return
    damage = damaged_bytes if fate < 0.3 else DAMAGE[reader.kind]
    path.write_bytes(damage(dice, content))


class TookTooLongError(BaseException):
    """An input took more than its seconds."""


@contextlib.contextmanager
def limits(seconds: int = SECONDS, memory: int = MEMORY) -> Iterator[None]:
    """Whatever is done here ends after so many seconds, and gets no more than so many further bytes."""

    def stop(*_: Any) -> None:
        raise TookTooLongError

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory, hard))
    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@dataclass
class Outcome:
    """What one input did."""

    fault: str = ""  # empty: a result or a sentence, in time
    seconds: float = 0.0


def attack(reader: Reader, seed: str, place: Path) -> Outcome:
    """One input; the seed decides what it is. ``place`` is an empty folder and is left with the input in it."""
    dice = random.Random(f"{reader.name} {seed}")
    put(dice, reader, path := reader.write(place))
    began = time.monotonic()
    fault = ""
    try:
        with limits(SECONDS), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore", RuntimeWarning)  # overflow in a stranger's numbers
            reader.read(path)
    except UserError as error:
        fault = "" if "\n" not in str(error) else "a sentence of several lines"
    except TookTooLongError:
        fault = f"took more than {SECONDS} seconds"
    except MemoryError:
        fault = f"took more than {MEMORY // 2**20} MiB"
    except Exception as error:
        fault = f"{type(error).__name__}: {error}"[:300]
    return Outcome(fault, time.monotonic() - began)
