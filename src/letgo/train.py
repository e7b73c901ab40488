"""The optimisation loop: resumable, interruptible, data resident on the device."""

from __future__ import annotations

import json
import math
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from letgo.checkpoints import (
    append_line,
    load_model,
    load_state,
    read_json,
    remove_leftovers,
    save_state,
    save_weights,
    write_json,
)
from letgo.data.files import written_atomically
from letgo.errors import LetgoError
from letgo.pinning import Clues
from letgo.presets import KEEP, Config
from letgo.shapes import CellMask, Symbols
from letgo.tasks import Problem

EMA_EVERY = 10  # steps between two updates of the average
SAVE_SECONDS = 60
WARM_STEPS = 16  # ordinary steps before one is captured: by then every kernel is compiled and chosen


def random_clues(batch: int, cells: int, device: torch.device) -> CellMask:
    """k ~ U{0..cells-1} clues at random places (Table 2), drawn on the device."""
    order = torch.rand(batch, cells, device=device)
    clues = torch.randint(cells, (batch, 1), device=device)
    return order < order.sort(dim=1).values.gather(1, clues)


@dataclass(frozen=True)
class TrainingData:
    """Solved instances resident on the device, one byte per cell. Without `given`, clues are drawn at random."""

    boards: Tensor
    given: Tensor | None
    context: Tensor | None

    @staticmethod
    def of(problem: Problem, masks: str, device: torch.device) -> TrainingData:
        context = None if problem.context is None else problem.context.to(device, torch.uint8)
        given = problem.given.to(device) if masks == "data" else None
        return TrainingData(problem.solution.to(device, torch.uint8), given, context)

    def draw(self, batch: int) -> tuple[Symbols, CellMask, Tensor | None]:
        device, (count, cells) = self.boards.device, self.boards.shape
        index = torch.randint(count, (batch,), device=device)
        given = random_clues(batch, cells, device) if self.given is None else self.given[index]
        return self.boards[index].long(), given, None if self.context is None else self.context[index].float()


def learning_rate(config: Config, step: int) -> float:
    """Linear warm-up, then constant, then (if config.decay) a linear fall to 0 at config.steps."""
    rate = config.learning_rate * min(1.0, (step + 1) / max(config.warmup, 1))
    if config.decay > 0:
        rate *= min(1.0, max(0.0, (config.steps - step) / (config.decay * config.steps)))
    return rate


def ema_weight(config: Config, step: int) -> float:
    """How far the average moves at this update: its horizon is at most a tenth of the steps so far."""
    horizon = min(1 / (1 - config.ema), max(step, 1) / 10) if config.ema < 1 else max(step, 1) / 10
    return min(1.0, EMA_EVERY / horizon)


