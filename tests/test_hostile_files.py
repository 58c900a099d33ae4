"""Run folders made by somebody who means harm: opening one reads no file outside it, writes none, waits for nothing,
takes no memory that its bytes do not justify, and ends in a result or in one sentence."""

import json
import os
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prism_marl.errors import UserError
from prism_marl.reports.page import write_report
from prism_marl.runs import checkpoint, runner
from prism_marl.runs.folder import load_experiment, owner
from prism_marl.runs.rows import noted
from prism_marl.storage import sealed
from prism_marl.storage.files import refuse_links_out
from synthetic import make_run
from test_fuzz_cli import answer

SECRET = "the content of a private file"
FILES = ["config.json", "machine.json", "footprint.json", "eval.jsonl", "train.jsonl", "timing.jsonl",
         "replays/seed0.json", "spectra/000001.safetensors"]  # fmt: skip
HEADER = struct.pack("<Q", 2**62)
TENSOR = b'{"fc1.spectrum":{"dtype":"F32","shape":[1099511627776,0,1048576],"data_offsets":[0,0]}}'
CONTENTS = {
    "empty": b"",
    "zero bytes": b"\0" * 4096,
    "not text": b"\xff\xfe\x80" * 100,
    "deep list": b"[" * 5_000_000 + b"]" * 5_000_000,
    "deep object": b'{"a":' * 1_000_000 + b"1" + b"}" * 1_000_000,
    "wrong kind": b'["x", 1, null, {"frames": 3}]',
    "wrong fields": b'{"task": [], "sharing": 7, "run": {"seeds": {}, "steps": "x"}, "frames": [1], "seed": []}',
    "numbers": b'{"seed": 1e308, "step": -1e308, "evaluation": 1e999, "return": 1' + b"0" * 4000 + b"}",
    "not numbers": b'{"seed": NaN, "step": Infinity, "return": -Infinity}',
    "broken characters": b'{"task": "\\ud800", "seed": 0, "step": 1, "\\udfff": 1, "return": 1}',
    "header size lies": HEADER + b"{}",
    "header is small, claim is not": struct.pack("<Q", len(TENSOR)) + TENSOR,
    "markup": json.dumps({"task": "</script><script>alert(1)</script>", "seed": 0, "step": 1, "<b>": 1}).encode(),
}


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory) -> Path:
    return make_run(tmp_path_factory.mktemp("hostile"), name="run", evaluations=3, seeds=2)


@pytest.fixture
def copy(synthetic, tmp_path) -> Path:
    return Path(shutil.copytree(synthetic, tmp_path / "run"))


@pytest.fixture
def taken(trained, tmp_path) -> Path:
    return Path(shutil.copytree(trained, tmp_path / "taken"))


def page_of(folder: Path) -> str:
    return write_report([folder], folder.parent / "page.html").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # overflow in a stranger's numbers
@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
def test_a_page_is_made_of_whatever_is_left(copy, content):
    for name in FILES:
        (copy / name).write_bytes(content)
        assert "<script>alert" not in page_of(copy)


WORDS = (
    "seed step evaluation return seeds steps run sharing method task frames width height shapes kind x y size colour "
    "label extra parameters"
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS.split()) | st.text(max_size=4), inner, max_size=5)
    ),
    max_leaves=12,
)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@settings(max_examples=60, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.dictionaries(st.sampled_from(FILES[:-1]), JSON, min_size=1))
def test_a_page_is_made_of_any_json(synthetic, tmp_path_factory, contents):
    folder = Path(shutil.copytree(synthetic, tmp_path_factory.mktemp("json") / "run"))
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content) + "\n")
    page_of(folder)


@pytest.mark.parametrize("name", [*FILES, "replays", "spectra"])
def test_links_out_of_a_folder_are_not_followed(copy, tmp_path, name):
    secret = tmp_path / "elsewhere" / "secret"
    secret.parent.mkdir()
    private = {"task": SECRET, "machine": SECRET, "title": SECRET, "frames": [], "seed": 0, "step": 5, SECRET: 1.5}
    target = secret.parent if name in ("replays", "spectra") else secret
    for path in (secret, secret.parent / "seed0.json"):
        path.write_text(json.dumps([private] if "footprint" in name else private))
    path = copy / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    path.symlink_to(target)
    assert SECRET not in page_of(copy)
    with pytest.raises(UserError, match="leads out of the run folder"):
        refuse_links_out(copy)


def test_links_inside_a_folder_and_to_a_folder_are_fine(copy, tmp_path):
    (copy / "eval.jsonl").rename(copy / "rows.jsonl")
    (copy / "eval.jsonl").symlink_to("rows.jsonl")
    (tmp_path / "link").symlink_to(copy)
    refuse_links_out(tmp_path / "link")
    assert "ends at a return of" in page_of(tmp_path / "link")


@pytest.mark.parametrize("name", [*FILES, "checkpoints/00000001.safetensors", ".lock"])
def test_nothing_waits_for_a_pipe_or_follows_a_circle(copy, name):
    path = copy / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    os.mkfifo(path)
    page_of(copy)
    with pytest.raises(UserError, match="neither a file nor a folder"):
        refuse_links_out(copy)
    path.unlink()
    path.symlink_to(path.name)
    page_of(copy)
    with pytest.raises(UserError):
        refuse_links_out(copy)


def test_terabytes_that_are_not_there_are_not_read(copy):
    for name in FILES:
        os.truncate(copy / name, 2**42)  # a hole: a few bytes on the disk
    assert "larger than" in page_of(copy)
    with pytest.raises(UserError, match="larger than 16 MiB"):
        load_experiment(copy)


