"""The files of a run, read with distrust: JSON, weights with a checksum, a state of plain tensors."""

from __future__ import annotations

import hashlib
import io
import json
import pickletools
import zipfile
import zlib
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from letgo.config import Config
from letgo.data.files import regular_file, write_atomically
from letgo.errors import LetgoError
from letgo.typed import Between, Count, Natural, Positive, Share, check

Weights = dict[str, Tensor]
MOST_JSON = 4 << 20  # bytes of a configuration, a card or a table of settings
RESTORE = "restore it, or start again in another --out folder"
# All that a pickle of plain tensors calls for.
PLAIN = {"collections OrderedDict", "torch FloatStorage", "torch._utils _rebuild_tensor_v2"}


class Moments(TypedDict):
    """Moments are what the optimiser knows."""

    step: Positive
    exp_avg: Weights
    exp_avg_sq: Weights


class State(TypedDict):
    """State is what `state.pt` holds: all that a run needs to go on."""

    step: Natural
    config: dict[str, Any]
    raw: Weights
    ema: Weights
    optimizer: Moments
    loss_sum: Weights
    logged: Natural
    seconds: NotRequired[Positive]
    instances: NotRequired[int]
    objective: NotRequired[Weights]  # what it has for its next step, where it has anything


class Setting(TypedDict):
    """A Setting has the settings of a rule."""

    sigma: Annotated[float, Between(0, 1e6)]
    tau_start: NotRequired[Share | None]


class Band(TypedDict):
    """A Band has the times between which a rule that lets go of the state noises its proposals."""

    t_max: Share
    t_min: Share


class Belief(TypedDict):
    """A Belief says from where on a board is believed: after a try, and on the way, by the next proposal."""

    sure: float | None
    sure_early: NotRequired[float | None]


class Validation(TypedDict, total=False):
    """Validation is what is read of `validation.json`: which weights were exported, and why."""

    step: Natural
    weights: str
    rule: str
    scores: dict[str, float]
    count: Natural


class Tuning(TypedDict):
    """Tuning is what is read of a table of `letgo tune`."""

    best: Setting | Band | Belief
    steps: NotRequired[Count]


class Card(TypedDict, total=False):
    """A Card is what is read of a model's card."""

    summary: str
    sha256: str
    steps: Natural
    generation_rule: str | None
    then: str | None  # the model that takes over what this one has not solved at its first try


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path, most: int = MOST_JSON) -> Any:
    if not path.exists():
        raise LetgoError(f"{path} is missing; is {path.parent} a letgo run folder?")
    regular_file(path, most)
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(values, ensure_ascii=False).encode()  # half a character could not be written again
        return values
    except (OSError, ValueError, RecursionError) as error:
        raise LetgoError(f"{path} is not readable JSON ({error}); restore it or start a new run") from None


def save_weights(path: Path, weights: Weights, dtype: torch.dtype | None = None) -> None:
    tensors = {k: v.detach().to("cpu", dtype or v.dtype).contiguous() for k, v in weights.items()}
    plain = save(tensors)
    start = 8 + int.from_bytes(plain[:8], "little")
    about = {"format": "pt", "crc32": crc32_of(tensors)}  # `save` itself writes these two in a random order
    header = json.dumps({"__metadata__": about, **json.loads(plain[8:start])}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    write_atomically(path, len(header).to_bytes(8, "little") + header + plain[start:])


def crc32_of(weights: Weights) -> str:
    """Return the CRC-32 of names, types, shapes and bits: safetensors has none of its own."""
    crc = 0
    for name, value in sorted(weights.items()):
        crc = zlib.crc32(f"{name} {value.dtype} {[*value.shape]}".encode(), crc)
        crc = zlib.crc32(value.contiguous().flatten().view(torch.uint8).numpy().tobytes(), crc)
    return f"{crc:08x}"


def weights_digest(folder: Path, step: int | None = None) -> str:
    """Return 12 digits of the SHA-256 of a model's weights: trained anew, it has the same steps but another file."""
    path = folder / ("model.safetensors" if step is None else f"checkpoints/{step}.safetensors")
    status = path.stat()
    return _digest(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=4096)
def _digest(path: Path, *version: int) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def load_weights(path: Path, prefix: str = "") -> Weights:
    """Read the tensors whose name starts with `prefix`, as float32; all are compared with the checksum, if any."""
    if not path.exists():
        raise LetgoError(f"{path} is missing; train first, or name another model")
    regular_file(path)
    try:
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
            checksum = (file.metadata() or {}).get("crc32")
    except (OSError, SafetensorError, RuntimeError) as error:
        reason = str(error).partition("\n")[0][:80]
        raise LetgoError(f"{path} is not a safetensors file, or is cut short ({reason}); copy it again") from None
    if checksum not in (None, crc32_of(tensors)):
        raise LetgoError(f"{path} is damaged: its checksum differs; copy it again, or train it anew")
    return {name.removeprefix(prefix): value.float() for name, value in tensors.items() if name.startswith(prefix)}


def save_state(path: Path, state: dict[str, Any]) -> None:
    memory = io.BytesIO()  # given a path, torch reports a full disk as a RuntimeError of its own
    torch.save(state, memory)
    write_atomically(path, memory.getbuffer())


def load_state(path: Path) -> dict[str, Any]:
    regular_file(path)
    try:
        _check_archive(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a foreign or truncated file
        reason = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise LetgoError(f"{path} is not a training state, or is cut short ({reason}); {RESTORE}") from None
    try:
        check(state, State, f"{path} is not a letgo training state")
        Config.from_dict(state["config"])
        if any(value.dim() for value in state["loss_sum"].values()):
            raise LetgoError(f"{path} is not a letgo training state: its loss is no number")
    except LetgoError as error:
        where = "" if str(path) in str(error) else f"{path}: "
        raise LetgoError(f"{where}{error}; {RESTORE}") from None
    return state


def _check_archive(path: Path) -> None:
    """Refuse an archive that is damaged, which torch would not notice, or that unpacks to more than itself."""
    with zipfile.ZipFile(path) as archive:
        entries = archive.infolist()
        unpacked, size = sum(entry.file_size for entry in entries), path.stat().st_size
        if unpacked > size or any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError(f"{size:,} bytes that unpack to {unpacked:,}")
        if (damaged := archive.testzip()) is not None:
            raise ValueError(f"the checksum of {damaged} differs")
        pickled = archive.read(next(entry for entry in entries if entry.filename.endswith("/data.pkl")))
        called = {str(what) for code, what, _ in pickletools.genops(pickled) if "GLOBAL" in code.name}
        if called - PLAIN:
            raise ValueError(f"it holds more than plain tensors: {min(called - PLAIN)}")


def read_validation(folder: Path) -> dict[str, Any]:
    """Return what `validation.json` says of a run's weights; nothing where it is missing or damaged."""
    path = folder / "validation.json"
    try:
        return check(read_json(path), Validation, str(path))
    except LetgoError:
        return {}


def read_card(folder: Path) -> dict[str, Any]:
    """Return what `card.json` says of a model, where its folder has one."""
    path = folder / "card.json"
    try:
        return check(read_json(path), Card, f"{path} is no model's card") if path.is_file() else {}
    except LetgoError as error:
        raise LetgoError(f"{error}; restore it, or delete it") from None


def check_card(folder: Path) -> None:
    """Refuse a card that names other weights than those it lies beside."""
    expected, path = read_card(folder).get("sha256"), folder / "model.safetensors"
    if expected is not None and path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != expected:
        raise LetgoError(f"{path} is damaged, or not what its card.json was written for; copy both again")
