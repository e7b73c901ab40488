"""The optimisation loop around a trainer: logging, keeping, saving; interruptible and resumable."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from letgo.config import Config
from letgo.errors import LetgoError
from letgo.runs import Run
from letgo.tasks import Problem
from letgo.training.data import TrainingData, fingerprint
from letgo.training.start import weights_from
from letgo.training.team import ALONE, Team, TeamLost
from letgo.training.trainer import Trainer

KEEP = (20_000, 60_000, 100_000, 200_000, 400_000, 800_000, 1_200_000, 1_600_000, 2_000_000)  # App. L
SAVE_SECONDS = 60

Progress = Callable[[int, int, float, dict[str, float]], None]  # step, of how many, steps per second, losses
OnLog = Callable[[Run, int, dict[str, float]], None]  # the run, the step, losses and steps_per_second
Watch = Callable[[int, int, Callable[[], float]], None]  # step, of how many, and a function that looks at the loss
Problems = Problem | Sequence[Problem]  # one set of instances for all models, or one for each


@dataclass(frozen=True)
class Options:
    """Options say what happens beside the steps; none of it changes what is learned."""

    max_seconds: float | None = None
    keep: Sequence[int] = KEEP
    progress: Progress | None = None
    log_every: int = 100
    fast: bool | None = None  # False: no compilation, no CUDA graph
    watch: Watch | None = None  # called after every step
    on_log: OnLog | None = None  # called with every line of each run's log
    files: Mapping[str, bytes] = field(default_factory=dict)  # that the runs need beside their data, by name
    team: Team = ALONE  # processes that train together


@contextmanager
def interruptible() -> Iterator[list[int]]:
    """Let Ctrl-C, SIGTERM and a terminal that hangs up end the loop after the current step; the list then holds the
    signal. A second one ends all."""
    caught: list[int] = []
    numbers, hangup = [signal.SIGINT, signal.SIGTERM], getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) != signal.SIG_IGN:  # as `nohup` has it
        numbers.append(hangup)

    def catch(number: int, frame: object) -> None:
        if caught:  # a second time: the step itself may hang
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


def train_runs(
    config: Config,
    problem: Callable[[], Problems],
    folders: dict[int, Path],
    device: torch.device,
    options: Options,
    compare: bool = False,
) -> list[Run]:
    """Train, or go on with, the run of each seed, all together; the folders are locked meanwhile.

    `problem` supplies the training instances when they are needed. With `compare`, a run that is finished is held
    against them too. Runs that stand at different steps first catch up with one another.
    """
    begun = time.monotonic()
    deadline = math.inf if options.max_seconds is None else begun + options.max_seconds
    team = options.team
    beside = [Run(folder, replace(config, seed=seed)) for seed, folder in folders.items()]  # who follows touches none
    with Run.open(config, folders) if team.leads else nullcontext(beside) as runs:
        for run in runs if team.leads else ():
            run.adopt(options.files)
        finished = team.told(all(run.finished for run in runs))
        problems = problem() if compare or not finished else []
        prints = [fingerprint(p) for p in ([problems] if isinstance(problems, Problem) else problems)]
        if team.told(prints) != prints:
            raise LetgoError("the first process has other training instances; give all of them the same --data")
        for i, run in enumerate(runs if team.leads else ()):
            run.tidy(prints[i % len(prints)] if prints else None)
        goals = sorted({config.steps, *(run.step for run in runs)})[1:] or [config.steps]  # those behind catch up
        for goal in goals if not finished else ():
            group = [i for i, run in enumerate(runs) if run.step < goal or run.state is None]
            members = [runs[i] for i in group]
            mine = problems if isinstance(problems, Problem) else [problems[i] for i in group]
            data = TrainingData.of(mine, config.masks, device, config.build_image())
            trainer = _trainer(config, data, options, members)
            number = Loop(trainer, members, options, begun).run(goal, deadline)
            if number is not None:
                for run in runs:
                    run.stopped_by, run.signal = "signal" if number else "time", number
                break
            begun = time.monotonic()
        return runs


def _trainer(config: Config, data: TrainingData, options: Options, runs: Sequence[Run]) -> Trainer:
    """Build a trainer with the runs' states, or the weights that they start from."""
    seeds = [run.config.seed for run in runs]
    trainer = Trainer.of(config, data, options.fast, seeds, runs[0].folder, options.team)
    if config.init is not None and options.team.leads and any(run.state is None for run in runs):
        weights = weights_from(config.init, config, trainer.codec)
        for model in range(len(runs)):
            for kind in ("raw", "ema"):
                trainer.set_weights(kind, weights, f"model '{config.init}'", model)
    if any(run.state is not None for run in runs):
        trainer.restore(*(run.state or trainer.state(model) for model, run in enumerate(runs)))
    if options.team.size > 1:
        trainer.follow()
    return trainer