@pytest.mark.parametrize("file", ["eval.jsonl", "checkpoints", ".lock", "done"])
def test_continuing_a_run_writes_nowhere_else(taken, tmp_path, file):
    """Rows are cut to the length of the checkpoint: through a link that would empty a stranger's file."""
    outside = tmp_path / "outside"
    outside.write_text(SECRET)
    path = taken / file
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    path.symlink_to(tmp_path if file == "checkpoints" else outside)
    with pytest.raises(UserError, match="leads out of the run folder"):
        runner.run(load_experiment(taken), taken)
    assert outside.read_text() == SECRET and sorted(entry.name for entry in tmp_path.iterdir()) == ["outside", "taken"]


def rewritten(path: Path, change, content: str | None = None) -> None:
    """A checkpoint with other content and a checksum that fits."""
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    tensors = change(safetensors.numpy.load_file(path))
    written = metadata["content"] if content is None else content
    metadata |= {"content": written, "digest": sealed.digest(tensors, written)}
    path.write_bytes(safetensors.numpy.save(tensors, metadata=metadata))


def only(folder: Path) -> Path:
    newest, *older = checkpoint.paths(folder / "checkpoints")
    for path in older:
        path.unlink()
    return newest


@pytest.mark.parametrize(
    "notes",
    [
        "[]", "{}", '{"evaluation": "1", "rows": {}}', '{"evaluation": -1, "rows": 3}', '{"evaluation": 1}',
        '{"evaluation": 1, "rows": {"eval": [-5, "x"], "train": [0, "x"], "timing": [0, "x"]}}',
        '{"evaluation": 1, "rows": {"eval": [1, "x"]}}',
        '{"evaluation": 1, "rows": {"eval": 1, "train": 1, "timing": 1}}',
        '{"evaluation": 1, "rows": {"eval": [1, 2], "train": [0, "x"], "timing": [0, "x"]}}',
        '{"evaluation": true, "rows": {"eval": [0, "x"], "train": [0, "x"], "timing": [0, "x"]}}',
    ],
)  # fmt: skip
def test_notes_of_a_checkpoint_are_checked(notes):
    with pytest.raises(UserError, match="does not note where it was written"):
        noted(json.loads(notes))


STRANGE = {
    "nothing": "{}",
    "deep": "[" * 100_000,
    "words": '{"number": "x", "owner": 1, "notes": {}}',
    "no notes": None,
}


@pytest.mark.parametrize("kind", STRANGE)
def test_a_run_is_not_continued_by_strange_notes(taken, kind):
    newest = only(taken)
    empty = json.dumps({"number": int(newest.stem), "owner": owner(taken), "notes": {}})
    rewritten(newest, dict, STRANGE[kind] or empty)
    rows = (taken / "eval.jsonl").read_bytes()
    with pytest.raises(UserError) as error:
        runner.run(load_experiment(taken), taken)
    assert error.value.code == 1 and (taken / "eval.jsonl").read_bytes() == rows


CHANGES = {
    "claims": lambda tensors: {name: np.zeros((2**40, 0, 2**20), value.dtype) for name, value in tensors.items()},
    "nothing": lambda tensors: {},
    "a name with ..": lambda tensors: tensors | {"../../escape": np.zeros(1)},
    "types": lambda tensors: {name: value.view(np.uint8) for name, value in tensors.items() if value.ndim},
}


def test_a_checkpoint_that_does_not_fit_is_one_sentence(taken):
    like = runner.make_trainer(load_experiment(taken)).shapes()
    newest = only(taken)
    whole = newest.read_bytes()
    for name, change in CHANGES.items():
        newest.write_bytes(whole)
        rewritten(newest, change)
        with pytest.raises(UserError, match="does not fit this experiment"):
            checkpoint.load_newest(taken / "checkpoints", like, owner(taken))
        assert not (taken.parent.parent / "escape").exists(), name
    for content in CONTENTS.values():
        newest.write_bytes(content)
        (taken / "checkpoints" / "².safetensors").write_bytes(content)
        with pytest.raises(UserError, match=r"^checkpoint \d+.safetensors (cannot be read|has format None)"):
            checkpoint.load_newest(taken / "checkpoints", like, owner(taken))
    newest.unlink()
    os.mkfifo(newest)
    code, out, err = answer(["eval", str(taken)])
    assert code == 1 and out == "" and err.startswith("prism-marl: checkpoint") and err.count("\n") == 1


def test_an_empty_array_cannot_claim_memory():
    part = checkpoint.PartialArray((2, 2**40, 3), np.float32, axis=1)
    for shape in ((2**40, 0, 3), (2, 0, 2**40), (0,)):
        assert part.fill(np.zeros(shape, np.float32)).size == 0


def test_a_config_that_is_none_is_one_sentence(taken):
    for name, content in CONTENTS.items():
        (taken / "config.json").write_bytes(content)
        code, out, err = answer(["eval", str(taken)])
        assert code == 2 and out == "" and err.startswith("prism-marl: ") and err.count("\n") == 1, name


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"format": 1, "format": 1}', "format: this field comes twice"),
        ('{"format": 1, "task": "x", "run": {"steps": 1, "steps": 2}}', "steps: this field comes twice"),
        ('{"format": 1, "task": "roles/2", "task\\u0000": 3}', "sharing.method"),
        ('{"format": 1, "task": NaN}', "task: expected text"),
    ],
)
def test_a_config_means_one_thing(taken, text, words):
    (taken / "config.json").write_text(text)
    code, _, err = answer(["eval", str(taken)])
    assert code == 2 and words in err
