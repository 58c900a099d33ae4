"""Checkpoints: bit by bit what was saved, or one sentence; never half a file, never code."""

import ast
import errno
import json
import os
import shutil
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

import prism_marl
from prism_marl.errors import UserError
from prism_marl.runs import checkpoint
from prism_marl.runs.folder import load_experiment, owner
from prism_marl.runs.runner import make_trainer
from prism_marl.storage import sealed
from tiny import foraging, same_arrays, small

NOTES = {"evaluation": 3, "sizes": {"eval": 17}}


class Part(eqx.Module):
    weight: jax.Array
    static: int = eqx.field(static=True)


def state_of(seed: int = 0):
    """One leaf of every kind that a training state holds."""
    rng = np.random.default_rng(seed)
    return {
        "keys": jax.random.split(jax.random.key(seed), 3),
        "mask": jnp.asarray(rng.random((2, 3)) < 0.5),
        "observation": jnp.asarray(rng.integers(-128, 128, 9), jnp.int8),
        "steps": jnp.asarray(rng.integers(-(2**15), 2**15, 4), jnp.int16),
        "bits": jnp.asarray(rng.integers(0, 256, 5), jnp.uint8),
        "empty": jnp.zeros((4, 0), jnp.int8),
        "nothing": None,
        "part": Part(jnp.asarray([np.nan, -0.0, np.inf, 1e-42], jnp.float32), static=3),
        "count": (jnp.int32(7 + seed), jnp.uint32(2**32 - 1)),
    }


def bits(state) -> list[tuple]:
    leaves = [
        jax.random.key_data(leaf) if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf
        for leaf in jax.tree.leaves(state)
    ]
    return [(leaf.dtype, leaf.shape, np.asarray(leaf).tobytes()) for leaf in leaves]


def written(folder: Path, number: int = 1, seed: int = 0) -> Path:
    return checkpoint.save(folder, number, checkpoint.flatten(state_of(seed)), NOTES)


def refused(path: Path, like=None, owner: str = "") -> str:
    with pytest.raises(UserError) as error:
        checkpoint.load(path, state_of() if like is None else like, owner)
    assert "\n" not in str(error.value) and path.name in str(error.value) and error.value.code == 1
    return str(error.value)


def test_every_kind_of_array_comes_back_bit_by_bit(tmp_path):
    state = state_of()
    for like in (state, jax.eval_shape(lambda: state)):
        back, notes = checkpoint.load(written(tmp_path), like)
        assert bits(back) == bits(state) and notes == NOTES
        assert jax.tree.structure(back) == jax.tree.structure(state)
    drawn = jax.random.normal(back["keys"][1], (4,))
    assert (drawn == jax.random.normal(state["keys"][1], (4,))).all()


def test_a_whole_training_state_comes_back_bit_by_bit(trained, tmp_path):
    newest, like = checkpoint.paths(trained / "checkpoints")[0], jax.eval_shape(make_trainer(foraging()).init)
    state, notes = checkpoint.load(newest, like, owner(trained))
    again = checkpoint.save(tmp_path, int(newest.stem), checkpoint.flatten(state), notes, "x")
    assert same_arrays(safetensors.numpy.load_file(again), safetensors.numpy.load_file(newest))
    back, kept = checkpoint.load(again, like, "x")
    assert bits(back) == bits(state) and kept == notes
    kinds = {str(leaf.dtype) for leaf in jax.tree.leaves(state)}
    assert {"key<fry>", "bool", "int8", "uint8", "int32", "float32"} <= kinds
    assert any(leaf.size == 0 for leaf in jax.tree.leaves(state))

    other = jax.eval_shape(make_trainer(small("lbf/4x4-2p-1f", "prism", network__width="9")).init)
    assert "does not fit this experiment" in refused(again, other, "x")
    method = jax.eval_shape(make_trainer(small("lbf/4x4-2p-1f", "fups")).init)
    assert "has no counterpart" in refused(again, method, "x")


def test_every_flipped_bit_is_noticed(tmp_path):
    path = written(tmp_path)
    whole, rng = path.read_bytes(), np.random.default_rng(0)
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(damaged)
        refused(path)
    path.write_bytes(whole)
    checkpoint.load(path, state_of())


