"""Lowered programs on their shelf: a second start traces nothing, computes the same, and trusts no file blindly."""

import contextlib
import os
import sys
import types
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import prism_marl
from prism_marl.experiment import plugins
from prism_marl.experiment.presets import preset
from prism_marl.learners.matd3 import MATD3Learner
from prism_marl.monitor import Quiet
from prism_marl.runs import checkpoint, runner
from prism_marl.sharing import METHODS, Prism
from prism_marl.storage.cache import Cache, sealed
from prism_marl.training import export_cache
from prism_marl.training.build import make_trainer
from prism_marl.training.export_cache import ExportCache, open_export_cache
from prism_marl.training.programs import Programs
from prism_marl.training.trainer import Trainer
from tiny import same_arrays, same_result, small, trainer_of


@pytest.fixture(autouse=True)
def no_strangers(monkeypatch):
    """Files of users that other tests have loaded into this process would turn keeping off."""
    for name in [name for name in sys.modules if name.startswith(plugins.PREFIX)]:
        monkeypatch.delitem(sys.modules, name)


def refuse(*arguments, **options):
    raise AssertionError("traced, although it was kept")


def test_a_second_start_traces_nothing_and_ends_with_the_same_bits(tmp_path, monkeypatch):
    experiment = small("roles/2", "prism", run__steps="40", run__eval_every="20", sharing__reset_interval="10")
    first = runner.run(experiment, tmp_path / "first", cache=tmp_path)
    kept = {path.name.partition("-")[0] for path in (tmp_path / "lowered").iterdir()}
    assert kept == {"matrices", "networks", "learn", "evaluate", "spectra", "refresh"}
    for name in ("advance", "evaluate", "spectra", "refresh"):
        monkeypatch.setattr(Trainer, name, refuse)
    second = runner.run(experiment, tmp_path / "second", cache=tmp_path)
    assert same_result(first, second)


def test_networks_of_a_second_start_are_drawn_without_tracing(tmp_path, monkeypatch):
    """Also where training itself is a loop in Python; and they are those that are drawn without a shelf."""
    trainer = make_trainer(preset("reach/3", "fups").with_option("network.width", "8"))
    shapes, shelf = trainer.shapes(), open_export_cache(tmp_path, trainer)
    plain, first = (Programs(trainer, Quiet(), shapes, export_cache=which).init() for which in (None, shelf))
    monkeypatch.setattr(MATD3Learner, "init", refuse)
    second = Programs(trainer, Quiet(), shapes, export_cache=shelf).init()
    drawn = [checkpoint.flatten(state.seeds) for state in (plain, first, second)]
    assert same_arrays(drawn[0], drawn[1]) and same_arrays(drawn[0], drawn[2])


class Doubling:
    """A program that counts how often it is traced."""

    traced = 0

    def __call__(self, state, number):
        self.traced += 1
        return {"x": state["x"] * 2 + number, "key": jax.random.split(state["key"])[0]}

    def on(self, shelf: ExportCache, **options):
        options = {"donate": False} | options
        return shelf.program("double", self, self.arguments(), **options)

    @staticmethod
    def arguments():
        return {"x": jnp.arange(4.0), "key": jax.random.key(3)}, jnp.float32(1)


def test_only_a_donated_argument_is_consumed(tmp_path):
    for donate in (True, False):
        for _ in ("made", "read"):
            state, number = Doubling.arguments()
            program = Doubling().on(ExportCache(Cache(tmp_path), ""), donate=donate, template=state)
            result = program(state, number)
            assert result["x"].tolist() == [1, 3, 5, 7] and result["key"].dtype == jax.random.key(0).dtype
            assert (state["x"].is_deleted(), number.is_deleted()) == (donate, False)


def only_file(folder):
    (path,) = folder.iterdir()
    return path


def swapped(path):
    """Put the sound file of another program under this name."""
    other = path.parent.with_name("other")
    ExportCache(Cache(other), "").program("triple", lambda x, y: x["x"] * 3 + y, Doubling.arguments(), donate=False)
    path.write_bytes(only_file(other).read_bytes())


