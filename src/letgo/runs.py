"""A run folder: readable JSON, safetensors, and a state of plain tensors for resuming. All writes are atomic."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import pickletools
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, NotRequired, TypedDict

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from letgo.config import Config
from letgo.data.files import regular_file, write_atomically
from letgo.data.hub import fault_of, import_hub
from letgo.errors import LetgoError, unknown
from letgo.presets import PRESETS
from letgo.tasks import TASKS
from letgo.typed import Between, Count, Natural, Positive, Share, check

Weights = dict[str, Tensor]
MOST_JSON = 4 << 20  # bytes of a configuration, a card or a table of settings
# All that a pickle of plain tensors calls for.
PLAIN = {"collections OrderedDict", "torch FloatStorage", "torch._utils _rebuild_tensor_v2"}


class Moments(TypedDict):
    """What the optimiser knows."""

    step: Positive
    exp_avg: Weights
    exp_avg_sq: Weights


class State(TypedDict):
    """What `state.pt` holds: all that a run needs to go on."""

    step: Natural
    config: dict[str, Any]
    raw: Weights
    ema: Weights
    optimizer: Moments
    loss_sum: Weights
    logged: Natural
    seconds: NotRequired[Positive]
    instances: NotRequired[int]


class Setting(TypedDict):
    """The settings of a rule."""

    sigma: Annotated[float, Between(0, 1e6)]
    tau_start: NotRequired[Share | None]


class Belief(TypedDict):
    """From where on a board is believed."""

    sure: float | None


class Tuning(TypedDict):
    """What is read of a table of `letgo tune`."""

    best: Setting | Belief
    steps: NotRequired[Count]


class Card(TypedDict, total=False):
    """What is read of a model's card."""

    summary: str
    sha256: str
    generation_rule: str | None
    then: str | None  # the model that takes over what this one has not solved at its first try


def write_json(path: Path, value: Any) -> None:
    write_atomically(path, json.dumps(value, indent=2) + "\n")


@contextmanager
def locked(folder: Path, wait: bool = True) -> Iterator[None]:
    """Keep others out of a folder, where the system can; without `wait`, a folder in use is refused at once."""
    new = not folder.exists()
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
        if new:  # what is refused leaves no empty folder
            with suppress(OSError):
                folder.rmdir()
        if handle is not None:
            os.close(handle)


@contextmanager
def all_locked(folders: Iterable[Path]) -> Iterator[None]:
    """Lock several at once, or none of them where one is in use; one folder twice is in use."""
    with ExitStack() as locks:
        for folder in folders:
            locks.enter_context(locked(folder, wait=False))
        yield


def _lock(folder: Path, wait: bool) -> int | None:
    """Return a descriptor of the folder itself; its lock ends with it, at the latest when the process does."""
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


