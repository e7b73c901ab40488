"""A run folder: readable JSON, safetensors, and a state of plain tensors for resuming. All writes are atomic."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from letgo.data.files import written_atomically
from letgo.errors import LetgoError, unknown
from letgo.presets import PRESETS, Config
from letgo.tasks import TASKS

Weights = dict[str, Tensor]


def write_json(path: Path, value: Any) -> None:
    with written_atomically(path) as file:
        file.write((json.dumps(value, indent=2) + "\n").encode())


def append_line(path: Path, line: str) -> None:
    """One more line of a log; the file is closed between lines, so a killed run leaves at most half of one."""
    try:
        with path.open("a", encoding="utf-8") as log:
            log.write(f"{line}\n")
    except OSError as error:
        raise LetgoError(f"cannot write {path}: {error.strerror or error}; what was saved before is intact") from None


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """One process at a time, where the system can say so; without `wait`, a folder in use is refused at once."""
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = _lock(folder, wait)
    except BlockingIOError:
        raise LetgoError(
            f"another process is training or tuning in {folder}; wait until it ends, or choose another --out"
        ) from None
    except OSError as error:
        raise LetgoError(f"{folder}: {error.strerror or error}; choose another folder") from None
    try:
        yield
    finally:
        if made:  # what is refused leaves no empty folder
            with suppress(OSError):
                folder.rmdir()
        if handle is not None:
            os.close(handle)


@contextmanager
def all_locked(folders: Iterable[Path]) -> Iterator[None]:
    """Several at once, or none of them where one is in use; one folder twice is in use."""
    with ExitStack() as locks:
        for folder in folders:
            locks.enter_context(locked(folder, wait=False))
        yield


def _lock(folder: Path, wait: bool) -> int | None:
    """A descriptor of the folder itself, whose lock ends with it: at the latest when the process does."""
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        os.close(handle)
        raise
    except OSError:  # some network disks lock no folder
        pass
    return handle


def remove_leftovers(folder: Path) -> None:
    """Temporary files of a run that was killed while it saved."""
    for path in (*folder.glob(".*.part"), *folder.glob("checkpoints/.*.part")):
        path.unlink(missing_ok=True)


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise LetgoError(f"{path} is missing; is {path.parent} a letgo run folder?") from None
    except (OSError, ValueError) as error:
        raise LetgoError(f"{path} is not readable JSON ({error}); restore it or start a new run") from None


def tuning_file(folder: Path, rule: str, regime: str | None = None) -> Path:
    """Where `letgo tune` keeps the settings of a rule; those of another regime than the task's first apart."""
    return folder / (f"tune-{rule}.json" if regime is None else f"tune-{rule}-{regime}.json")


def read_tuning(folder: Path, rule: str, regime: str | None = None) -> dict[str, Any]:
    """What `letgo tune` found for a rule in this regime, or else in the usual one; or nothing."""
    paths = (tuning_file(folder, rule, kind) for kind in (regime, None))
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return {}
    table = read_json(path)
    if not isinstance(table, dict) or not _is_setting(table.get("best")):
        raise LetgoError(f"{path} holds no tuned settings; run `letgo tune` again, or give --sigma")
    return table


def _is_setting(best: object) -> bool:
    """A sigma, and a tau_start where the rule has one."""
    if not isinstance(best, dict):
        return False
    numbers = [best.get("sigma")] + ([best["tau_start"]] if best.get("tau_start") is not None else [])
    return all(isinstance(number, int | float) and not isinstance(number, bool) for number in numbers)


def save_weights(path: Path, weights: Weights, dtype: torch.dtype | None = None) -> None:
    tensors = {k: v.detach().to("cpu", dtype or v.dtype).contiguous() for k, v in weights.items()}
    with written_atomically(path) as file:
        file.write(save(tensors, metadata={"format": "pt"}))


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
    memory = io.BytesIO()  # given a path, torch reports a full disk as a RuntimeError of its own
    torch.save(state, memory)
    with written_atomically(path) as file:
        file.write(memory.getbuffer())


