"""The optimisation loop around a trainer: logging, keeping, saving; interruptible and resumable."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from letgo.checkpoints import (
    Weights,
    all_locked,
    append_line,
    load_model,
    load_state,
    load_weights,
    locked,
    read_json,
    remove_leftovers,
    save_state,
    save_weights,
    write_json,
)
from letgo.data.files import written_atomically
from letgo.errors import LetgoError
from letgo.presets import KEEP, Config
from letgo.tasks import Problem
from letgo.trainer import Trainer, TrainingData, fingerprint

SAVE_SECONDS = 60


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM end the loop after the current step; the list then holds the signal. A second one ends all."""
    caught: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)

    def catch(number: int, frame: object) -> None:
        if caught:  # asked twice: the step itself may hang
            raise KeyboardInterrupt
        caught.append(number)

    try:
        before = {n: signal.signal(n, catch) for n in numbers}
    except ValueError:  # not in the main thread: nobody can interrupt us there
        before = {}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class Result:
    """How a call of `train` ended."""

    step: int
    seconds: float
    stopped_by: str  # 'done', 'time' or 'signal'
    signal: int = 0
    trained: bool = True  # False where no step was taken


@dataclass
class Run:
    """The folder of one seed, with what it says of the past."""

    config: Config
    out: Path
    state: dict[str, Any] | None
    instances: int = 0  # the fingerprint of those it is trained on
    writer: Any = None
    begun: bool = False  # what was found for earlier weights is gone from the folder
    anew: bool = False  # in the place of a run of which no step was saved

    @staticmethod
    def open(config: Config, out: Path) -> Run:
        state = load_state(out / "state.pt") if (out / "state.pt").exists() else None
        if state is not None and state["step"] == 0 and state["config"] != config.as_dict():
            return Run(config, out, None, anew=True)  # it ran out of memory, perhaps
        if state is not None:
            _check_same_run(config, state, out)
        elif any((out / name).exists() for name in ("model.safetensors", "metrics.jsonl")):
            raise LetgoError(f"{out} holds a run without its state.pt; restore that file or choose another --out")
        elif (out / "config.json").exists() and not _is_config(out / "config.json"):
            raise LetgoError(f"{out / 'config.json'} is no configuration of letgo; choose another --out")
        return Run(config, out, state)

    @property
    def step(self) -> int:
        return 0 if self.state is None else int(self.state["step"])

    @property
    def seconds(self) -> float:
        return 0.0 if self.state is None else float(self.state.get("seconds", 0.0))

    def given(self, instances: int) -> None:
        """A run goes on with the instances that it began with."""
        if self.step and self.state is not None and self.state.get("instances", instances) != instances:
            raise LetgoError(
                f"{self.out} was trained on other instances than these; repeat the --data (or --boards) that it was "
                "started with, or choose another --out"
            )
        self.instances = instances

    def prepare(self, tensorboard: bool) -> None:
        remove_leftovers(self.out)
        _drop_later_lines(self.out / "metrics.jsonl", self.step)
        self.writer = _summary_writer(self.out) if tensorboard else None

    def begin(self) -> None:
        """Once a step is taken, or for a new run: the model is the average again, whatever was chosen before."""
        if self.begun:
            return
        write_json(self.out / "config.json", self.config.as_dict())
        self.forget()
        for path in (self.out / "checkpoints").glob("*.safetensors") if self.anew else ():
            path.unlink()
        if self.state is not None:
            save_weights(self.out / "model.safetensors", self.state["ema"])
        self.begun = True

    def forget(self) -> None:
        """Remove what was found for weights that are replaced."""
        for path in (self.out / "validation.json", *self.out.glob("tune-*.json")):
            path.unlink(missing_ok=True)

    def log(self, step: int, losses: dict[str, float], speed: float) -> None:
        line = json.dumps({"step": step, **losses, "steps_per_second": round(speed, 2)})
        append_line(self.out / "metrics.jsonl", line)
        if self.writer is not None:
            for name, value in losses.items():
                self.writer.add_scalar(name, value, step)

    def keep(self, step: int, **kinds: dict[str, Tensor]) -> None:
        both = {f"{kind}.{name}": value for kind, weights in kinds.items() for name, value in weights.items()}
        save_weights(self.out / "checkpoints" / f"{step}.safetensors", both, torch.float16)

    def repair(self) -> None:
        """A model or configuration that was lost or damaged comes back: the weights that validation.json names, else
        the state's average."""
        model, configured = _is_model(self.out / "model.safetensors"), _is_config(self.out / "config.json")
        if self.state is None or (model and configured):
            return
        chosen = _chosen(self.out / "validation.json")
        kind, weights = chosen.get("weights"), self.kept(chosen.get("step"), chosen.get("weights"))
        if not model and weights is None:
            if (self.out / "validation.json").exists():  # what it names is gone
                self.forget()
            kind, weights = "ema", self.state["ema"]
        write_json(self.out / "config.json", {**self.config.as_dict(), "weights": "raw" if kind == "raw" else "ema"})
        if not model and weights is not None:
            save_weights(self.out / "model.safetensors", weights)

    def kept(self, step: object, kind: object) -> Weights | None:
        """Weights of the state, or of a step that was kept; None where they are gone."""
        if self.state is None or kind not in ("ema", "raw"):
            return None
        if step == self.step:
            return self.state[kind]
        path = self.out / "checkpoints" / f"{step}.safetensors"
        return (load_weights(path, f"{kind}.") or None) if _is_model(path) else None

    def save(self, state: dict[str, Any]) -> None:
        """The state last: killed in between, a run is behind its model and trains on instead of keeping an old one."""
        save_weights(self.out / "model.safetensors", state["ema"])
        save_state(self.out / "state.pt", state)
        self.state = state


