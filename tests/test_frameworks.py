"""What holds where PyTorch, Flax and Haiku are not installed; tests_frameworks/ has the rest (`make torch`)."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def python(code: str) -> subprocess.CompletedProcess[str]:
    """Run code in a process that has no PyTorch."""
    code = f"import sys; sys.modules['torch'] = None; {code}"
    return subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)


def test_without_torch_one_sentence_names_the_remedy():
    done = python("import prism_marl.torch")
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("ModuleNotFoundError")]
    assert done.returncode == 1
    assert sentence == (
        "ModuleNotFoundError: prism_marl.torch needs PyTorch: "
        "pip install 'prism-marl[torch]', or from a clone pip install -e '.[torch]'"
    )
    assert "During handling" not in done.stderr and "prism_marl/runs" not in done.stderr


def test_the_rest_works_without_torch():
    done = python("import prism_marl as pm; pm.sharing.Prism(); pm.load_policy; print('fine')")
    assert (done.returncode, done.stdout) == (0, "fine\n"), done.stderr


def test_the_lock_stays_without_these_frameworks():
    names = {line.partition("==")[0] for line in (ROOT / "requirements.lock").read_text().splitlines() if "==" in line}
    assert "jax" in names and not names & {"torch", "flax", "dm-haiku"}
