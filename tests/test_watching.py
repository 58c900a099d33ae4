"""Robots and diagnostic tasks as films, as text and on the page, without training for long."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from prism_marl import cli
from prism_marl.cli import eval, filming
from prism_marl.envs.mamujoco import camera
from prism_marl.errors import UserError
from prism_marl.experiment.experiment import Experiment
from prism_marl.reports.page import render_page
from prism_marl.reports.page_data import load_study, page_data
from prism_marl.runs import checkpoint, runner
from prism_marl.runs import folder as run_folder
from prism_marl.runs.run_files import REPLAY_FRAMES, REPLAY_SHAPES, worth_keeping
from prism_marl.runs.trained import load_trained
from prism_marl.scene import Scene, Shape
from prism_marl.training.state import packed
from tiny import small, small_steps


@pytest.fixture(scope="module", params=["mamujoco/hopper-3x1", "reach/3"])
def run(request, tmp_path_factory):
    """A finished run of a robot, which falls soon, and a run of another task that was only begun."""
    folder = tmp_path_factory.mktemp("watched") / "run"
    sizes = {"learner__updates": "2", "run__steps": "40", "run__eval_every": "40", "run__eval_episodes": "2"}
    experiment = small_steps(request.param, **sizes)
    return begun(experiment, folder) if experiment.task == "reach/3" else runner.run(experiment, folder)


def begun(experiment: Experiment, folder: Path) -> Path:
    """What a run leaves behind before its first update, which need not be compiled for looking at it."""
    folder.mkdir()
    (folder / "config.json").write_text(experiment.to_json())
    trainer = runner.make_trainer(experiment)
    state = trainer.init()
    with contextlib.closing(checkpoint.Writer(folder / "checkpoints", run_folder.owner(folder))) as writer:
        writer.save(0, checkpoint.flatten(packed(state)), {})
    scenes, total = trainer.watch(state, seed=0, number=0)
    if scenes:
        run_folder.write_replay(folder, "seed-0", "greedy episode", total, scenes)
    return folder


ROBOT = pytest.mark.parametrize("run", ["mamujoco/hopper-3x1"], indirect=True)  # what has a camera


@pytest.fixture(scope="module")
def loaded(run):
    return load_trained(run, 2)[:2]


def frames_of(path) -> int:
    with Image.open(path) as film:
        return getattr(film, "n_frames", 1)


def test_eval_writes_a_film_and_prints_pictures(run, loaded, tmp_path, capsys):
    assert cli.main(["eval", str(run), "--episodes", "2", "--render", str(tmp_path / "x.gif")]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    scenes, total = loaded[0].watch(loaded[1], seed=0, number=0)
    assert f"return {total:.3f} in {len(scenes) - 1} steps" in out
    assert frames_of(tmp_path / "x.gif") == len(scenes) > 3
    eval.render(loaded[0], loaded[1], 0, 0, "text")
    shown = capsys.readouterr().out
    assert shown.count("step ") == min(len(scenes), filming.TEXT_FRAMES)
    assert any(letter in shown for letter in "ABC")


def test_the_page_shows_the_episode_and_stays_small(run):
    held = json.loads((run / "replays" / "seed-0.json").read_text())
    (run_data,) = page_data(load_study([run]), {})["runs"]
    (replay,) = run_data["replays"]
    assert len(replay["frames"]) == len(held["frames"]) > 3
    assert all(np.isfinite(shape[1:4]).all() for frame in replay["frames"] for shape in frame["shapes"])
    if (run / "done").exists():
        assert run_data["curves"]["return"]["x"][0] == 0 and run_data["spectra"]["layers"] and not run_data["notes"]
    assert len(render_page(load_study([run]))) < 1_500_000


def test_a_camera_is_refused_where_there_is_none_or_nothing_to_film_into(run, capsys):
    robot = "hopper" in (run / "config.json").read_text()
    for words in (["--camera"], ["--camera", "--render", "text"]):
        assert cli.main(["eval", str(run), *words]) == 2
        out, err = capsys.readouterr()
        assert out == "" and err.count("\n") == 1
        assert "--render FILE.gif" in err if robot else "'reach/3' has no camera" in err
    assert cli.main(["eval", str(run), "--render", "x.avi"]) == 2
    assert ".gif, .mp4 and the word text are known, try 'x.gif'" in capsys.readouterr().err


def test_what_has_no_drawing_is_refused_before_it_is_played(tmp_path, capsys):
    folder = begun(small("roles/2", "fups"), tmp_path / "run")
    assert cli.main(["eval", str(folder), "--render", "x.gif"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and "'roles/2' has no drawing; lbf, orchard, skirmish, mamujoco and reach tasks do" in err


@ROBOT
def test_the_camera_films_what_the_drawing_shows(loaded, tmp_path, monkeypatch, capsys):
    trainer, state = loaded
    seen: list[list] = []

    def frames(task, snapshots, row=0):
        seen.append(list(snapshots))
        return [np.full((8, 8, 3), 10 * k % 255, np.uint8) for k in range(len(seen[-1]))]

    monkeypatch.setattr(camera, "frames", frames)
    eval.render(trainer, state, 0, 0, str(tmp_path / "x.gif"), camera=True)
    scenes, total = trainer.watch(state, seed=0, number=0)
    assert f"return {total:.3f} in {len(scenes) - 1} steps" in capsys.readouterr().out
    assert [int(one["clock"][0]) for one in seen[0]] == list(range(len(scenes)))
    env = trainer.collector.shared(1)
    for snapshot, scene in zip(seen[0], scenes, strict=True):
        env.restore(snapshot)
        assert env.scene(0) == scene


@ROBOT
def test_without_a_graphics_library_one_sentence_is_said_before_anything_is_played(run):
    code = (
        "import ctypes.util, sys\nctypes.util.find_library = lambda name: None\n"
        f"from prism_marl import cli\nsys.exit(cli.main(['eval', {str(run)!r}, '--camera', '--render', 'x.gif']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=run.parent)
    assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1
    assert "install libegl1 or libosmesa6" in done.stderr and "stick figure needs neither" in done.stderr
    assert not (run.parent / "x.gif").exists()


def test_long_episodes_are_thinned_and_keep_both_ends():
    def episode(number: int, shapes: int) -> list[Scene]:
        shape = Shape("disc", 1.0, 1.0, 1.0, 0)
        return [Scene(4, 4, (shape,) * shapes, caption=str(k)) for k in range(number)]

    assert worth_keeping(episode(201, 5)) == episode(201, 5)
    kept = worth_keeping(episode(1001, 5))
    assert len(kept) == REPLAY_FRAMES and (kept[0].caption, kept[-1].caption) == ("0", "1000")
    many = worth_keeping(episode(300, 2049))
    assert sum(len(frame.shapes) for frame in many) <= REPLAY_SHAPES and many[-1].caption == "299"
    assert len(worth_keeping(episode(10, REPLAY_SHAPES + 1))) == 2 and worth_keeping([]) == []
    assert len(filming.thinned(range(1001), filming.FILM_FRAMES)) == filming.FILM_FRAMES


def test_films_of_any_length_end_in_time(monkeypatch, tmp_path):
    rates: list[float] = []
    monkeypatch.setattr(filming, "write_film", lambda frames, path, fps: rates.append(fps))
    for number in (3, 100, 200, 401):
        filming.save([Image.new("RGB", (4, 4))] * number, tmp_path / "x.gif")
    assert rates == [5.0, 5.0, 10.0, 401 / 20]


def test_eval_names_a_bad_target_before_it_plays():
    with pytest.raises(UserError, match=r"try 'film\.gif'"):
        filming.check_target("folder/film.avi")
    filming.check_target("text")
    filming.check_target("B.GIF")
    with pytest.raises(UserError, match="there is no folder 'a'"):
        filming.check_target("a/B.GIF")