DAMAGE = {
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "a bit flipped": lambda path: path.write_bytes(path.read_bytes()[:-1] + bytes([path.read_bytes()[-1] ^ 1])),
    "emptied": lambda path: path.write_bytes(b""),
    "sealed nonsense": lambda path: path.write_bytes(sealed(path.stem, b"no") + b"no"),
    "of another program": swapped,
    "a link to nowhere": lambda path: (path.unlink(), path.symlink_to("nowhere")),
    "a pipe that nobody writes": lambda path: (path.unlink(), os.mkfifo(path)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_file_that_is_not_what_was_kept_is_made_anew(tmp_path, damage):
    shelf, arguments = ExportCache(Cache(tmp_path / "kept"), ""), Doubling.arguments()
    Doubling().on(shelf)
    damage(only_file(shelf.cache.folder))
    after, later = Doubling(), Doubling()
    assert after.on(shelf)(*arguments)["x"].tolist() == [1, 3, 5, 7] and after.traced
    assert later.on(shelf)(*arguments)["x"].tolist() == [1, 3, 5, 7] and not later.traced


def test_a_folder_that_cannot_be_written_costs_time_only(tmp_path):
    (tmp_path / "file").write_text("")
    for _ in range(2):
        function = Doubling()
        assert function.on(ExportCache(Cache(tmp_path / "file"), ""))(*function.arguments())["x"].tolist() == [
            1,
            3,
            5,
            7,
        ]
        assert function.traced


@pytest.mark.parametrize("shape", [(3,), (2, 2)])
def test_other_shapes_are_another_program(tmp_path, shape):
    shelf = ExportCache(Cache(tmp_path), "")
    for size in ((4,), shape):
        program = shelf.program("sum", lambda x: x.sum(), [jnp.ones(size)], donate=False)
        assert program(jnp.ones(size)) == np.prod(size)


def test_what_cannot_be_exported_is_left_to_the_ordinary_way(tmp_path):
    calls_back = lambda x: jax.pure_callback(np.sin, x, x)  # noqa: E731
    for function in (calls_back, refuse):
        assert ExportCache(Cache(tmp_path), "").program("odd", function, [jnp.ones(2)], donate=False) is None
    assert not list(tmp_path.iterdir())


def origin(experiment) -> str:
    shelf = open_export_cache(Path("cache"), make_trainer(experiment))
    assert shelf is not None
    return shelf.origin


@contextlib.contextmanager
def changed(flag: str, value):
    before = getattr(jax.config, flag)
    jax.config.update(flag, value)
    yield
    jax.config.update(flag, before)


def test_whatever_decides_a_program_is_part_of_its_name(tmp_path, monkeypatch):
    experiment = preset("lbf/10x10-3p-3f", "prism")
    found = [origin(experiment)]
    assert origin(experiment) == found[0]
    found += [origin(experiment.with_option("run.seed", "1")), origin(preset("lbf/10x10-3p-2f", "prism"))]
    for flag, value in (("jax_default_matmul_precision", "bfloat16"), ("jax_enable_x64", True)):
        with changed(flag, value):
            found.append(origin(experiment))
    monkeypatch.setattr(export_cache.importlib.metadata, "version", lambda package: "0")
    found.append(origin(experiment))
    source = tmp_path / "part" / "code.py"
    source.parent.mkdir()
    monkeypatch.setattr(prism_marl, "__file__", str(tmp_path / "__init__.py"))
    for text in ("x = 1", "x = 2"):
        source.write_text(text)
        found.append(origin(experiment))
    source.rename(tmp_path / "part" / "other.py")
    found.append(origin(experiment))
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("task", ["lbf/10x10-3p-3f", "skirmish/terran_5_vs_5", "roles/4", "reach/3", "reach_jax/3"])
def test_every_start_of_an_experiment_finds_the_same_names(task):
    for method in METHODS:
        assert origin(preset(task, method)) == origin(preset(task, method))


class Mine(Prism):
    """A method from a file of the user's."""


def test_code_from_elsewhere_is_not_kept(tmp_path, monkeypatch):
    experiment = preset("roles/4", "prism")
    assert open_export_cache(None, make_trainer(experiment)) is None
    assert open_export_cache(tmp_path, make_trainer(experiment.changed(sharing=Mine()))) is None
    spec = make_trainer(experiment).learner.spec
    adapted = type("JaxMARL", (), {"__module__": "prism_marl.envs.jaxmarl", "spec": spec})()
    for env in (adapted, types.SimpleNamespace(spec=spec)):
        assert open_export_cache(tmp_path, trainer_of(experiment, env)) is None
    (tmp_path / "own.py").write_text("")
    module = plugins.load_file(tmp_path / "own.py")
    try:
        assert open_export_cache(tmp_path, make_trainer(experiment)) is None
    finally:
        monkeypatch.delitem(plugins.sys.modules, module.__name__)