def weights_bytes(weights: Weights, dtype: torch.dtype | None = None) -> bytes:
    tensors = {k: v.detach().to("cpu", dtype or v.dtype).contiguous() for k, v in weights.items()}
    plain = save(tensors)
    start = 8 + int.from_bytes(plain[:8], "little")
    about = {"format": "pt", "crc32": _checksum(tensors)}  # `save` itself writes these two in a random order
    header = json.dumps({"__metadata__": about, **json.loads(plain[8:start])}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    return len(header).to_bytes(8, "little") + header + plain[start:]


def _checksum(weights: Weights) -> str:
    """CRC-32 of names, types, shapes and bits: safetensors has none of its own."""
    crc = 0
    for name, value in sorted(weights.items()):
        crc = zlib.crc32(f"{name} {value.dtype} {[*value.shape]}".encode(), crc)
        crc = zlib.crc32(value.contiguous().flatten().view(torch.uint8).numpy().tobytes(), crc)
    return f"{crc:08x}"


def save_weights(path: Path, weights: Weights, dtype: torch.dtype | None = None) -> None:
    write_atomically(path, weights_bytes(weights, dtype))


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
    if checksum not in (None, _checksum(tensors)):
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
        raise LetgoError(
            f"{path} is not a training state, or is cut short ({reason}); "
            "restore it, or start again in another --out folder"
        ) from None
    try:
        check(state, State, f"{path} is not a letgo training state")
        Config.from_dict(state["config"])
        if any(value.dim() for value in state["loss_sum"].values()):
            raise LetgoError(f"{path} is not a letgo training state: its loss is no number")
    except LetgoError as error:
        where = "" if str(path) in str(error) else f"{path}: "
        raise LetgoError(f"{where}{error}; restore it, or start again in another --out folder") from None
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


@dataclass
class Run:
    """A run folder: what it says of the past, and its only writer.

    Killed at any moment, it can be resumed: a new run's state is written before all else, a later one after all else.
    """

    folder: Path
    config: Config
    state: dict[str, Any] | None = None  # as it was last saved
    instances: int = 0  # the fingerprint of those it is trained on
    stopped_by: str = "done"  # how the last call of `train` ended: 'done', 'time' or 'signal'
    signal: int = 0
    trained: bool = False  # whether that call took a step

    def __fspath__(self) -> str:
        return str(self.folder)

    @staticmethod
    def load(folder: Path) -> Run:
        """Read a run, or a model without its state, as it stands."""
        state = load_state(folder / "state.pt") if (folder / "state.pt").is_file() else None
        return Run(folder, Config.from_dict(read_json(folder / "config.json")), state)

    @staticmethod
    @contextmanager
    def open(config: Config, folders: dict[int, Path]) -> Iterator[list[Run]]:
        """Open the run of each seed, new or to go on with; no other process trains or tunes in its folder meanwhile.

        What was lost or damaged there is repaired.
        """
        with all_locked(folders.values()):
            runs = [_to_train(replace(config, seed=seed), folder) for seed, folder in folders.items()]
            for run in runs:
                run._repair()
            yield runs

    @property
    def step(self) -> int:
        return 0 if self.state is None else int(self.state["step"])

    @property
    def seconds(self) -> float:
        return 0.0 if self.state is None else float(self.state.get("seconds", 0.0))

    @property
    def finished(self) -> bool:
        return self.state is not None and self.step >= self.config.steps

    @property
    def model(self) -> Path:
        return self.folder / "model.safetensors"

    @property
    def validation(self) -> dict[str, Any]:
        """It says which weights were exported, and why; nothing where no file can say."""
        path = self.folder / "validation.json"
        facts = read_json(path) if _reads(read_json, path) else {}
        return facts if isinstance(facts, dict) else {}

    def tidy(self, instances: int | None) -> None:
        """Remove what a process left that was killed: half-written files, log lines beyond the saved step.

        A run goes on with the instances that it began with, and refuses the fingerprint of others.
        """
        if instances is not None:
            if self.state is not None and self.step and self.state.get("instances", instances) != instances:
                raise LetgoError(
                    f"{self.folder} was trained on other instances than these; repeat the --data (or --boards) that it "
                    "was started with, or choose another --out"
                )
            self.instances = instances
        for path in (*self.folder.glob(".*.part"), *self.folder.glob("checkpoints/.*.part")):
            path.unlink(missing_ok=True)
        log = self.folder / "metrics.jsonl"
        if log.exists() and not self.finished:
            lines = [line for line in log.read_text(encoding="utf-8").splitlines() if _step_of(line) <= self.step]
            write_atomically(log, "".join(f"{line}\n" for line in lines))

    def save(self, state: dict[str, Any]) -> None:
        """Write a trainer's state, and its average as the model; what was found for other weights goes."""
        new = self.state is None
        self.state = {**state, "config": self.config.as_dict(), "instances": self.instances}
        self._forget()
        if new:
            save_state(self.folder / "state.pt", self.state)
        self.export(self.step, "ema")
        if not new:  # killed before this, a run is behind its model and trains on instead of keeping an old one
            save_state(self.folder / "state.pt", self.state)

    def keep(self, step: int, **kinds: Weights) -> None:
        both = {f"{kind}.{name}": value for kind, weights in kinds.items() for name, value in weights.items()}
        save_weights(self.folder / "checkpoints" / f"{step}.safetensors", both, torch.float16)

    def adopt(self, files: Mapping[str, bytes]) -> None:
        """Write what a model needs beside its weights, where it is not there yet."""
        for name, content in files.items():
            if not (self.folder / name).is_file():
                write_atomically(self.folder / name, content)

    def log(self, step: int, losses: dict[str, float], speed: float) -> None:
        """Write one more line; the file is closed between lines, so a killed run leaves at most half of one."""
        path = self.folder / "metrics.jsonl"
        try:
            with path.open("a", encoding="utf-8") as log:
                log.write(json.dumps({"step": step, **losses, "steps_per_second": round(speed, 2)}) + "\n")
        except OSError as error:
            reason = error.strerror or error
            raise LetgoError(f"cannot write {path}: {reason}; what was saved before is intact") from None

    def candidates(self) -> list[tuple[int, str]]:
        """List step and kind ('ema', 'raw') of all weights that are here: the state's, then kept ones, latest first."""
        last = [] if self.state is None else [self.step]  # in full precision, wherever that step was kept too
        steps = [*last, *(step for step in reversed(_kept_steps(self.folder)) if step not in last)]
        return [(step, kind) for step in steps for kind in ("ema", "raw")]

    def weights(self, step: int, kind: str) -> Weights:
        if self.state is not None and step == self.step and kind in ("ema", "raw"):
            return self.state[kind]
        weights = load_weights(self.folder / "checkpoints" / f"{step}.safetensors", f"{kind}.")
        if not weights:
            raise LetgoError(f"{self.folder} keeps no {kind} weights of step {step}; train it anew")
        return weights

    def network(self, step: int, kind: str) -> torch.nn.Module:
        network = self.config.build_model()
        network.load_state_dict(self.weights(step, kind))
        return network

    def export(self, step: int, kind: str, because: dict[str, Any] | None = None) -> None:
        """Make these weights the run's model, and say so in config.json and, with the reasons, in validation.json.

        What was found for another model goes before that does.
        """
        weights, known = self.weights(step, kind), self.validation
        here = load_weights(self.model) if _reads(load_weights, self.model) else {}
        if self.model.exists() and _checksum(here) != _checksum(weights):
            self._forget()
        write_json(self.folder / "config.json", {**self.config.as_dict(), "weights": kind})
        save_weights(self.model, weights)
        if because is not None:
            write_json(self.folder / "validation.json", {**known, "step": step, "weights": kind, **because})

    def tuning_file(self, rule: str, regime: str | None = None) -> Path:
        """`letgo tune` keeps the settings of a rule here; those of another regime than the task's first lie apart."""
        return self.folder / (f"tune-{rule}.json" if regime is None else f"tune-{rule}-{regime}.json")

    def tuning(self, rule: str, regime: str | None = None) -> dict[str, Any]:
        """Return what `letgo tune` found for a rule in this regime, or else in the usual one; or nothing."""
        paths = (self.tuning_file(rule, kind) for kind in (regime, None))
        path = next((path for path in paths if os.path.isfile(path)), None)  # no name is too long to ask
        if path is None:
            return {}
        try:
            return check(read_json(path), Tuning, f"{path} holds no tuned settings")
        except LetgoError as error:
            raise LetgoError(f"{error}; run `letgo tune` again") from None

    def save_tuning(self, rule: str, regime: str | None, table: dict[str, Any]) -> None:
        write_json(self.tuning_file(rule, regime), table)

    def _forget(self) -> None:
        """Remove what was found for weights that are replaced."""
        for path in (self.folder / "validation.json", *self.folder.glob("tune-*.json")):
            path.unlink(missing_ok=True)

    def _repair(self) -> None:
        """A model or configuration that was lost or damaged comes back: the weights that validation.json names, else
        the state's average."""
        model, config = _reads(load_weights, self.model), self.folder / "config.json"
        if self.state is None or (model and _reads(_config, config)):
            return
        choice = self.validation
        step, kind = choice.get("step", 0), "raw" if choice.get("weights") == "raw" else "ema"
        if model:
            write_json(config, {**self.config.as_dict(), "weights": kind})
            return
        self.model.unlink(missing_ok=True)
        if not choice or not _reads(self.weights, step, kind):
            step, kind = self.step, "ema"
            if (self.folder / "validation.json").exists():  # what it names is gone
                self._forget()
        self.export(step, kind)


def _to_train(config: Config, folder: Path) -> Run:
    """Return a run that goes on where it stopped, or a new one where nothing is."""
    state = load_state(folder / "state.pt") if (folder / "state.pt").exists() else None
    if state is not None and state["step"] == 0 and Config.from_dict(state["config"]) != config:
        for path in folder.glob("checkpoints/*.safetensors"):  # no step was saved: it ran out of memory, perhaps
            path.unlink()
        return Run(folder, config)
    if state is not None:
        _check_same_run(config, state, folder)
    elif any((folder / name).exists() for name in ("model.safetensors", "metrics.jsonl")):
        raise LetgoError(f"{folder} holds a run without its state.pt; restore that file or choose another --out")
    elif (folder / "config.json").exists() and not _reads(_config, folder / "config.json"):
        raise LetgoError(f"{folder / 'config.json'} is no configuration of letgo; choose another --out")
    return Run(folder, config, state)


def _check_same_run(config: Config, state: dict[str, Any], folder: Path) -> None:
    """A resumed run keeps its configuration; only the length and the end of its schedule may change."""
    saved = Config.from_dict(state["config"])
    free: dict[str, Any] = {"steps": config.steps, "decay": config.decay}
    if saved.objective == "simple":  # for self-correction alone
        free |= {"simple_weight": config.simple_weight, "full_gradient": config.full_gradient}
    ours, theirs = config.as_dict(), replace(saved, **free).as_dict()
    first = next((name for name, value in theirs.items() if value != ours[name]), None)
    if first is not None:
        raise LetgoError(
            f"{folder} was started with {first}={theirs[first]!r}, not {ours[first]!r}; "
            "repeat the command that began it, or choose another --out"
        )
    if state["step"] > config.steps:
        raise LetgoError(
            f"{folder} is at step {state['step']} already, past --steps {config.steps}; choose another --out"
        )


def _config(path: Path) -> Config:
    return Config.from_dict(read_json(path))


def _reads(read: Callable[..., object], *what: Any) -> bool:
    try:
        read(*what)
    except LetgoError:
        return False
    return True


def _kept_steps(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("checkpoints/*.safetensors") if path.stem.isdecimal())


def _step_of(line: str) -> float:
    """Return the step of a line of the log; half a line is beyond all steps."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf


def shipped() -> list[str]:
    folder = resources.files("letgo") / "shipped"
    if not folder.is_dir():
        return []
    order = {name: i for i, name in enumerate(PRESETS)}
    names = [entry.name for entry in folder.iterdir() if (entry / "model.safetensors").is_file()]
    return sorted(names, key=lambda name: (order.get(name, len(order)), name))


def own_name(model: str) -> str:
    """TASK or TASK-baseline stands for the first model shipped for it, unless a model has that name; else return it."""
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
    raise unknown("model or run folder", name, shipped(), f"shipped models: {listing}")


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
    """What no network, codec or path takes, as a fault of the configuration."""
    try:
        yield
    except (LetgoError, ArithmeticError, AttributeError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0] or type(error).__name__
        if "memory" in reason:
            raise
        raise LetgoError(f"{path}: {reason}; restore the file, or use another run") from None


def _shapes(config: Config) -> dict[str, torch.Size] | None:
    """The shapes of a network's weights, which take no memory; None where it cannot be built without."""
    try:
        with torch.device("meta"):
            return {name: value.shape for name, value in config.build_model().state_dict().items()}
    except (NotImplementedError, RuntimeError):
        return None


def read_card(folder: Path) -> dict[str, Any]:
    """Return what `card.json` says of a model, where its folder has one."""
    path = folder / "card.json"
    try:
        return check(read_json(path), Card, f"{path} is no model's card") if path.is_file() else {}
    except LetgoError as error:
        raise LetgoError(f"{error}; restore it, or delete it") from None


def _check_card(folder: Path) -> None:
    """A card names the weights that it was written for."""
    expected, path = read_card(folder).get("sha256"), folder / "model.safetensors"
    if expected is not None and path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != expected:
        raise LetgoError(f"{path} is damaged, or not what its card.json was written for; copy both again")


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
        network = config.build_model()
    try:
        network.load_state_dict(weights)
    except RuntimeError:
        raise misfit from None
    return config, network.eval(), folder


def _weights_of(folder: Path, step: int | None) -> Weights:
    if step is None:
        _check_card(folder)
        return load_weights(folder / "model.safetensors")
    path = folder / "checkpoints" / f"{step}.safetensors"
    if not path.is_file():
        steps = ", ".join(map(str, _kept_steps(folder))) or "none"
        raise LetgoError(f"{folder} keeps no step {step}; it has {steps}")
    return load_weights(path, "ema.")
