"""`letgo.train`: a preset or configuration in, a run folder out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, overload

import torch

from letgo.config import Config
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.evaluation import evaluate
from letgo.machine import pick_device
from letgo.presets import PRESETS
from letgo.presets import preset as preset_named
from letgo.progress import clock
from letgo.runs import Run, Weights, best_of, locked
from letgo.solver import Solver
from letgo.tasks import Problem
from letgo.training.data import fingerprint
from letgo.training.loop import KEEP, Options, Problems, Progress, train_runs
from letgo.training.trainer import uses_fused_blocks


def configured(preset: str | Config, **changes: Any) -> Config:
    """The preset's row with some fields changed; None leaves a field as it is."""
    config = (preset_named(preset) if isinstance(preset, str) else preset).changed(**changes)
    for name in ("full_gradient", "simple_weight"):
        if config.objective == "simple" and changes.get(name) is not None:
            raise LetgoError(
                f"--{name.replace('_', '-')} is for self-correction, and {config.name} has none; "
                f"train {config.name.removesuffix('-baseline')}"
            )
    if config.optimizer == "muon" and config.network != "transformer":
        raise LetgoError(f"muon is for Transformers, and {config.name} has another network; leave --optimizer out")
    return config


def training_instances(config: Config, data: str | Problem | None) -> Problem:
    """One's own, those of a file or folder, or drawn by the task's own generator with the run's seed."""
    task = config.build_task()
    if isinstance(data, Problem):
        problem = data
    else:
        source = source_of(task, data)
        if config.name in PRESETS and config.boards == PRESETS[config.name].boards:
            source.check_training()
        problem = source.training(config.boards, config.seed)
    return task.images(problem) if config.symmetries else problem


@overload
def train(preset: str | Config, out: str | Path, *, seeds: None = None, **options: Any) -> Run: ...
@overload
def train(preset: str | Config, out: str | Path, *, seeds: Sequence[int], **options: Any) -> list[Run]: ...
def train(
    preset: str | Config,
    out: str | Path,
    *,
    seeds: Sequence[int] | None = None,
    data: str | Problem | None = None,
    device: str | torch.device = "auto",
    max_seconds: float | None = None,
    keep: Sequence[int] | None = None,
    validate: int | None = None,
    progress: Progress | None = None,
    say: Callable[[str], None] = lambda text: None,
    log_every: int = 100,
    tensorboard: bool = False,
    fast: bool | None = None,
    command: str = "letgo.train(...)",
    **changes: Any,
) -> Run | list[Run]:
    """Train a preset or a configuration in the folder `out`, or go on with the run there; `letgo train` does the same.

    Further words are fields of the configuration. With `seeds`, one run each in the folders s0, s1, ... of `out`.
    `progress` is called with the step, their number, steps per second and losses; `say` with lines for a reader.
    `validate` boards (0: none) decide between averaged and raw weights in the end.

    >>> import letgo
    >>> run = letgo.train("sudoku-mini", out="runs/mini", steps=20, batch=8, boards=64, validate=4, device="cpu")
    >>> run.step, run.stopped_by, sorted(path.name for path in run.folder.iterdir())
    (20, 'done', ['config.json', 'metrics.jsonl', 'model.safetensors', 'state.pt', 'validation.json'])
    >>> letgo.train("sudoku-mini", out="runs/mini", steps=20, batch=8, boards=64, device="cpu").trained  # again
    False
    """
    config, out, where = configured(preset, **changes), Path(out), pick_device(device)
    options = Options(max_seconds, KEEP if keep is None else keep, progress, log_every, tensorboard, fast)
    session = Session(config, data, where, options, validate, say, command)
    if seeds is None:
        return session.train({config.seed: out}, out)[0]
    folders = {seed: out / f"s{seed}" for seed in seeds}
    if len(folders) > 1 and data == "-":
        raise LetgoError("--data -: standard input can be read once, and --seeds needs it for each; write it to a file")
    if len(folders) > 1 and uses_fused_blocks(config.build_model(), config.precision, where, fast):
        return session.train(folders, out)
    runs: list[Run] = []
    end = None if max_seconds is None else time.monotonic() + max_seconds
    for seed, folder in folders.items():
        left = None if end is None else end - time.monotonic()  # one limit for all seeds together
        if left is not None and left <= 0:
            waiting = [str(other) for other in folders if other not in {run.config.seed for run in runs}]
            say(f"no time left for seed {', '.join(waiting)}. To go on: {command}")
            break
        alone = replace(session, config=replace(config, seed=seed), options=replace(options, max_seconds=left))
        runs += alone.train({seed: folder}, folder)
        if runs[-1].stopped_by == "signal":  # the other seeds must not begin
            break
    return runs


@dataclass(frozen=True)
class Session:
    """A call of `train`: from instances to validated weights, for one run or several together."""

    config: Config
    data: str | Problem | None
    device: torch.device
    options: Options
    validate: int | None
    say: Callable[[str], None]
    command: str

    def train(self, folders: dict[int, Path], out: Path) -> list[Run]:
        config, several = self.config, len(folders) > 1
        compare = self.data not in (None, "-")  # what the task draws itself follows from the configuration
        runs = train_runs(config, lambda: self.instances([*folders]), folders, self.device, self.options, compare)
        first = runs[0]
        if first.stopped_by != "done":
            late = "" if any(run.trained for run in runs) else " (starting took all of --max-seconds: give more)"
            where = f"stopped at step {first.step:,} of {config.steps:,}{late}; saved in {out}"
            self.say(f"{where}. To go on: {self.command}")
        if first.stopped_by == "signal":
            return runs
        for run in runs:
            if self.validate != 0 and not (run.folder / "validation.json").exists():  # training removes it
                text = self.choose_weights(run)
                self.say(f"seed {run.config.seed}, {text}" if several else text)
        if first.stopped_by == "done":
            seconds = clock(max(run.seconds for run in runs))
            whose = "the runs are" if several else "the run is"
            self.say(f"{config.name}: {first.step:,} steps in {seconds}; {whose} in {out}")
        return runs

    def instances(self, seeds: Sequence[int]) -> Problems:
        """One set where all seeds learn from the same, else one for each."""
        sets = [training_instances(replace(self.config, seed=seed), self.data) for seed in seeds]
        return sets[0] if len({fingerprint(each) for each in sets}) == 1 else sets

    def choose_weights(self, run: Run) -> str:
        """Euler on validation instances, as the paper picks checkpoints, decides between EMA and raw weights."""
        config, count = run.config, self.validate or (512 if self.device.type == "cuda" else 64)
        data = None if isinstance(self.data, Problem) else self.data
        problem = source_of(config.build_task(), data).validation(count, config.seed)

        def score(weights: Weights) -> float:
            network = config.build_model()
            network.load_state_dict(weights)
            solver = Solver(config, network, self.device.type, fast=False)
            return evaluate(solver, problem, solver.sampler("euler")).validity.value

        with locked(run.folder, wait=False):
            scores = {kind: score(run.weights(run.step, kind)) for kind in ("ema", "raw")}
            kind = ("ema", "raw")[best_of([*scores.values()], len(problem))]
            because = {"seconds": round(run.seconds, 1), "scores": scores, "rule": "euler", "count": len(problem)}
            run.export(run.step, kind, {**because, "command": self.command})
        return f"validation, Euler, n={len(problem)}: EMA {scores['ema']:.3f}, raw {scores['raw']:.3f}; kept {kind}"
