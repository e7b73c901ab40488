"""A run folder: readable JSON, safetensors, and a state of plain tensors for resuming. All writes are atomic."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from letgo.errors import LetgoError
from letgo.presets import PRESETS, Config

Weights = dict[str, Tensor]


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Write beside the target, flush to disk, then rename: a reader sees the old file or the new, never half."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)  # mkstemp makes private files
        os.replace(temporary, path)
    except OSError as error:
        raise LetgoError(f"cannot write {path}: {error.strerror or error}; what was saved before is intact") from error
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    text = json.dumps(value, indent=2) + "\n"
    write_atomically(path, lambda p: p.write_text(text, encoding="utf-8"))


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LetgoError(f"{path} is missing; is {path.parent} a letgo run folder?") from None
    except (OSError, ValueError) as error:
        raise LetgoError(f"{path} is not readable JSON ({error}); restore it or start a new run") from None


def save_weights(path: Path, weights: Weights, dtype: torch.dtype | None = None) -> None:
    tensors = {k: v.detach().to("cpu", dtype or v.dtype).contiguous() for k, v in weights.items()}
    data = save(tensors, metadata={"format": "pt"})
    write_atomically(path, lambda p: p.write_bytes(data))


def load_weights(path: Path, prefix: str = "") -> Weights:
    """Tensors whose name starts with `prefix`, as float32."""
    try:
        with safe_open(path, framework="pt") as file:
            names = [k for k in file.keys() if k.startswith(prefix)]  # noqa: SIM118  (not a dict)
            return {k.removeprefix(prefix): file.get_tensor(k).float() for k in names}
    except FileNotFoundError:
        raise LetgoError(f"{path} is missing; train first, or name another model") from None
    except (OSError, SafetensorError) as error:
        raise LetgoError(f"{path} is not a safetensors file, or is cut short ({error}); copy it again") from None


def save_state(path: Path, state: dict[str, Any]) -> None:
    write_atomically(path, lambda p: torch.save(state, p))


def load_state(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a foreign or truncated file
        reason = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise LetgoError(
            f"{path} is not a training state, or is cut short ({reason}); "
            "remove it to start again from step 0, or restore it"
        ) from None
    if not isinstance(state, dict) or not {"step", "raw", "ema", "optimizer"} <= set(state):
        raise LetgoError(f"{path} is not a letgo training state; remove it to start again from step 0")
    return state


def shipped() -> list[str]:
    folder = resources.files("letgo") / "shipped"
    if not folder.is_dir():
        return []
    order = {name: i for i, name in enumerate(PRESETS)}
    names = [entry.name for entry in folder.iterdir() if (entry / "model.safetensors").is_file()]
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))


def locate(model: str) -> tuple[Path, int | None]:
    """The folder, and the step if one was named, of a shipped name, a run folder, RUN@STEP or hub:ID."""
    if model in shipped():
        return Path(str(resources.files("letgo") / "shipped" / model)), None
    if model.startswith("hub:"):
        return _from_hub(model.removeprefix("hub:")), None
    folder, _, step = model.rpartition("@")
    if folder and step.isdigit():
        return _run_folder(folder), int(step)
    return _run_folder(model), None


def _run_folder(name: str) -> Path:
    path = Path(name)
    if path.is_dir():
        return path
    if name in PRESETS:
        raise LetgoError(
            f"no model '{name}' is shipped with this version; train one with `letgo train {name} --out runs/{name}` "
            f"and name that folder (shipped: {', '.join(shipped()) or 'none'})"
        )
    raise LetgoError(f"no model or run folder '{name}'; shipped models: {', '.join(shipped()) or 'none'}")


def _from_hub(identifier: str) -> Path:
    try:
        from huggingface_hub import snapshot_download  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise LetgoError(f"hub:{identifier} needs the hub extra: pip install 'letgo[hub]'") from None
    try:
        return Path(snapshot_download(identifier, allow_patterns=["*.json", "*.safetensors", "*.md"], etag_timeout=5))
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LetgoError(f"cannot fetch hub:{identifier}: {reason}; are you online?") from None


def load_model(model: str) -> tuple[Config, torch.nn.Module, Path]:
    """A network in eval mode with its weights, and the folder it came from."""
    folder, step = locate(model)
    config = Config.from_dict(read_json(folder / "config.json"))
    if step is None:
        weights = load_weights(folder / "model.safetensors")
    else:
        path = folder / "checkpoints" / f"{step}.safetensors"
        if not path.is_file():
            kept = sorted(int(p.stem) for p in (folder / "checkpoints").glob("*.safetensors"))
            raise LetgoError(f"{folder} keeps no step {step}; it has {', '.join(map(str, kept)) or 'none'}")
        weights = load_weights(path, "ema.")
    network = config.build_model()
    try:
        network.load_state_dict(weights)
    except RuntimeError:
        raise LetgoError(
            f"the weights in {folder} do not fit its config.json ({config.name}: {config.network}); "
            "the two come from different runs"
        ) from None
    return config, network.eval(), folder
