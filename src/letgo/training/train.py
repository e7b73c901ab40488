"""`letgo.train`: a preset or configuration in, a run folder out."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, overload

import torch
from torch import nn

from letgo.config import Config
from letgo.data.source import Source, source_of
from letgo.errors import LetgoError
from letgo.machine import pick_device
from letgo.models import LOOPED
from letgo.presets import PRESETS
from letgo.presets import preset as preset_named
from letgo.progress import clock, doing
from letgo.runs import Run, locked
from letgo.solver import Solver
from letgo.tasks import Problem
from letgo.training.data import TrainingData, fingerprint
from letgo.training.loop import KEEP, OnLog, Options, Problems, Progress, Watch, train_runs
from letgo.training.team import Team
from letgo.training.trainer import Trainer, uses_fused_blocks
from letgo.tune import pick_checkpoint

MEASURED = 2_600  # cells of a batch by which a step is timed: 32 Sudokus


def configured(preset: str | Config, **changes: Any) -> Config:
    """Change some fields of a preset's row; None leaves a field as it is."""
    config = (preset_named(preset) if isinstance(preset, str) else preset).changed(**changes)
    for name in ("full_gradient", "simple_weight"):
        if config.objective == "simple" and changes.get(name) is not None:
            raise LetgoError(
                f"--{name.replace('_', '-')} is for self-correction, and {config.name} has none; "
                f"train {config.name.removesuffix('-baseline')}"
            )
    if config.learning_rate == 0:
        raise LetgoError(f"{config.name}: learning_rate is {config.learning_rate}; expected a number above 0")
    if config.objective == "cross-entropy" and config.network not in LOOPED:
        raise LetgoError(f"cross-entropy is for looped networks, and {config.name} has another; leave --objective out")
    if config.sample_turns is not None and config.network not in LOOPED:
        raise LetgoError(f"sample_turns are of looped networks, and {config.name} has another; leave it out")
    if (config.objective == "consistency") != (config.network == "consistency"):
        raise LetgoError(f"consistency training is for networks of its own, and {config.name} has only one of the two")
    if config.optimizer == "muon" and config.network != "transformer":
        raise LetgoError(f"muon is for Transformers, and {config.name} has another network; leave --optimizer out")
    return config


def training_instances(config: Config, data: str | Problem | None) -> Problem:
    """Return one's own, those of a file or folder, or those that the task draws with the run's seed."""
    task = config.build_task()
    if isinstance(data, Problem):
        problem = data
    else:
        source = source_of(task, data)
        doing(f"drawing {config.boards:,} training instances" if data is None else f"reading {data}")
        check_source(config, source)
        problem = source.training(config.boards, config.seed)
    return task.images(problem) if config.symmetries and not task.draws_images else problem


def check_source(config: Config, source: Source) -> None:
    """Refuse a published recipe without the instances that it was made for."""
    if config.name in PRESETS and config.boards == PRESETS[config.name].boards:
        source.check_training()