class Loop:
    """A Loop takes steps, with what happens between them: logging, keeping, saving, stopping."""

    def __init__(self, trainer: Trainer, runs: Sequence[Run], options: Options, begun: float):
        self.trainer, self.options, self.begun, self.team = trainer, options, begun, options.team
        self.runs = runs if self.team.leads else []  # who follows writes nothing
        self.before = [run.seconds for run in self.runs]  # that each run took until now
        self.save()  # from here on a killed run can be resumed, even before its first minute is over
        self.last_loss = math.nan
        self.timed_from, self.timed_at = trainer.steps_done, time.monotonic()

    def run(self, until: int, deadline: float) -> int | None:
        """Train until that step; None when it is reached, else the signal that stopped it, or 0 for the deadline."""
        trainer, first, last_save = self.trainer, self.trainer.steps_done, time.monotonic()
        watch = self.options.watch or (lambda step, total, loss: None)
        with interruptible() as caught:
            watch(first, trainer.recipe.steps, self.loss)
            try:
                while trainer.steps_done < until and not self.team.most(bool(caught) or time.monotonic() >= deadline):
                    trainer.step()
                    step = trainer.steps_done
                    if step % self.options.log_every == 0 or step == trainer.recipe.steps:
                        self.log()
                    if step in self.options.keep:
                        for model, run in enumerate(self.runs):
                            run.keep(step, raw=trainer.weights("raw", model), ema=trainer.weights("ema", model))
                    watch(step, trainer.recipe.steps, self.loss)
                    if time.monotonic() - last_save > SAVE_SECONDS:
                        self.save()
                        last_save = time.monotonic()
            except TeamLost as error:
                self.save()  # a step that could not be added up has changed nothing
                kept = f"; step {trainer.steps_done:,} is saved" if self.team.leads else ""
                raise LetgoError(f"{error}{kept}; give the command again to go on") from None
            self.save()
        for run in self.runs:
            run.trained |= trainer.steps_done > first
        return None if trainer.steps_done >= until else self.team.most(caught[0] if caught else 0)

    def loss(self) -> float:
        """Return the mean loss since the last line of the log, over all models; right after it that line's."""
        sums, taken = self.trainer.loss_sum.get("loss"), [self.trainer.steps_done - n for n in self.trainer.logged]
        if sums is None or not all(taken):
            return self.last_loss
        return sum(total / steps for total, steps in zip(sums.tolist(), taken, strict=True)) / len(taken)

    def log(self) -> None:
        step, losses = self.trainer.steps_done, self.trainer.mean_losses()
        self.check([all(map(math.isfinite, mine.values())) for mine in losses])
        now = time.monotonic()
        speed = (step - self.timed_from) / max(now - self.timed_at, 1e-9)
        self.timed_from, self.timed_at = step, now
        for run, mine in zip(self.runs, losses, strict=self.team.leads):
            run.log(step, mine, speed)
            if self.options.on_log is not None:
                self.options.on_log(run, step, {**mine, "steps_per_second": speed})
        means = {name: sum(mine[name] for mine in losses) / len(losses) for name in losses[0]}
        self.last_loss = means["loss"]
        if self.options.progress is not None:
            self.options.progress(step, self.trainer.recipe.steps, speed, means)

    def save(self) -> None:
        """Save all but runs that go on and have not taken a step yet: what was chosen among their weights stays."""
        self.check(self.trainer.finite())
        spent = time.monotonic() - self.begun
        for model, (run, before) in enumerate(zip(self.runs, self.before, strict=True)):
            if run.state is None or run.step < self.trainer.steps_done:
                run.save({**self.trainer.state(model), "seconds": before + spent})

    def check(self, finite: Sequence[bool]) -> None:
        if not all(finite):
            whose = [run.folder for run, good in zip(self.runs, finite, strict=False) if not good]
            kept = f"; {whose[0]} keeps what was saved before" if whose else ""
            raise LetgoError(
                f"the loss is no longer finite at step {self.trainer.steps_done}{kept}; start again in another --out "
                "with a lower --learning-rate"
            )
