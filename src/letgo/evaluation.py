"""A model and a sampler in, a report out. The rules of the task are looked at only after sampling has ended."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any

import torch

from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.estimates import Column
from letgo.machine import device_name
from letgo.metrics import codeword_distances, violation_shares
from letgo.report import Outcomes, Report, board_digest, shard_of
from letgo.runs import own_name
from letgo.samplers import Sampler
from letgo.sampling import BELIEF_TIMES
from letgo.solver import Progress, Solver, load
from letgo.tasks import Problem


def evaluate_model(
    model: str | os.PathLike[str] | Solver,
    rule: str = "tweedie",
    regime: str | None = None,
    steps: int | None = None,
    count: int = 2000,
    passes: int = 1,
    seed: int = 0,
    data: str | None = None,
    shard: str | None = None,
    device: str = "auto",
    batch: int | None = None,
    progress: Progress | None = None,
    **settings: float | None,
) -> Report:
    """Measure a model with a rule on instances that no training saw; `letgo.evaluate` and `letgo evaluate` are this.

    `settings` are those of the rule: sigma, tau_start, variance, soft_until; where they are not given, as tuned.

    >>> import letgo
    >>> report = letgo.evaluate("sudoku-mini", rule="tweedie", count=8, device="cpu")
    >>> report.validity.n, report.regime, report.steps
    (8, '4', 50)
    """
    name = model.config.name if isinstance(model, Solver) else os.fspath(model)
    solver = model if isinstance(model, Solver) else load(name, device)
    source, sampler = source_of(solver.task, data), solver.sampler(rule, steps, regime, **settings)
    problem = source.draw("test", regime, count, seed)
    part = problem if shard is None else part_of(problem, shard)
    where = "file" if source.own_clues(problem) else regime or source.regimes[0]
    report = evaluate(solver, part, sampler, passes, seed, batch, progress)
    whole = None if shard is None else len(problem)
    return replace(report, model=own_name(name), regime=where, shard=shard, whole=whole)


def part_of(problem: Problem, shard: str) -> Problem:
    """Part I of N of a list, "I/N", counted from 0; the instances keep their numbers."""
    index, total = shard_of(shard)
    if total > len(problem):
        raise LetgoError(
            f"--shard {shard}: expected I/N with I from 0 to N - 1, N at most the {len(problem)} instances"
        )
    number = torch.arange(len(problem)) if problem.number is None else problem.number
    return replace(problem, number=number)[torch.arange(len(problem)).tensor_split(total)[index]]


def evaluate(
    solver: Solver,
    problem: Problem,
    sampler: Sampler,
    passes: int = 1,
    seed: int = 0,
    batch: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Sample every instance `passes` times from seeded noise and score the final states."""
    if passes < 1:
        raise LetgoError(f"passes must be at least 1, got {passes}")
    started, before = time.perf_counter(), solver.engine.building
    tries = solver.sample(problem, sampler, seed, passes, 0, batch, progress).unflatten(0, (passes, -1))
    seconds, building = time.perf_counter() - started, solver.engine.building - before
    boards = torch.stack([solver.codec.decode(x) for x in tries])
    best = solver.most_believed(boards, problem, seed, batch) if passes > 1 and solver.codec.one_hot else None
    number = range(len(problem)) if problem.number is None else problem.number.tolist()
    return Report.of(
        Outcomes(list(number), _columns(solver, problem, tries, boards, best, sampler.calls * passes)),
        task=solver.task.name,
        rule=sampler.rule,
        settings=sampler.settings,
        steps=sampler.steps,
        seed=seed,
        calls=sampler.calls * passes * len(problem),
        seconds=round(seconds, 3),
        building_seconds=round(building, 3) if solver.engine.building else None,
        device=device_name(solver.device),
        precision=solver.sample_precision,
    )


def _columns(solver: Solver, problem: Problem, tries: Any, boards: Any, best: Any, calls: int) -> dict[str, Column]:
    """Every score of every instance; the first try counts where a score is of one."""
    task, passes = solver.task, len(boards)
    valid = torch.stack([task.validate(board, problem) for board in boards], dim=1)
    digests = torch.tensor([board_digest(board) for board in boards[0]], dtype=torch.float64)
    columns = {
        "validity": Column.of("rate", valid[:, 0]),
        "pass_at_k": Column.of("any", valid),
        "violation_rate": Column.of("share", violation_shares(boards[0], problem, task)),
        "codeword_distance": Column.of("mean", codeword_distances(tries[0], problem.given, solver.codec)),
        "uniqueness": Column.of("distinct", torch.stack([digests, valid[:, 0].double()], 1)),
        "calls_per_instance": Column.of("spread", torch.full((len(problem),), calls)),
    }
    if best is not None:
        chosen = valid.gather(1, best[:, None])[:, 0]
        cost = torch.tensor([passes, len(BELIEF_TIMES) * passes]).expand(len(problem), 2)
        columns["chosen_at_k"] = Column.of("chosen", torch.cat([chosen[:, None], cost], 1))
    return {**columns, **task.outcomes(list(boards), problem)}