def _is_config(path: Path) -> bool:
    try:
        Config.from_dict(read_json(path))
    except LetgoError:
        return False
    return True


def _is_model(path: Path) -> bool:
    try:
        load_weights(path)
    except LetgoError:
        return False
    return True


def _chosen(path: Path) -> dict[str, Any]:
    """What validation preferred; nothing where no file can say."""
    try:
        found = read_json(path)
    except LetgoError:
        return {}
    return found if isinstance(found, dict) else {}


Report = Callable[[int, int, float, dict[str, float]], None]  # step, of how many, steps per second, losses


def train(
    config: Config,
    problem: Callable[[], Problem | Sequence[Problem]],
    out: Path,
    device: torch.device,
    max_seconds: float | None = None,
    keep: tuple[int, ...] = KEEP,
    report: Report | None = None,
    log_every: int = 100,
    tensorboard: bool = False,
    fast: bool | None = None,
    seeds: Sequence[int] = (),
    compare: bool = False,
) -> Result:
    """Train, or go on with, the run in `out`; with `seeds`, the runs in its folders s0, s1, ... together.

    `problem` supplies the training instances when they are needed: one set for all seeds, or one for each. With
    `compare`, a run that is finished is held against them too. Runs that stand at different steps first catch up with
    one another.
    """
    begun = time.monotonic()
    deadline = math.inf if max_seconds is None else begun + max_seconds
    with opened(config, {seed: out / f"s{seed}" for seed in seeds} or {config.seed: out}) as runs:
        finished = all(run.step >= config.steps and (run.out / "model.safetensors").exists() for run in runs)
        if finished and not compare:
            return _nothing_left(runs)
        problems = problem()
        prints = [fingerprint(p) for p in ([problems] if isinstance(problems, Problem) else problems)]
        for i, run in enumerate(runs):
            run.given(prints[i % len(prints)])
        if finished:
            return _nothing_left(runs)
        result, trained = Result(0, 0.0, "done"), False
        for until in [*sorted({run.step for run in runs})[1:], None]:  # where those behind meet the next; the end
            goal = config.steps if until is None else until
            group = [i for i, run in enumerate(runs) if run.step < goal or run.state is None]
            if not group:
                break
            mine = problems if isinstance(problems, Problem) else [problems[i] for i in group]
            data = TrainingData.of(mine, config.masks, device)
            trainer = _trainer(config, data, device, fast, [runs[i] for i in group])
            loop = Loop(trainer, [runs[i] for i in group], begun, deadline, keep, report, log_every, tensorboard)
            result = loop.run(goal)
            trained = trained or result.trained
            if result.stopped_by != "done":
                break
            begun = time.monotonic()
        return replace(result, trained=trained)


