"""Trained teams that come with the package, small enough to ship: ``prism-marl play lbf``."""

from pathlib import Path

from prism_marl.errors import UserError, nearest
from prism_marl.policies.files import read_policy
from prism_marl.policies.policy import Policy

FOLDER = Path(__file__).parent / "trained"


def example_names() -> tuple[str, ...]:
    """Names of all examples; ``docs/deploy.md`` says how each was trained."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.safetensors")))


def load_example(name: str) -> Policy:
    """The policy of an example."""
    if name not in example_names():
        raise UserError(f"there is no example '{name}'; {nearest(name, example_names())}")
    return read_policy(FOLDER / f"{name}.safetensors")
