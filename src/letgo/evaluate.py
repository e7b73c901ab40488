"""A model and a rule in, a report out. The rules of the task are looked at only after sampling has ended."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch

from letgo import __version__, metrics
from letgo.codecs import OneHot
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.sampling import BELIEF_TIMES
from letgo.solver import Solver, calls_per_step
from letgo.tasks import Problem, Task


def instances(
    task: Task, regime: str | None, count: int, seed: int, data: str | None = None, purpose: str = "test"
) -> Problem:
    """The former door; `source_of(task, data).draw(split, regime, count, seed)` is the one."""
    return source_of(task, data).draw(purpose, regime, count, seed)


def evaluate(
    solver: Solver,
    rule: str,
    problem: Problem,
    steps: int | None = None,
    passes: int = 1,
    seed: int = 0,
    batch: int | None = None,
    soft_until: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    regime: str | None = None,
    **settings: float | None,
) -> dict[str, Any]:
    """Sample every instance `passes` times from seeded noise and score the final states.

    Settings that are not given are those tuned for the regime.
    """
    if passes < 1:
        raise LetgoError(f"passes must be at least 1, got {passes}")
    made, used = solver.rule(rule, regime=regime, **settings)  # pyright: ignore[reportArgumentType]
    steps = solver.steps(steps)
    started, before = time.perf_counter(), 0.0 if solver.loop is None else solver.loop.building
    states = solver.sample(problem, made, steps, seed, 0, batch, soft_until, progress, passes)
    tries = states.unflatten(0, (passes, -1))
    seconds = time.perf_counter() - started
    boards = [solver.codec.decode(x) for x in tries]
    choosing = passes > 1 and isinstance(solver.codec, OneHot)
    best = solver.most_believed(torch.stack(boards), problem, seed, batch) if choosing else None
    valid = torch.stack([solver.task.validate(b, problem) for b in boards], dim=1)
    calls = steps * calls_per_step(rule) * passes * len(problem)
    if soft_until is not None:
        used = {**used, "soft_until": soft_until}
    report: dict[str, Any] = {
        "task": solver.task.name,
        "rule": rule,
        "settings": used,
        "steps": steps,
        "count": len(problem),
        "seed": seed,
        "validity": metrics.Rate.of(valid[:, 0]).as_dict(),
        "pass_at_k": {"k": passes, **metrics.pass_at_k(valid).as_dict()},
        "violation_rate": metrics.violation_rate(boards[0], problem, solver.task).as_dict(),
        "codeword_distance": metrics.codeword_distance(tries[0], problem.given, solver.codec).as_dict(),
        **({} if best is None else chosen(valid, best)),
        "uniqueness": metrics.valid_uniqueness(boards[0], valid[:, 0]).as_dict(),
        **own_scores(solver.task, boards, problem),
        "calls": calls,
        "seconds": round(seconds, 3),
        **({} if solver.loop is None else {"building_seconds": round(solver.loop.building - before, 3)}),
        "device": device_name(solver.device),
        "precision": solver.sample_precision,
        "version": __version__,
    }
    return report


def chosen(valid: torch.Tensor, best: torch.Tensor) -> dict[str, Any]:
    """Of several tries the validity of the one that the network believes most: a choice without the rules."""
    boards, tries = valid.shape
    rate = metrics.Rate.of(valid.gather(1, best[:, None])[:, 0]).as_dict()
    return {"chosen_at_k": {"k": tries, **rate, "calls": len(BELIEF_TIMES) * tries * boards}}


def own_scores(task: Task, tries: list[torch.Tensor], problem: Problem) -> dict[str, Any]:
    """What only this task is measured by; a score of any of k tries says which k."""
    estimates = {
        "rate": metrics.Rate.of,
        "any": metrics.pass_at_k,
        "share": lambda values: metrics.Mean(values, most=1.0),
        "balanced": lambda values: metrics.Pooled(values, metrics._balanced),
    }
    return {
        name: ({"k": len(tries)} if kind == "any" else {}) | estimates[kind](values).as_dict()
        for name, (kind, values) in task.outcomes(tries, problem).items()
    }


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
