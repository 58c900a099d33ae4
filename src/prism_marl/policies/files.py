"""Policy files: safetensors or NPZ with a description and a checksum; no pickle, no code."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import safetensors
import safetensors.numpy

from prism_marl.errors import UserError
from prism_marl.policies.contract import FORMAT, Contract
from prism_marl.policies.policy import Policy
from prism_marl.storage.files import HeldFolder, StrangeFileError, check_plain, write_atomically
from prism_marl.storage.sealed import digest, serialise

FOLDER = "policies"  # in a run folder: one file for each seed, written when the run ends
LARGEST_FILE = 2**32
LARGEST_UNPACKED = 2**28  # bytes of the arrays of an NPZ file that is smaller than they are: ours are not compressed
_NOT_ARRAYS = ("contract", "digest")  # entries of an NPZ file that are texts


def load_policy(path: str | Path, seed: int | None = None) -> Policy:
    """The policy in a file (``.safetensors`` or ``.npz``), or of one seed of a finished run folder."""
    path = Path(path)
    if not path.is_dir():
        policy = read_policy(path)
        if seed is not None and seed != policy.contract.seed:
            raise UserError(f"seed: {path} holds the policy of seed {policy.contract.seed}, not {seed}")
        return policy
    found = finished_policy(path, seed)
    if found is None:
        raise UserError(
            f"{path} has no policy of its newest checkpoint that can be read without JAX; make a file with "
            f"`prism-marl export` where JAX is installed"
        )
    return found


def policy_file(folder: Path, seed: int) -> Path:
    """Where a finished run keeps the policy of a seed."""
    return folder / FOLDER / f"seed-{seed}.safetensors"


def factors_file(folder: Path) -> Path:
    """Where a finished run keeps the first seed's policy with the factors that agents share, all directions included:
    what the page's switches need."""
    return folder / FOLDER / "factors.safetensors"


def finished_policy(folder: Path, seed: int | None = None) -> Policy | None:
    """The policy that a run folder keeps of a seed, by default the first; None if there is none, or if the run has
    gone on since it was written."""
    seeds = sorted(int(p.stem[5:]) for p in (folder / FOLDER).glob("seed-*.safetensors") if p.stem[5:].isdecimal())
    if not seeds:
        return None
    chosen = seeds[0] if seed is None else seed
    if chosen not in seeds:
        raise UserError(f"seed: the run in {folder} has seeds {seeds[0]} to {seeds[-1]}, not {seed}")
    policy = read_policy(policy_file(folder, chosen), folder)
    saved = [int(p.stem) for p in (folder / "checkpoints").glob("*.safetensors") if p.stem.isdecimal()]
    return policy if not saved or policy.contract.checkpoint == max(saved) else None


def read_policy(path: Path, root: Path | None = None) -> Policy:
    """A policy from a file. Raises one sentence if it is damaged, edited, or something else."""
    path = Path(path)
    readers = {".safetensors": _read_safetensors, ".npz": _read_npz}
    if path.suffix.lower() == ".onnx":
        raise UserError(
            f"{path} is for an ONNX runtime; load_policy reads .safetensors and .npz (export --format numpy)"
        )
    if path.suffix.lower() not in readers:
        raise UserError(f"{path}: a policy file ends in .safetensors or .npz; export one with `prism-marl export`")
    try:
        content = check_plain(path, root or path.parent, LARGEST_FILE).read_bytes()
        tensors, written, found = readers[path.suffix.lower()](content)
    except FileNotFoundError:
        raise UserError(f"there is no policy file {path}; make one with `prism-marl export`") from None
    except StrangeFileError as error:
        raise UserError(f"{path} {error}; export the run again", code=1) from None
    except (
        *(OSError, ValueError, TypeError, KeyError, MemoryError, EOFError, NotImplementedError, RuntimeError),
        *(safetensors.SafetensorError, zipfile.BadZipFile),
    ) as error:
        raise UserError(
            f"{path} cannot be read as a policy ({type(error).__name__}); it is truncated or something else: "
            "export the run again",
            code=1,
        ) from None
    if found is None or written is None:
        raise UserError(f"{path} is not a policy of prism-marl (format '{FORMAT}'); export the run again", code=1)
    if found != digest(tensors, written):
        raise UserError(f"{path} was damaged or edited: its checksum does not match; export the run again", code=1)
    return Policy(Contract.from_json(written, str(path)), tensors, str(path))


def write_policy(policy: Policy, path: Path, inside: HeldFolder | None = None) -> Path:
    """Write a policy so that ``read_policy`` reads it; the ending of the name says in which format."""
    written, tensors = policy.contract.to_json(), policy.tensors
    if path.suffix.lower() == ".npz":
        arrays = {**tensors, "contract": np.array(written), "digest": np.array(digest(tensors, written))}
        content = _npz(arrays)
    else:
        content = serialise(tensors, {"contract": written, "digest": digest(tensors, written), "format": FORMAT})
    write_atomically(path, content, inside)
    return path


def _npz(arrays: dict[str, np.ndarray]) -> bytes:
    """As ``numpy.savez``, with a fixed date, so that equal policies are equal files."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, value in sorted(arrays.items()):
            entry = io.BytesIO()
            np.lib.format.write_array(entry, np.asarray(value), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0)), entry.getvalue())
    return file.getvalue()


def _read_safetensors(content: bytes) -> tuple[dict[str, np.ndarray], str | None, str | None]:
    tensors = dict(sorted(safetensors.numpy.load(content).items()))  # the library gives them in a random order
    header = _header(content)
    return tensors, header.get("contract"), header.get("digest")


def _header(content: bytes) -> dict[str, str]:
    metadata = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")]).get("__metadata__")
    return metadata if isinstance(metadata, dict) else {}


def _read_npz(content: bytes) -> tuple[dict[str, np.ndarray], str | None, str | None]:
    """The arrays of an archive, read one by one in memory; numpy refuses objects, which would be pickles."""
    arrays: dict[str, np.ndarray] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        claimed = sum(entry.file_size for entry in archive.infolist())  # a small archive can claim anything
        if claimed > max(len(content), LARGEST_UNPACKED):
            raise StrangeFileError(f"unpacks to more than {LARGEST_UNPACKED // 2**20} MiB")
        for entry in archive.infolist():
            with archive.open(entry) as file:
                arrays[entry.filename.removesuffix(".npy")] = np.lib.format.read_array(file, allow_pickle=False)
    texts = {name: str(arrays.pop(name)) if name in arrays else None for name in _NOT_ARRAYS}
    return arrays, texts["contract"], texts["digest"]