@pytest.mark.parametrize("keep", [0, 1, 7, 8, 60, -1, -30])
def test_a_truncated_file_is_refused(tmp_path, keep):
    path = written(tmp_path)
    path.write_bytes(path.read_bytes()[:keep])
    refused(path)


def test_other_files_are_refused(tmp_path):
    path = written(tmp_path)
    path.write_bytes(b"\x80\x04\x95" + bytes(100))
    refused(path)
    path.unlink()
    path.mkdir()
    refused(path)


def test_another_format_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "FORMAT", "99")
    path = written(tmp_path)
    monkeypatch.undo()
    words = refused(path)
    assert f"has format 99, this version reads {checkpoint.FORMAT}; a newer prism-marl wrote it: update" in words


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"count": (jnp.int32(7),)}, "no counterpart"),
        ({"mask": jnp.zeros((2, 3), jnp.int8)}, "'mask' is bool[2, 3], expected int8[2, 3]"),
        ({"mask": jnp.zeros((3, 2), bool)}, "expected bool[3, 2]"),
        ({"keys": jax.random.split(jax.random.key(0), 4)}, "'keys'"),
    ],
)
def test_a_state_of_another_shape_is_refused_by_name(tmp_path, change, words):
    assert words in refused(written(tmp_path), state_of() | change)


def test_a_file_in_place_of_another_is_refused(tmp_path):
    mine, later = (checkpoint.save(tmp_path, n, checkpoint.flatten(state_of()), NOTES, "mine") for n in (1, 2))
    checkpoint.load(mine, state_of(), "mine")
    assert "belongs to another experiment" in refused(mine, owner="yours")
    later.write_bytes(mine.read_bytes())
    assert "was written as number 00000001" in refused(later, owner="mine")
    back, _, complaints = checkpoint.load_newest(tmp_path, state_of(), "mine")
    assert bits(back) == bits(state_of()) and len(complaints) == 1 and later.name in complaints[0]


def test_notes_may_speak_against_a_checkpoint(tmp_path):
    for number in (1, 2):
        checkpoint.save(tmp_path, number, checkpoint.flatten(state_of()), {"at": number})
    complain = lambda notes: "too late" if notes["at"] > 1 else None  # noqa: E731
    _, notes, complaints = checkpoint.load_newest(tmp_path, state_of(), complain=complain)
    assert notes == {"at": 1} and complaints == ["checkpoint 00000002.safetensors cannot be continued: too late"]
    with pytest.raises(UserError, match=r"never; no other checkpoint .* can be used: start in a new folder"):
        checkpoint.load_newest(tmp_path, state_of(), complain=lambda notes: "never")


def test_a_damaged_checkpoint_falls_back_to_the_one_before_and_says_so(tmp_path):
    for number in (4, 5):
        written(tmp_path, number, seed=number)
    damaged = tmp_path / "00000005.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-3])
    state, notes, complaints = checkpoint.load_newest(tmp_path, state_of())
    assert int(state["count"][0]) == 11 and notes == NOTES
    assert len(complaints) == 1 and damaged.name in complaints[0]
    (tmp_path / "00000004.safetensors").write_bytes(b"")
    with pytest.raises(UserError, match=r"no other checkpoint .* can be used"):
        checkpoint.load_newest(tmp_path, state_of())
    assert checkpoint.load_newest(tmp_path / "nowhere", state_of()) is None


def test_only_the_newest_stay_in_the_order_of_their_numbers(tmp_path):
    for number in (1, 9, 99_999_999, 100_000_000, 1_000_000_000):
        written(tmp_path, number)
    assert [int(path.stem) for path in checkpoint.paths(tmp_path)] == [1_000_000_000, 100_000_000]
    assert len(list(tmp_path.iterdir())) == checkpoint.KEEP == 2


