"""The opponents of the benchmarks play the same game as we do."""

from pathlib import Path

import numpy as np
import pytest

from prism_marl.envs.mamujoco import make_mamujoco

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.mark.parametrize("variant", ["ant-4x2", "hopper-3x1"])
def test_gymnasiums_robot_in_our_shapes_is_our_robot(variant: str, monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from originals import OriginalRow, original  # pyright: ignore[reportMissingImports]

    ours, rng = make_mamujoco(variant, 1, 1), np.random.default_rng(0)
    theirs = OriginalRow(original(variant), ours.spec)
    falls = 0
    for seed in range(3):
        for env in (ours, theirs):
            env.reset(np.arange(1), np.array([seed]))
        for _ in range(200):
            for one, other in zip(ours.observe()[:2], theirs.observe()[:2], strict=True):
                np.testing.assert_array_equal(one, other)
            action = rng.uniform(-1, 1, (1, ours.spec.agents, ours.spec.actions)).astype(np.float32)
            one, other = ours.step(action), theirs.step(action)
            np.testing.assert_allclose(one.reward, other.reward, rtol=1e-6, atol=1e-6)
            assert (one.terminated, one.truncated) == (other.terminated, other.truncated)
            if one.terminated[0]:
                falls += 1
                break
    assert falls or variant.startswith("ant")
    ours.close()
    theirs.close()


def test_swimmers_have_no_original(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from originals import original  # pyright: ignore[reportMissingImports]

    assert original("swimmer-3x2") is None