def _nothing_left(runs: Sequence[Run]) -> Result:
    for run in runs:
        remove_leftovers(run.out)  # of a process that was killed after its last step
    return Result(runs[0].step, max(run.seconds for run in runs), "done", trained=False)


@contextmanager
def opened(config: Config, folders: dict[int, Path]) -> Iterator[list[Run]]:
    """The run of each seed, in a folder that no other process trains or tunes in meanwhile."""
    with all_locked(folders.values()):
        runs = [Run.open(replace(config, seed=seed), folder) for seed, folder in folders.items()]
        for run in runs:
            run.repair()
        yield runs


def _trainer(
    config: Config, data: TrainingData, device: torch.device, fast: bool | None, runs: Sequence[Run]
) -> Trainer:
    """With the runs' states, or the weights that they start from."""
    trainer = Trainer(config, data, device, fast, [run.config.seed for run in runs])
    if config.init is not None and any(run.state is None for run in runs):
        _, network, _ = load_model(config.init)
        for model in range(len(runs)):
            for kind in ("raw", "ema"):
                trainer.set_weights(kind, dict(network.named_parameters()), f"model '{config.init}'", model)
    if any(run.state is not None for run in runs):
        trainer.restore(*(run.state or trainer.state(model) for model, run in enumerate(runs)))
    return trainer


@dataclass
class Loop:
    """Steps, with what happens between them: logging, keeping, saving, stopping."""

    trainer: Trainer
    runs: Sequence[Run]
    begun: float
    deadline: float
    keep: tuple[int, ...]
    report: Report | None
    log_every: int
    tensorboard: bool
    before: list[float] = field(default_factory=list)  # seconds that each run took until now
    timed_from: int = 0
    timed_at: float = 0.0

    def run(self, until: int) -> Result:
        trainer, stopped_by, caught_signal = self.trainer, "done", 0
        first, self.before = trainer.steps_done, [run.seconds for run in self.runs]
        for run in self.runs:
            run.prepare(self.tensorboard)
            if run.state is None:
                run.begin()
        self.save()  # from here on a killed run can be resumed, even before its first minute is over
        last_save = time.monotonic()
        self.timed_from, self.timed_at = trainer.steps_done, last_save
        with interruptible() as caught:
            while trainer.steps_done < until:
                if caught:
                    stopped_by, caught_signal = "signal", caught[0]
                    break
                if time.monotonic() >= self.deadline:
                    stopped_by = "time"
                    break
                trainer.step()
                step = trainer.steps_done
                for run in self.runs:
                    run.begin()
                if step % self.log_every == 0 or step == trainer.config.steps:
                    self.log()
                if step in self.keep:
                    for model, run in enumerate(self.runs):
                        run.keep(step, raw=trainer.weights("raw", model), ema=trainer.weights("ema", model))
                if time.monotonic() - last_save > SAVE_SECONDS:
                    self.save()
                    last_save = time.monotonic()
            self.save()
        for run in self.runs:
            if run.writer is not None:
                run.writer.close()
        seconds = max(run.seconds for run in self.runs)
        return Result(trainer.steps_done, seconds, stopped_by, caught_signal, trainer.steps_done > first)

    def log(self) -> None:
        step, losses = self.trainer.steps_done, self.trainer.mean_losses()
        self.check([all(map(math.isfinite, mine.values())) for mine in losses])
        now = time.monotonic()
        speed = (step - self.timed_from) / max(now - self.timed_at, 1e-9)
        self.timed_from, self.timed_at = step, now
        for run, mine in zip(self.runs, losses, strict=True):
            run.log(step, mine, speed)
        if self.report is not None:
            means = {name: sum(mine[name] for mine in losses) / len(losses) for name in losses[0]}
            self.report(step, self.trainer.config.steps, speed, means)

    def save(self) -> None:
        """All but runs that go on and have not taken a step yet: what was chosen among their weights stays."""
        self.check(self.trainer.finite())
        states = [self.trainer.state(model) for model in range(len(self.runs))]
        spent = time.monotonic() - self.begun
        for run, state, before in zip(self.runs, states, self.before, strict=True):
            if run.begun:
                run.save({**state, "seconds": before + spent, "instances": run.instances})

    def check(self, finite: Sequence[bool]) -> None:
        for run, good in zip(self.runs, finite, strict=True):
            if not good:
                raise _diverged(run.out, self.trainer.steps_done)


