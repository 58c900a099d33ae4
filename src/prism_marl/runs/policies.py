"""The trained policy of a run. A finished run keeps it as files that are read without JAX; of any other run it comes
from the newest checkpoint."""

from pathlib import Path

from prism_marl.errors import UserError
from prism_marl.policies import Policy
from prism_marl.policies import load_policy as load_without_jax
from prism_marl.policies.files import finished_policy


def load_policy(run: str | Path, seed: int | None = None) -> Policy:
    """The policy of a run folder or of an exported file (``.safetensors``, ``.npz``), in numpy.

        policy = pm.load_policy("runs/a", seed=0)
        memory = policy.reset(batch=32)
        action, memory = policy.act(obs, memory, avail=mask)

    Args:
        run: a run folder, finished or not, or a file.
        seed: which of the run's seeds; by default the first.

    Returns:
        A ``Policy``. Finished runs and files are read without JAX. For an unfinished run it is the policy of the newest
        checkpoint; ``policy.contract`` says which one.
    """
    path = Path(run)
    if not path.is_dir():
        return load_without_jax(path, seed)
    found = finished_policy(path, seed)
    if found is not None:
        return found
    try:
        import jax  # noqa: F401
    except ImportError:
        raise UserError(
            f"{path} has no policy file of its newest checkpoint, and reading the checkpoint needs JAX; "
            "use `prism-marl export` where JAX is installed"
        ) from None
    from prism_marl.runs.exporting import RunPolicies

    return RunPolicies.of(path).policy(seed)