def seconds_of_a_step(config: Config, measure: float) -> float:
    """Return what a step takes on the CPU, by as many steps as that many seconds hold, of which nothing is kept.

    Their batch is an eighth of the real one, less of large boards: a whole step may take long, and a CPU's time follows
    the batch.
    """
    check_source(config, source_of(config.build_task()))
    task = config.build_task()
    batch = max(1, min(config.batch // 8, MEASURED // task.cells))
    few = replace(config, batch=batch, boards=batch)
    instances = source_of(task).training(few.boards, few.seed)
    doing("measuring a step")
    data = TrainingData.of(instances, few.masks, torch.device("cpu"), few.build_image())
    trainer, begun = Trainer.of(few, data, fast=False), time.monotonic()
    while time.monotonic() - begun < measure:
        trainer.step()
    return (time.monotonic() - begun) / trainer.steps_done * config.batch / few.batch


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
    digits: str | None = None,
    device: str | torch.device = "auto",
    max_seconds: float | None = None,
    keep: Sequence[int] | None = None,
    validate: int | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
    on_log: OnLog | None = None,
    say: Callable[[str], None] = lambda text: None,
    log_every: int = 100,
    fast: bool | None = None,
    command: str = "letgo.train(...)",
    **changes: Any,
) -> Run | list[Run]:
    """Train a preset or a configuration in the folder `out`, or go on with the run there; `letgo train` does the same.

    Further words are fields of the configuration. With `seeds`, one run each in the folders s0, s1, ... of `out`.
    `on_log(run, step, metrics)` is called with every line of each run's log, `progress` with the step, their number,
    steps per second and mean losses of all runs; `watch` after each step, with the step, their number and a function
    that looks at the loss; `say` with lines for a reader.
    `validate` boards (0: none) decide between averaged and raw weights in the end. `digits` says where images of digits
    come from, for a model that has such: 'mnist', 'optdigits', or a folder.

    >>> import letgo
    >>> run = letgo.train("sudoku-mini", out="runs/mini", steps=20, batch=8, boards=64, validate=4, device="cpu")
    >>> run.step, run.stopped_by, sorted(path.name for path in run.folder.iterdir())
    (20, 'done', ['config.json', 'metrics.jsonl', 'model.safetensors', 'state.pt', 'validation.json'])
    >>> letgo.train("sudoku-mini", out="runs/mini", steps=20, batch=8, boards=64, device="cpu").trained  # again
    False
    """
    if seeds is not None and len(set(seeds)) < len(seeds):
        listed = ",".join(map(str, seeds))
        raise LetgoError(f"seeds {listed}: one of them twice; each seed is a run of its own")
    config, out, where = configured(preset, **changes), Path(out), pick_device(device)
    team = Team.join(where)
    if not team.leads:  # one of them writes and speaks
        say, validate = (lambda text: None), 0
    folders = {config.seed: out} if seeds is None else {seed: out / f"s{seed}" for seed in seeds}
    config, files = _with_digits(config, digits, next(iter(folders.values())), say)
    if data == "-" and len(folders) * team.size > 1:
        raise LetgoError("--data -: standard input can be read once, and each run needs it; write it to a file")
    together = len(folders) > 1 and team.size == 1
    stacked = together and uses_fused_blocks(config.build_model(), config.precision, where, fast)
    compare = data not in (None, "-")  # what the task draws itself follows from the configuration
    begun, runs = time.monotonic(), []
    for group in [folders] if stacked else [{seed: folder} for seed, folder in folders.items()]:
        left = None if max_seconds is None else begun + max_seconds - time.monotonic()  # for all seeds together
        if runs and team.most(left is not None and left <= 0):
            waiting = [str(seed) for seed in folders if seed not in {run.config.seed for run in runs}]
            say(f"no time left for seed {', '.join(waiting)}. To go on: {command}")
            break
        options = Options(left, KEEP if keep is None else keep, progress, log_every, fast, watch, on_log, files, team)
        members = train_runs(config, partial(_instances, config, data, say, [*group]), group, where, options, compare)
        runs += members
        first, place = members[0], out if stacked else members[0].folder
        if first.stopped_by != "done":
            late = "" if any(run.trained for run in members) else " (starting took all of --max-seconds: give more)"
            stop = f"stopped at step {first.step:,} of {config.steps:,}{late}"
            say(f"{stop}; saved in {place}. To go on: {command}")
        if first.stopped_by == "signal":  # the other seeds must not begin
            break
        for run in members:
            chosen = (run.folder / "validation.json").exists()  # training removes it
            if validate != 0 and run.step and not chosen:
                text = _choose_weights(run, data, where, validate, command)
                say(f"seed {run.config.seed}, {text}" if stacked else text)
        if first.stopped_by == "done":
            spent, whose = clock(max(run.seconds for run in members)), "the runs are" if stacked else "the run is"
            say(f"{config.name}: {first.step:,} steps in {spent}; {whose} in {place}")
    return runs if seeds is not None else runs[0]


def _with_digits(
    config: Config, digits: str | None, folder: Path, say: Callable[[str], None]
) -> tuple[Config, dict[str, bytes]]:
    """Return the configuration that names the source of digits, where symbols are images of them, and their files."""
    prepare = getattr(config.build_codec(), "prepare", None)
    if prepare is None:
        if digits is not None:
            raise LetgoError(f"--digits is for models of digit images, and {config.name} has none; leave it out")
        return config, {}
    options, files = prepare(config.build_task(), digits, folder, say)
    return replace(config, codec_options=options), files


def _instances(
    config: Config, data: str | Problem | None, say: Callable[[str], None], seeds: Sequence[int]
) -> Problems:
    """Return one set where all seeds learn from the same, else one for each."""
    sets = [training_instances(replace(config, seed=seed), data) for seed in seeds]
    if sets[0].context is not None and not getattr(config.build_model(), "sees_context", True):
        say(f"network '{config.network}' is not told what comes beside the clues; nlm is, where cells are pairs")
    return sets[0] if len({fingerprint(each) for each in sets}) == 1 else sets


def _choose_weights(run: Run, data: str | Problem | None, device: torch.device, count: int | None, command: str) -> str:
    """Let Euler on validation instances, as the paper picks checkpoints, decide between EMA and raw weights."""
    config, count = run.config, count or (512 if device.type == "cuda" else 64)
    source = source_of(config.build_task(), None if isinstance(data, Problem) else data)
    doing(f"choosing between averaged and raw weights by {count} validation instances")
    problem = source.validation(count, config.seed)

    def build(network: nn.Module) -> Solver:
        return Solver(config, network, device.type, run.folder, fast=False).on_split("valid")

    both = [(run.step, "ema"), (run.step, "raw")]
    with locked(run.folder, wait=False):
        if not source.task.has_rules:
            return _choose_by_likelihood(run, both, build, problem, command)
        choice = pick_checkpoint(run, both, build, problem)
        kind, ema, raw = choice["weights"], *(row["validity"] for row in choice["scores"])
        because = {"seconds": round(run.seconds, 1), "scores": {"ema": ema, "raw": raw}, "rule": choice["rule"]}
        run.export(run.step, kind, {**because, "count": len(problem), "command": command})
    close = ", as raw leads by less than a standard error" if kind == "ema" and raw > ema else ""
    scores = f"EMA {ema:.3f}, raw {raw:.3f}; kept {kind}{close}"
    return f"validation, {choice['rule'].capitalize()}, n={len(problem)}: {scores}"


def _choose_by_likelihood(
    run: Run, candidates: list[tuple[int, str]], build: Callable[[nn.Module], Solver], problem: Problem, command: str
) -> str:
    """Keep the weights that believe most in rows which no training saw, where no rule tells a wrong board."""
    cells, scores = int((~problem.given).sum()), {}
    for step, kind in candidates:
        likelihood = build(run.network(step, kind)).self_likelihood(problem.solution, problem)
        scores[kind] = round(float(likelihood.sum()) / cells, 5)
    best = max(scores, key=lambda kind: scores[kind])
    because = {"seconds": round(run.seconds, 1), "scores": scores, "rule": "self-likelihood per open cell"}
    run.export(run.step, best, {**because, "count": len(problem), "command": command})
    ema, raw = scores["ema"], scores["raw"]
    held = f"validation, self-likelihood of {len(problem)} held-out rows per open cell"
    return f"{held}: EMA {ema:.4f}, raw {raw:.4f}; kept {best}"