def _diverged(out: Path, step: int) -> LetgoError:
    return LetgoError(
        f"the loss is no longer finite at step {step}; {out} keeps what was saved before; "
        "start again in another --out with a lower --learning-rate"
    )


def _check_same_run(config: Config, state: dict[str, Any], out: Path) -> None:
    """A resumed run keeps its configuration; only the length and the end of its schedule may change."""
    saved = Config.from_dict(state["config"])
    free: dict[str, Any] = {"steps": config.steps, "decay": config.decay}
    if saved.objective == "simple":  # for self-correction alone
        free |= {"simple_weight": config.simple_weight, "full_gradient": config.full_gradient}
    differing = [k for k, v in replace(saved, **free).as_dict().items() if v != config.as_dict()[k]]
    if differing:
        first = differing[0]
        raise LetgoError(
            f"{out} was started with {first}={saved.as_dict()[first]!r}, not {config.as_dict()[first]!r}; "
            "repeat the command that began it, or choose another --out"
        )
    if state["step"] > config.steps:
        raise LetgoError(f"{out} is at step {state['step']} already, past --steps {config.steps}; choose another --out")


def _drop_later_lines(path: Path, step: int) -> None:
    """After a crash the log may be ahead of the saved state, or end in half a line."""
    if not path.exists():
        return
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line)
        except (ValueError, KeyError, TypeError):
            continue
    with written_atomically(path) as file:
        file.write("".join(f"{line}\n" for line in kept).encode())


def _summary_writer(out: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise LetgoError("--tensorboard needs the extra: pip install 'letgo[tensorboard]'") from None
    return SummaryWriter(str(out / "tensorboard"))


def choose_weights(out: Path, score: Callable[[dict[str, Tensor]], float], count: int) -> dict[str, float]:
    """Put EMA or raw weights into model.safetensors, as `count` validation boards decide; the config says which.

    Raw weights must be ahead by more than a standard error: a tie goes to the average.
    """
    with locked(out, wait=False):
        state = load_state(out / "state.pt")
        scores = {kind: score(state[kind]) for kind in ("ema", "raw")}
        error = math.sqrt(max(scores["ema"] * (1 - scores["ema"]), 1 / count) / count)
        best = "raw" if scores["raw"] > scores["ema"] + error else "ema"
        save_weights(out / "model.safetensors", state[best])
        write_json(out / "config.json", {**read_json(out / "config.json"), "weights": best})
        info = {"step": state["step"], "seconds": round(float(state.get("seconds", 0.0)), 1), "weights": best}
        previous = read_json(out / "validation.json") if (out / "validation.json").exists() else {}
        write_json(out / "validation.json", {**previous, **info, "scores": scores})
        return scores
