"""Models by name: those that are shipped, run folders, steps that a run kept, repositories of the Hub."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from letgo.config import Config
from letgo.data.hub import fault_of, import_hub
from letgo.errors import LetgoError, unknown
from letgo.presets import PRESETS
from letgo.runs.files import Weights, check_card, load_weights, read_json
from letgo.runs.run import kept_steps
from letgo.tasks import TASKS


def shipped() -> list[str]:
    folder = resources.files("letgo") / "shipped"
    if not folder.is_dir():
        return []
    order = {name: i for i, name in enumerate(PRESETS)}
    names = [entry.name for entry in folder.iterdir() if (entry / "model.safetensors").is_file()]
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))


def own_name(model: str) -> str:
    """Return the first model shipped for a task, with or without -baseline, unless a model is named so."""
    task = model.removesuffix("-baseline")
    if task not in TASKS or model in shipped() or is_folder(Path(model)):
        return model
    known = {name: PRESETS[name] for name in shipped() if name in PRESETS}
    objective = "self-correction" if model == task else "simple"
    fitting = (name for name, c in known.items() if (c.task, c.objective) == (task, objective) and not c.task_options)
    return next(fitting, model)


def locate(model: str) -> tuple[Path, int | None]:
    """Find the folder, and the step if named, of a shipped name (or a task), a run folder, RUN@STEP or hub:ID."""
    if not model:
        raise LetgoError(f"no model named; name a run folder or a shipped model: {', '.join(shipped())}")
    model = own_name(model)
    if model in shipped():
        return Path(str(resources.files("letgo") / "shipped" / model)), None
    if model.startswith("hub:"):
        return _from_hub(model.removeprefix("hub:")), None
    folder, _, step = model.rpartition("@")
    name, at = (folder, int(step)) if folder and re.fullmatch("[0-9]{1,18}", step) else (model, None)
    if at is not None and own_name(name) in shipped():
        raise LetgoError(f"the shipped model '{folder}' keeps no steps; leave @{step} out, or name a run folder")
    if is_folder(Path(name)):
        return Path(name), at
    listing = ", ".join(shipped()) or "none"
    if name in PRESETS:
        raise LetgoError(
            f"no model '{name}' is shipped with this version; train one with `letgo train {name} --out runs/{name}` "
            f"and name that folder (shipped: {listing})"
        )
    raise unknown("model or run folder", name, [*shipped(), *runs_beside(Path(name))], f"shipped models: {listing}")


def runs_beside(path: Path) -> list[str]:
    """Return the run folders where one of another name was looked for."""
    try:
        return [str(folder) for folder in path.parent.iterdir() if (folder / "config.json").is_file()]
    except OSError:
        return []


def is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name too long for a file, such as a maze
        return False


def _from_hub(identifier: str) -> Path:
    try:
        hub = import_hub()
    except ImportError:
        raise LetgoError(f"hub:{identifier} needs the hub extra: pip install 'letgo[hub]'") from None
    try:
        return Path(
            hub.snapshot_download(identifier, allow_patterns=["*.json", "*.safetensors", "*.md"], etag_timeout=5)
        )
    except Exception as error:  # its exceptions differ between its versions and its transports
        raise LetgoError(f"cannot fetch hub:{identifier}: {fault_of(error)}") from None


@contextmanager
def _faults_of(path: Path) -> Iterator[None]:
    """Turn what no network, codec or path takes into a fault of the configuration."""
    try:
        yield
    except (LetgoError, ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        if "memory" in reason:
            raise
        raise LetgoError(f"{path}: {reason}; restore the file, or use another run") from None


class Undrawn(TorchFunctionMode):
    """It draws no weights and counts no frequencies: on tensors without numbers torch does that by its compiler and
    sympy, whose import would take more than a second of every command."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.nn.init.normal_, torch.Tensor.normal_):
            return (args or [*kwargs.values()])[0]
        if func in (torch.linspace, torch.logspace) and len(args) == 3:
            return torch.empty(args[2], **kwargs)
        return func(*args, **kwargs)


def _shapes(config: Config) -> dict[str, torch.Size] | None:
    """Return the shapes of a network's weights, which take no memory; None where it cannot be built without."""
    try:
        with torch.device("meta"), Undrawn():
            return {name: value.shape for name, value in config.build_model().state_dict().items()}
    except (NotImplementedError, RuntimeError):
        return None


def load_model(model: str) -> tuple[Config, torch.nn.Module, Path]:
    """Load a network in eval mode with its weights, and return the folder it came from."""
    folder, step = locate(model)
    path = folder / "config.json"
    values = read_json(path)
    with _faults_of(path):
        config = Config.from_dict(values)
        config.build_path()
        shapes = _shapes(config)
    weights = _weights_of(folder, step)
    misfit = LetgoError(
        f"the weights in {folder} do not fit its config.json ({config.name}: {config.network}); "
        "the two come from different runs"
    )
    if shapes is not None and shapes != {name: value.shape for name, value in weights.items()}:
        raise misfit  # before the network takes any memory
    with _faults_of(path):
        network = config.for_sampling().build_model()
    try:
        network.load_state_dict(weights)
    except RuntimeError:
        raise misfit from None
    return config, network.eval(), folder


def _weights_of(folder: Path, step: int | None) -> Weights:
    if step is None:
        check_card(folder)
        return load_weights(folder / "model.safetensors")
    path = folder / "checkpoints" / f"{step}.safetensors"
    if not path.is_file():
        steps = ", ".join(map(str, kept_steps(folder))) or "none"
        raise LetgoError(f"{folder} keeps no step {step}; it has {steps}")
    return load_weights(path, "ema.")