def no_space(*arguments):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("place", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file_alone(tmp_path, monkeypatch, place):
    path = tmp_path / "rows"
    checkpoint.write_atomically(path, b"old")
    monkeypatch.setattr(*((os, "fsync") if place == "fsync" else (Path, "replace")), no_space)
    with pytest.raises(UserError, match="No space left on device") as error:
        checkpoint.write_atomically(path, b"new")
    assert error.value.code == 1 and "\n" not in str(error.value)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["rows"]  # noqa: PTH208


def test_the_writer_has_a_copy_and_reports_a_failed_write(tmp_path, monkeypatch):
    """A copy of what JAX may use again; arrays of the host are handed over, and nobody writes into them any more."""
    writer = checkpoint.Writer(tmp_path)
    state = {"x": jnp.arange(4), "host": np.arange(3)}
    tensors = checkpoint.flatten(state)
    assert not np.shares_memory(tensors["x"], np.asarray(state["x"])) and tensors["host"] is state["host"]
    writer.save(1, tensors, NOTES)
    writer.wait()
    shapes = {"x": jax.ShapeDtypeStruct((4,), jnp.int32), "host": np.empty(3, np.int64)}
    back, _ = checkpoint.load(tmp_path / "00000001.safetensors", shapes)
    assert back["x"].tolist() == [0, 1, 2, 3] and back["host"].tolist() == [0, 1, 2]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", no_space)
        writer.save(2, checkpoint.flatten(state), NOTES)
        with pytest.raises(UserError, match="No space left"):
            writer.close()
    assert [path.name for path in tmp_path.iterdir()] == ["00000001.safetensors"]


def test_parts_of_files_are_cleared(tmp_path):
    written(tmp_path / "checkpoints")
    part = tmp_path / "checkpoints" / ".00000002.safetensors.123.tmp"
    others = [tmp_path / ".notes.tmp", tmp_path / "project" / "deep" / ".data.7.tmp"]
    others[1].parent.mkdir(parents=True)
    for path in (part, *others):
        path.write_bytes(b"half")
    checkpoint.remove_leftovers(tmp_path)
    assert not part.exists() and checkpoint.paths(tmp_path / "checkpoints")
    assert all(path.exists() for path in others), "somebody else's"


def test_equal_content_gives_equal_bytes():
    tensors, metadata = checkpoint.flatten({"x": jnp.arange(5.0)}), dict.fromkeys("abcdefgh", "ü")
    files = {sealed.serialise(tensors, dict(pairs)) for pairs in (metadata.items(), reversed(metadata.items()))}
    assert len(files) == 1 and len({sealed.serialise(tensors, metadata) for _ in range(20)} | files) == 1
    assert safetensors.numpy.load(files.pop())["x"].tolist() == [0, 1, 2, 3, 4]


def test_nothing_in_the_package_runs_what_it_reads():
    forbidden = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "joblib"}
    for path in Path(prism_marl.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(alias.name for alias in node.names)]
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec", "compile"), path
            elif isinstance(node, ast.keyword):
                assert node.arg != "allow_pickle" or ast.unparse(node.value) == "False", path
            assert not forbidden & {name.partition(".")[0] for name in names}, path


def test_a_folder_of_a_newer_version_is_refused_with_the_remedy(trained, tmp_path):
    folder = shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("checkpoints"))
    settings = json.loads((folder / "config.json").read_text())
    machine = json.loads((folder / "machine.json").read_text())
    (folder / "config.json").write_text(json.dumps(settings | {"added_later": 1}))
    with pytest.raises(UserError, match="added_later") as error:  # of this version: a field that nobody knows
        load_experiment(folder)
    assert "update prism-marl" not in str(error.value)
    segments = [segment | {"prism_marl": "99.0.0"} for segment in machine["segments"]]
    (folder / "machine.json").write_text(json.dumps(machine | {"prism_marl": "99.0.0", "segments": segments}))
    with pytest.raises(UserError, match=r"was written by prism-marl 99\.0\.0 .*added_later.*; update prism-marl$"):
        load_experiment(folder)
    (folder / "config.json").write_text(json.dumps(settings | {"format": 2}))
    with pytest.raises(UserError, match=r"format 2 is of a newer version of prism-marl.*update prism-marl to 2\.0"):
        load_experiment(folder)
