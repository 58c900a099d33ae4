"""Every example runs as a program, without a warning, and says what it should.

In processes of their own: examples register methods, tasks and learners for good.
"""

import re
import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def numbers(name: str) -> list[float]:
    """All numbers that ``main`` prints."""
    code = f"import {name}; {name}.main()"
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=EXAMPLES, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    return [float(word) for word in re.findall(r"\d+(?:\.\d+)?", done.stdout)]


def test_custom_network_beats_every_shared_function():
    before, after, floor = numbers("custom_network")
    assert after < floor < before


def test_new_sharing_method_solves_roles():
    reached, steps, private, private_of_prism = numbers("add_sharing_method")
    assert reached == 1
    assert steps == 2000
    assert private > private_of_prism > 0


def test_new_environment_is_learned_and_recorded():
    before, after, _, frames = numbers("add_environment")
    assert before < 0.5 < 0.9 < after
    assert frames >= 2


def test_new_learner_solves_roles():
    assert numbers("add_learner")[0] == 1
