"""A run folder and its only writer."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from letgo.config import Config
from letgo.data.files import regular_file, write_atomically
from letgo.errors import LetgoError
from letgo.runs.files import (
    Tuning,
    Weights,
    crc32_of,
    load_state,
    load_weights,
    read_json,
    read_validation,
    save_state,
    save_weights,
    write_json,
)
from letgo.runs.locks import all_locked
from letgo.typed import check

FILES = ("config.json", "model.safetensors", "state.pt", "metrics.jsonl", "validation.json")


@dataclass
class Run:
    """A Run is a folder, with what it says of the past, and its only writer.

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

    def __repr__(self) -> str:
        how = "" if self.stopped_by == "done" else f", stopped by {self.stopped_by}"
        return f"<Run '{self.config.name}' in {self.folder}: step {self.step:,} of {self.config.steps:,}{how}>"

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
        """Return which weights were exported, and why; nothing where no file can say."""
        return read_validation(self.folder)

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
            rows = [row for row in read_log(self.folder) if row["step"] <= self.step]
            write_atomically(log, "".join(f"{json.dumps(row)}\n" for row in rows))

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
        """Write what a model needs beside its weights, where it is not there yet; its files belong together."""
        if not all((self.folder / name).is_file() for name in files):
            for name, content in files.items():
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
        steps = [*last, *(step for step in reversed(kept_steps(self.folder)) if step not in last)]
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
        if self.model.exists() and crc32_of(here) != crc32_of(weights):
            self._forget()
        write_json(self.folder / "config.json", {**self.config.as_dict(), "weights": kind})
        save_weights(self.model, weights)
        if because is not None:
            write_json(self.folder / "validation.json", {**known, "step": step, "weights": kind, **because})

    def tuning_file(self, rule: str, regime: str | None = None) -> Path:
        """Return where `letgo tune` keeps a rule's settings; those of another regime than the first lie apart."""
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
        """Restore a model or configuration that was lost or damaged: the weights that validation.json names, else the
        state's average."""
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
    for path in (folder / name for name in FILES):
        if path.exists():
            regular_file(path)  # what is written to a pipe or a device is lost, or waits without end
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
    """Refuse another configuration than the run's; only the length and the end of its schedule may change."""
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


def kept_steps(folder: Path) -> list[int]:
    return sorted(int(path.stem) for path in folder.glob("checkpoints/*.safetensors") if path.stem.isdecimal())


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of metrics.jsonl, if there is one; half a line, or what is no line of a log, is left out."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return []
    regular_file(path)
    return [row for row in map(_row, path.read_bytes().splitlines()) if row is not None]


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    numbers = [row.get("step"), *row.values()] if isinstance(row, dict) else [None]
    plain = all(isinstance(n, float) or (isinstance(n, int) and abs(n) < 2**63) for n in numbers)
    return row if plain else None