def load_state(path: Path) -> dict[str, Any]:
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a foreign or truncated file
        reason = str(error).splitlines()[0][:80] if str(error) else type(error).__name__
        raise LetgoError(
            f"{path} is not a training state, or is cut short ({reason}); "
            "restore it, or start again in another --out folder"
        ) from None
    if not isinstance(state, dict) or not {"step", "config", "raw", "ema", "optimizer"} <= set(state):
        raise LetgoError(f"{path} is not a letgo training state; restore it, or start again in another --out folder")
    return state


def shipped() -> list[str]:
    folder = resources.files("letgo") / "shipped"
    if not folder.is_dir():
        return []
    order = {name: i for i, name in enumerate(PRESETS)}
    names = [entry.name for entry in folder.iterdir() if (entry / "model.safetensors").is_file()]
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))


def own_name(model: str) -> str:
    """Itself; of TASK or TASK-baseline, where no model has that name, the first that is shipped for it."""
    task = model.removesuffix("-baseline")
    if task not in TASKS or model in shipped() or is_folder(Path(model)):
        return model
    known = {name: PRESETS[name] for name in shipped() if name in PRESETS}
    objective = "self-correction" if model == task else "simple"
    fitting = (name for name, c in known.items() if (c.task, c.objective) == (task, objective) and not c.task_options)
    return next(fitting, model)


def locate(model: str) -> tuple[Path, int | None]:
    """The folder, and the step if one was named, of a shipped name (or a task), a run folder, RUN@STEP or hub:ID."""
    if not model:
        raise LetgoError(f"no model named; name a run folder or a shipped model: {', '.join(shipped())}")
    model = own_name(model)
    if model in shipped():
        return Path(str(resources.files("letgo") / "shipped" / model)), None
    if model.startswith("hub:"):
        return _from_hub(model.removeprefix("hub:")), None
    folder, _, step = model.rpartition("@")
    if folder and step.isdigit():
        if own_name(folder) in shipped():
            raise LetgoError(f"the shipped model '{folder}' keeps no steps; leave @{step} out, or name a run folder")
        return _run_folder(folder), int(step)
    return _run_folder(model), None


def is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name too long for a file, such as a maze
        return False


def _run_folder(name: str) -> Path:
    path = Path(name)
    if is_folder(path):
        return path
    if name in PRESETS:
        raise LetgoError(
            f"no model '{name}' is shipped with this version; train one with `letgo train {name} --out runs/{name}` "
            f"and name that folder (shipped: {', '.join(shipped()) or 'none'})"
        )
    raise unknown("model or run folder", name, shipped(), f"shipped models: {', '.join(shipped()) or 'none'}")


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


def _build(path: Path) -> tuple[Config, torch.nn.Module]:
    values = read_json(path)
    try:
        config = Config.from_dict(values)
        return config, config.build_model()
    except (LetgoError, ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__  # an option or a value that no network has
        if "memory" in reason:
            raise
        raise LetgoError(f"{path}: {reason}; restore the file, or use another run") from None


def load_model(model: str) -> tuple[Config, torch.nn.Module, Path]:
    """A network in eval mode with its weights, and the folder it came from."""
    folder, step = locate(model)
    config, network = _build(folder / "config.json")
    if step is None:
        weights = load_weights(folder / "model.safetensors")
    else:
        path = folder / "checkpoints" / f"{step}.safetensors"
        if not path.is_file():
            kept = sorted(int(p.stem) for p in path.parent.glob("*.safetensors") if p.stem.isdigit())
            raise LetgoError(f"{folder} keeps no step {step}; it has {', '.join(map(str, kept)) or 'none'}")
        weights = load_weights(path, "ema.")
    try:
        network.load_state_dict(weights)
    except RuntimeError:
        raise LetgoError(
            f"the weights in {folder} do not fit its config.json ({config.name}: {config.network}); "
            "the two come from different runs"
        ) from None
    return config, network.eval(), folder
