"""The optimisation loop: resumable, interruptible, data resident on the device.

Runs that differ in their seed alone can share one loop: their weights are rows of one matrix, and in a batch board i
belongs to model i % models.
"""

from __future__ import annotations

import json
import math
import signal
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.attention import SDPBackend, sdpa_kernel

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
from letgo.fast import supported
from letgo.fast.cuda import captured
from letgo.pinning import Clues
from letgo.presets import KEEP, Config
from letgo.shapes import CellMask, State, Symbols, Time
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
    starts: Tensor | None = None  # where the instances of each stacked model begin; None: they are everybody's

    @staticmethod
    def of(problem: Problem | Sequence[Problem], masks: str, device: torch.device) -> TrainingData:
        """One problem for all models, or as many as there are models."""
        problems, starts = ([problem] if isinstance(problem, Problem) else problem), None
        if len(problems) > 1:
            count = len(problems[0])
            assert all(len(p) == count for p in problems), "stacked models have equally many instances"
            starts = torch.arange(0, count * len(problems), count, device=device)
        whole = Problem.cat(list(problems)) if len(problems) > 1 else problems[0]
        context = None if whole.context is None else whole.context.to(device, torch.uint8)
        given = whole.given.to(device) if masks == "data" else None
        return TrainingData(whole.solution.to(device, torch.uint8), given, context, starts)

    def draw(self, batch: int) -> tuple[Symbols, CellMask, Tensor | None]:
        """With several models: `batch` boards in all, in turn for each model."""
        device, (count, cells) = self.boards.device, self.boards.shape
        if self.starts is None:
            index = torch.randint(count, (batch,), device=device)
        else:
            models = len(self.starts)
            index = (torch.randint(count // models, (batch // models, models), device=device) + self.starts).flatten()
        given = random_clues(batch, cells, device) if self.given is None else self.given[index]
        return self.boards[index].long(), given, None if self.context is None else self.context[index].float()


def fingerprint(problem: Problem) -> int:
    """32 bits of the training instances, whatever file they came from."""
    parts = [problem.solution.to(torch.uint8), problem.given]
    parts += [] if problem.context is None else [problem.context.to(torch.uint8)]
    total = 0
    for part in parts:
        total = zlib.crc32(part.cpu().numpy().tobytes(), total)
    return total


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


Shapes = dict[str, torch.Size]
FlatNetwork = Callable[[Tensor, State, Time, Tensor | None], State]  # the first argument holds the weights


def pack(weights: dict[str, Tensor], shapes: Shapes) -> Tensor:
    """All weights as one row, in the order of `shapes`."""
    return torch.cat([weights[name].detach().flatten() for name in shapes])


def unpack(row: Tensor, shapes: Shapes) -> dict[str, Tensor]:
    parts = row.split([shape.numel() for shape in shapes.values()])
    return {name: part.view(shape) for part, (name, shape) in zip(parts, shapes.items(), strict=True)}


def plain_network(network: nn.Module) -> tuple[Shapes, FlatNetwork]:
    """Any network as a function of its weights, for one row of them or several."""
    shapes: Shapes = {name: p.shape for name, p in network.named_parameters()}

    def one(row: Tensor, x_t: State, t: Time, context: Tensor | None) -> State:
        return functional_call(network, unpack(row, shapes), (x_t, t, context))

    def call(flat: Tensor, x_t: State, t: Time, context: Tensor | None) -> State:
        models = len(flat)
        if models == 1:
            return one(flat[0], x_t, t, context)
        axes = (0, 1, 1, None if context is None else 1)
        split: Any = [None if x is None else x.unflatten(0, (-1, models)) for x in (x_t, t, context)]
        with sdpa_kernel(SDPBackend.MATH):  # the only attention that vmap knows
            return vmap(one, axes, out_dims=1, randomness="different")(flat, *split).flatten(0, 1)

    return shapes, call


def fast_network(network: nn.Module) -> tuple[Shapes, FlatNetwork]:
    """The same with fused blocks; they know no context."""
    from letgo.fast.network import FastTransformer

    fast = FastTransformer(network).train()  # pyright: ignore[reportArgumentType]
    return fast.shapes, lambda flat, x_t, t, context: fast(flat, x_t, t)


def precision_of(config: Config, device: torch.device) -> str:
    cuda = device.type == "cuda"
    precision = config.precision if config.precision != "auto" else ("bf16" if cuda else "fp32")
    if precision not in ("bf16", "fp16", "fp32"):
        raise LetgoError(f"unknown precision '{precision}'; choose bf16, fp16 or fp32")
    if precision == "fp16" and not cuda:
        raise LetgoError("fp16 training needs a GPU; use --precision fp32 or bf16 here")
    return precision


def uses_fused_blocks(config: Config, device: torch.device, fast: bool | None = None) -> bool:
    """They compute in bf16. Only with them are several seeds faster together than one after another."""
    if device.type != "cuda" or fast is False or precision_of(config, device) != "bf16":
        return False
    return supported(config.build_model())


class Trainer:
    """Weights, optimiser and average of a run, or of several that differ in their seed. `step()` is a step of each.

    Weights, average and Adam's moments are matrices with one row per model, see `pack`.
    """

    def __init__(
        self,
        config: Config,
        data: TrainingData,
        device: torch.device,
        fast: bool | None = None,
        seeds: Sequence[int] = (),
    ):
        self.config, self.data, self.device = config, data, device
        self.seeds = tuple(seeds) or (config.seed,)
        self.codec, self.path, self.objective = config.build_codec(), config.build_path(), config.build_objective()
        self.precision = precision_of(config, device)
        cuda, models = device.type == "cuda", len(self.seeds)
        fused = uses_fused_blocks(config, device, fast)
        fast = cuda if fast is None else fast
        fast = fast and (fused or models == 1)  # compiled, attention under vmap drops out to NaN (torch 2.13)
        drawn = [_drawn(config, seed) for seed in self.seeds]
        network = drawn[-1].to(device).train()
        self.shapes, self.network = (fast_network if fused else plain_network)(network)
        rows = [pack(dict(model.named_parameters()), self.shapes) for model in drawn]
        self.flat = torch.stack([row.to(device) for row in rows]).requires_grad_()
        self.ema = self.flat.detach().clone()
        compiled = fast and self.precision != "fp16"
        self.rate = torch.tensor(0.0, device=device)
        # Torch's fused Adam gives one tensor to few blocks; compiled, the plain one is a single kernel on all of them.
        self.optimizer = torch.optim.Adam([self.flat], lr=self.rate, fused=cuda and not compiled, capturable=cuda)
        self.adam = {
            "step": torch.zeros((), device=device if cuda else "cpu"),  # where Adam itself would put it
            "exp_avg": torch.zeros_like(self.ema),
            "exp_avg_sq": torch.zeros_like(self.ema),
        }
        self.optimizer.state[self.flat] = self.adam
        self.scaler = torch.GradScaler(device.type, enabled=self.precision == "fp16")
        self.loss_sum: dict[str, Tensor] = {}  # one number per model, since its step `logged`
        self.steps_done, self.logged = 0, [0] * models
        self.graph: torch.cuda.CUDAGraph | None = None
        self.warm_steps = self.captures = 0
        self.capture = cuda and compiled  # the scaler's skipped steps do not fit in a graph
        self.losses: Callable[..., tuple[Tensor, dict[str, Tensor]]] = self._losses
        self.update: Callable[[], object] = self.optimizer.step
        if fast:
            self.losses = torch.compile(self._losses, dynamic=False)
        if compiled:
            self.update = torch.compile(self.optimizer.step, dynamic=False)

    def _losses(
        self, flat: Tensor, symbols: Symbols, given: CellMask, context: Tensor | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """What is minimised, and the losses of each model."""
        x0 = self.codec.encode(symbols)

        def model(x_t: State, t: Time, context: Tensor | None) -> State:
            return self.network(flat, x_t, t, context)

        losses = self.objective(model, self.path, x0, Clues(x0, given), context, len(self.seeds))
        return losses["loss"].sum(), losses

    def _autocast(self) -> Any:
        if self.precision == "fp32":
            return nullcontext()
        kind = torch.bfloat16 if self.precision == "bf16" else torch.float16
        return torch.autocast(self.device.type, dtype=kind, cache_enabled=False)

    def _body(self) -> None:
        """Everything of a step that a CUDA graph can replay."""
        with self._autocast():
            total, losses = self.losses(self.flat, *self.data.draw(len(self.seeds) * self.config.batch))
        if self.scaler.is_enabled():
            self.scaler.scale(total).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        else:
            total.backward()
            self.update()
        for name, value in losses.items():
            self.loss_sum.setdefault(name, torch.zeros(len(self.seeds), device=self.device)).add_(value.detach())

    def step(self) -> None:
        step = self.steps_done
        self.rate.fill_(learning_rate(self.config, step))
        if self.device.type != "cuda":
            # Seeding every step makes a resumed run equal to an uninterrupted one, bit for bit.
            torch.manual_seed((self.seeds[0] << 32) + step)
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
            self.ema.lerp_(self.flat.detach(), ema_weight(self.config, step + 1))

    def _capture(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.captures += 1
        self.graph = captured(self._body)

    def mean_losses(self) -> list[dict[str, float]]:
        """Each model's means since the last call."""
        steps = [max(self.steps_done - logged, 1) for logged in self.logged]
        self.logged = [self.steps_done] * len(self.seeds)
        totals = torch.stack([*self.loss_sum.values()], 1).tolist() if self.loss_sum else [[] for _ in self.seeds]
        for total in self.loss_sum.values():
            total.zero_()
        names = list(self.loss_sum)
        return [
            {name: value / count for name, value in zip(names, row, strict=True)}
            for row, count in zip(totals, steps, strict=True)
        ]

    def finite(self) -> list[bool]:
        """For each model, whether its weights and losses are."""
        numbers = torch.cat([self.flat.detach(), *(total[:, None] for total in self.loss_sum.values())], 1)
        return numbers.isfinite().all(1).tolist()

    def _matrix(self, kind: str) -> Tensor:
        return {"raw": self.flat.detach(), "ema": self.ema, **self.adam}[kind]

    def weights(self, kind: str, model: int = 0) -> dict[str, Tensor]:
        """A copy by name, on the CPU: 'raw', 'ema', or a moment of Adam, 'exp_avg' or 'exp_avg_sq'."""
        row = self._matrix(kind)[model].cpu()
        return {name: value.clone() for name, value in unpack(row, self.shapes).items()}

    def set_weights(self, kind: str, weights: dict[str, Tensor], whose: str, model: int = 0) -> None:
        if self.shapes != {name: value.shape for name, value in weights.items()}:
            raise LetgoError(f"{whose} belongs to another network than {self.config.name}")
        self._matrix(kind)[model].copy_(pack(weights, self.shapes))

    def state(self, model: int = 0) -> dict[str, Any]:
        """What one model needs to go on, alone or beside others."""
        return {
            "step": self.steps_done,
            "config": replace(self.config, seed=self.seeds[model]).as_dict(),
            "raw": self.weights("raw", model),
            "ema": self.weights("ema", model),
            "optimizer": {
                "step": float(self.adam["step"]),
                "exp_avg": self.weights("exp_avg", model),
                "exp_avg_sq": self.weights("exp_avg_sq", model),
            },
            "scaler": self.scaler.state_dict(),
            "loss_sum": {name: total[model].cpu().clone() for name, total in self.loss_sum.items()},
            "logged": self.logged[model],
        }

    def restore(self, *states: dict[str, Any]) -> None:
        """One state per model, all of the same step."""
        if len({int(state["step"]) for state in states}) != 1 or len(states) != len(self.seeds):
            raise LetgoError("models trained together need one state each, all of the same step")
        for model, state in enumerate(states):
            if not {"step", "exp_avg", "exp_avg_sq"} <= state["optimizer"].keys():
                raise LetgoError("the saved state was written by another version; start from its weights with --init")
            for kind in ("raw", "ema"):
                self.set_weights(kind, state[kind], "the saved state", model)
            for kind in ("exp_avg", "exp_avg_sq"):
                self.set_weights(kind, state["optimizer"][kind], "the saved state", model)
        first = states[0]
        self.adam["step"].fill_(first["optimizer"]["step"])
        if self.scaler.is_enabled() and first.get("scaler"):
            self.scaler.load_state_dict(first["scaler"])
        self.steps_done = int(first["step"])
        self.logged = [int(state["logged"]) for state in states]
        self.loss_sum = {
            name: torch.stack([state["loss_sum"][name] for state in states]).to(self.device)
            for name in first["loss_sum"]
        }
        if self.device.type == "cuda":
            torch.cuda.manual_seed((self.seeds[0] << 32) + self.steps_done)


def _drawn(config: Config, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return config.build_model()


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
    trained: bool = True  # False where everything was complete before


@dataclass
class Run:
    """The folder of one seed, with what it says of the past."""

    config: Config
    out: Path
    state: dict[str, Any] | None
    instances: int = 0  # the fingerprint of those it is trained on
    writer: Any = None

    @staticmethod
    def open(config: Config, out: Path) -> Run:
        state = load_state(out / "state.pt") if (out / "state.pt").exists() else None
        if state is not None:
            _check_same_run(config, state, out)
        elif any((out / name).exists() for name in ("model.safetensors", "metrics.jsonl")):
            raise LetgoError(f"{out} holds a run without its state.pt; restore that file or choose another --out")
        return Run(config, out, state)

    @property
    def step(self) -> int:
        return 0 if self.state is None else int(self.state["step"])

    @property
    def seconds(self) -> float:
        return 0.0 if self.state is None else float(self.state.get("seconds", 0.0))

    def given(self, instances: int) -> None:
        """A run goes on with the instances that it began with."""
        if self.state is not None and self.state.get("instances", instances) != instances:
            raise LetgoError(
                f"{self.out} was trained on other instances than these; repeat the --data (or --boards) that it was "
                "started with, or choose another --out"
            )
        self.instances = instances

    def begin(self, tensorboard: bool) -> None:
        write_json(self.out / "config.json", self.config.as_dict())
        remove_leftovers(self.out)
        (self.out / "validation.json").unlink(missing_ok=True)  # it speaks of weights that are about to be replaced
        _drop_later_lines(self.out / "metrics.jsonl", self.step)
        self.writer = _summary_writer(self.out) if tensorboard else None

    def log(self, step: int, losses: dict[str, float], speed: float) -> None:
        line = json.dumps({"step": step, **losses, "steps_per_second": round(speed, 2)})
        append_line(self.out / "metrics.jsonl", line)
        if self.writer is not None:
            for name, value in losses.items():
                self.writer.add_scalar(name, value, step)

    def keep(self, step: int, **kinds: dict[str, Tensor]) -> None:
        both = {f"{kind}.{name}": value for kind, weights in kinds.items() for name, value in weights.items()}
        save_weights(self.out / "checkpoints" / f"{step}.safetensors", both, torch.float16)

    def save(self, state: dict[str, Any]) -> None:
        save_state(self.out / "state.pt", state)
        save_weights(self.out / "model.safetensors", state["ema"])
        self.state = state


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
) -> Result:
    """Train, or go on with, the run in `out`; with `seeds`, the runs in its folders s0, s1, ... together.

    `problem` supplies the training instances when they are needed: one set for all seeds, or one for each. Runs that
    stand at different steps first catch up with one another.
    """
    started = begun = time.monotonic()
    deadline = math.inf if max_seconds is None else started + max_seconds
    folders = {seed: out / f"s{seed}" for seed in seeds} or {config.seed: out}
    runs = [Run.open(replace(config, seed=seed), folder) for seed, folder in folders.items()]
    if all(run.step >= config.steps and (run.out / "model.safetensors").exists() for run in runs):
        return Result(config.steps, max(run.seconds for run in runs), "done", trained=False)
    problems = problem()
    prints = [fingerprint(p) for p in ([problems] if isinstance(problems, Problem) else problems)]
    for i, run in enumerate(runs):
        run.given(prints[i % len(prints)])
    result = Result(0, 0.0, "done")
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
        if result.stopped_by != "done":
            break
        begun = time.monotonic()
    return result


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
        self.before = [run.seconds for run in self.runs]
        for run in self.runs:
            run.begin(self.tensorboard)
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
        return Result(trainer.steps_done, max(run.seconds for run in self.runs), stopped_by, caught_signal)

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
        self.check(self.trainer.finite())
        states = [self.trainer.state(model) for model in range(len(self.runs))]
        spent = time.monotonic() - self.begun
        for run, state, before in zip(self.runs, states, self.before, strict=True):
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