class Trainer:
    """Weights, optimiser and average of one run. `step()` is one optimiser step."""

    def __init__(self, config: Config, data: TrainingData, device: torch.device, fast: bool | None = None):
        self.config, self.data, self.device = config, data, device
        torch.manual_seed(config.seed)
        self.codec, self.path, self.objective = config.build_codec(), config.build_path(), config.build_objective()
        self.model = config.build_model().to(device).train()
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.ema = [p.detach().clone() for p in self.parameters]
        cuda = device.type == "cuda"
        self.rate = torch.tensor(0.0, device=device)
        self.optimizer = torch.optim.Adam(self.parameters, lr=self.rate, fused=cuda, capturable=cuda)
        precision = config.precision if config.precision != "auto" else ("bf16" if cuda else "fp32")
        if precision not in ("bf16", "fp16", "fp32"):
            raise LetgoError(f"unknown precision '{precision}'; choose bf16, fp16 or fp32")
        if precision == "fp16" and not cuda:
            raise LetgoError("fp16 training needs a GPU; use --precision fp32 or bf16 here")
        self.precision = precision
        self.scaler = torch.GradScaler(device.type, enabled=precision == "fp16")
        self.loss_sum: dict[str, Tensor] = {}  # since step `logged`
        self.steps_done = self.logged = 0
        fast = cuda if fast is None else fast
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm_steps = 0
        self.capture = fast and precision != "fp16"  # the scaler's skipped steps do not fit in a graph
        self.losses: Callable[..., dict[str, Tensor]] = self._losses
        if fast:
            self.losses = torch.compile(self._losses, dynamic=False)

    def _losses(self, symbols: Symbols, given: CellMask, context: Tensor | None) -> dict[str, Tensor]:
        x0 = self.codec.encode(symbols)
        return self.objective(self.model, self.path, x0, Clues(x0, given), context)

    def _autocast(self) -> Any:
        if self.precision == "fp32":
            return nullcontext()
        kind = torch.bfloat16 if self.precision == "bf16" else torch.float16
        return torch.autocast(self.device.type, dtype=kind, cache_enabled=False)

    def _body(self) -> None:
        """Everything of a step that a CUDA graph can replay."""
        with self._autocast():
            losses = self.losses(*self.data.draw(self.config.batch))
        self.scaler.scale(losses["loss"]).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        for name, value in losses.items():
            self.loss_sum.setdefault(name, torch.zeros((), device=self.device)).add_(value.detach())

    def step(self) -> None:
        step = self.steps_done
        self.rate.fill_(learning_rate(self.config, step))
        if self.device.type != "cuda":
            # Seeding every step makes a resumed run equal to an uninterrupted one, bit for bit.
            torch.manual_seed((self.config.seed << 32) + step)
        if self.graph is not None:
            self.graph.replay()
        else:
            self.optimizer.zero_grad(set_to_none=True)
            self._body()
            self.warm_steps += 1
            if self.capture and self.warm_steps == WARM_STEPS:
                self._capture()
        self.steps_done = step + 1
        if self.steps_done % EMA_EVERY == 0:
            weight = ema_weight(self.config, step + 1)
            live = [p.detach() for p in self.parameters]
            torch._foreach_lerp_(self.ema, live, weight)  # pyright: ignore[reportPrivateImportUsage]

    def _capture(self) -> None:
        torch.cuda.synchronize()
        self.optimizer.zero_grad(set_to_none=True)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._body()

    def mean_losses(self) -> dict[str, float]:
        """The means since the last call."""
        steps, self.logged = self.steps_done - self.logged, self.steps_done
        means = {name: float(total) / max(steps, 1) for name, total in self.loss_sum.items()}
        for total in self.loss_sum.values():
            total.zero_()
        return means

    def finite(self) -> bool:
        return all(bool(x.isfinite().all()) for x in [*self.loss_sum.values(), *self.parameters])

    def weights(self, kind: str) -> dict[str, Tensor]:
        names = [n for n, p in self.model.named_parameters() if p.requires_grad]
        values = self.ema if kind == "ema" else self.parameters
        return {n: v.detach() for n, v in zip(names, values, strict=True)}

    def state(self) -> dict[str, Any]:
        return {
            "step": self.steps_done,
            "config": self.config.as_dict(),
            "raw": self.weights("raw"),
            "ema": self.weights("ema"),
            "optimizer": self.optimizer.state_dict()["state"],
            "scaler": self.scaler.state_dict(),
            "loss_sum": self.loss_sum,
            "logged": self.logged,
        }

    def set_weights(self, kind: str, weights: dict[str, Tensor], whose: str) -> None:
        mine = self.weights(kind)
        if {n: v.shape for n, v in mine.items()} != {n: v.shape for n, v in weights.items()}:
            raise LetgoError(f"{whose} belongs to another network than {self.config.name}")
        for name, target in mine.items():
            target.copy_(weights[name])

    def restore(self, state: dict[str, Any]) -> None:
        for kind in ("raw", "ema"):
            self.set_weights(kind, state[kind], "the saved state")
        full = self.optimizer.state_dict()
        full["state"] = state["optimizer"]
        self.optimizer.load_state_dict(full)
        self.rate = torch.tensor(0.0, device=self.device)  # load_state_dict copies the rate
        self.optimizer.param_groups[0]["lr"] = self.rate
        if self.scaler.is_enabled() and state.get("scaler"):
            self.scaler.load_state_dict(state["scaler"])
        self.steps_done = int(state["step"])
        self.logged = int(state.get("logged", self.steps_done))
        self.loss_sum = {name: total.to(self.device) for name, total in state.get("loss_sum", {}).items()}
        if self.device.type == "cuda":
            torch.cuda.manual_seed((self.config.seed << 32) + self.steps_done)


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Ctrl-C and SIGTERM end the loop after the current step; the list then holds the signal."""
    caught: list[int] = []
    numbers = (signal.SIGINT, signal.SIGTERM)
    try:
        before = {n: signal.signal(n, lambda number, _: caught.append(number)) for n in numbers}
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


def train(
    config: Config,
    problem: Callable[[], Problem],
    out: Path,
    device: torch.device,
    max_seconds: float | None = None,
    keep: tuple[int, ...] = KEEP,
    report: Callable[[int, int, float, dict[str, float]], None] | None = None,
    log_every: int = 100,
    tensorboard: bool = False,
    fast: bool | None = None,
) -> Result:
    """Train, or go on with, the run in `out`. `problem` supplies the training instances when they are needed."""
    started = time.monotonic()
    state = load_state(out / "state.pt") if (out / "state.pt").exists() else None
    if state is not None:
        config = _same_run(config, state, out)
    elif any((out / name).exists() for name in ("model.safetensors", "metrics.jsonl")):
        raise LetgoError(f"{out} holds a run without its state.pt; restore that file or choose another --out")
    trainer = Trainer(config, TrainingData.of(problem(), config.masks, device), device, fast)
    spent = 0.0
    if state is None and config.init is not None:
        _, network, _ = load_model(config.init)
        for kind in ("raw", "ema"):
            trainer.set_weights(kind, dict(network.named_parameters()), f"model '{config.init}'")
    if state is not None:
        trainer.restore(state)
        spent = float(state.get("seconds", 0.0))
    write_json(out / "config.json", config.as_dict())
    remove_leftovers(out)
    (out / "validation.json").unlink(missing_ok=True)  # it speaks of weights that are about to be replaced
    metrics = out / "metrics.jsonl"
    _drop_later_lines(metrics, trainer.steps_done)
    writer = _summary_writer(out) if tensorboard else None

    def save() -> None:
        if not trainer.finite():
            raise _diverged(out, trainer.steps_done)
        save_state(out / "state.pt", {**trainer.state(), "seconds": spent + time.monotonic() - started})
        save_weights(out / "model.safetensors", trainer.weights("ema"))

    save()  # from here on a killed run can be resumed, even before its first minute is over
    last_save = timed_at = time.monotonic()
    timed_from = trainer.steps_done
    stopped_by, caught_signal = "done", 0
    with interruptible() as caught:
        while trainer.steps_done < config.steps:
            if caught:
                stopped_by, caught_signal = "signal", caught[0]
                break
            if max_seconds is not None and time.monotonic() - started >= max_seconds:
                stopped_by = "time"
                break
            trainer.step()
            step = trainer.steps_done
            if step % log_every == 0 or step == config.steps:
                losses = trainer.mean_losses()
                if not all(map(math.isfinite, losses.values())):
                    raise _diverged(out, step)
                now = time.monotonic()
                speed = (step - timed_from) / max(now - timed_at, 1e-9)
                timed_from, timed_at = step, now
                append_line(metrics, json.dumps({"step": step, **losses, "steps_per_second": round(speed, 2)}))
                if writer is not None:
                    for name, value in losses.items():
                        writer.add_scalar(name, value, step)
                if report is not None:
                    report(step, config.steps, speed, losses)
            if step in keep:
                both = {f"{k}.{n}": v for k in ("raw", "ema") for n, v in trainer.weights(k).items()}
                save_weights(out / "checkpoints" / f"{step}.safetensors", both, torch.float16)
            if time.monotonic() - last_save > SAVE_SECONDS:
                save()
                last_save = time.monotonic()
        save()
    if writer is not None:
        writer.close()
    return Result(trainer.steps_done, spent + time.monotonic() - started, stopped_by, caught_signal)


def _diverged(out: Path, step: int) -> LetgoError:
    return LetgoError(
        f"the loss is no longer finite at step {step}; {out} keeps what was saved before; "
        "start again in another --out with a lower --learning-rate"
    )


def _same_run(config: Config, state: dict[str, Any], out: Path) -> Config:
    """A resumed run keeps its configuration; only the length and the end of its schedule may change."""
    saved = Config.from_dict(state["config"])
    free = {"steps": config.steps, "decay": config.decay}
    differing = [k for k, v in replace(saved, **free).as_dict().items() if v != config.as_dict()[k]]
    if differing:
        first = differing[0]
        raise LetgoError(
            f"{out} was started with {first}={saved.as_dict()[first]!r}, not {config.as_dict()[first]!r}; "
            "repeat the command that began it, or choose another --out"
        )
    if state["step"] > config.steps:
        raise LetgoError(f"{out} is at step {state['step']} already, past --steps {config.steps}; choose another --out")
    return config


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
