"""A model and a rule in, a report out. The rules of the task are looked at only after sampling has ended."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from letgo import __version__, metrics
from letgo.codecs import OneHot
from letgo.data.load import load_split
from letgo.errors import LetgoError, unknown
from letgo.rng import data_rng
from letgo.sampling import BELIEF_TIMES
from letgo.solver import Solver, calls_per_step
from letgo.tasks import Problem, Task

KEEPING = ("sudoku-extreme", "maze", "connectivity")  # their instances keep the clues that came with them


def instances(
    task: Task, regime: str | None, count: int, seed: int, data: str | None = None, purpose: str = "test"
) -> Problem:
    """The instances of (seed, regime): the same for every model and rule, and never those of training."""
    if count < 1:
        raise LetgoError(f"count must be at least 1, got {count}")
    if regime == "valid" and purpose == "test":
        purpose = "valid"  # where a regime is a split, it is the one that was asked for
    rng = data_rng(seed, purpose)
    asked = regime is not None or purpose == "test"  # a run's own validation has no regime
    regime = regime or task.regimes[0]
    if data is None:
        split = getattr(task, "split", None)  # queens: so few boards that validation and test need their own
        return (split(purpose) if split else task).generate(count, rng, regime)
    if task.name in ("sudoku-extreme", "maze") and regime not in (*task.regimes, "train"):
        raise unknown("regime", regime, (*task.regimes, "train"))
    table = load_split(data, task, purpose)
    if purpose == "valid":
        count = min(count, len(table))  # held-out rows may be few
    if len(table) < count:
        raise LetgoError(f"{data} holds {len(table)} instances, fewer than --count {count}; say --count {len(table)}")
    if task.name == "connectivity" and asked:
        _check_nodes(data, table, regime)
    chosen = table[torch.from_numpy(rng.choice(len(table), count, replace=False))]
    if own_clues(chosen, task) and asked and regime != task.regimes[0]:
        raise LetgoError(f"{data}: puzzles without answers bring their own clues; leave --regime out")
    if task.name in KEEPING or own_clues(chosen, task):
        return chosen
    return Problem(chosen.solution, task.masks(chosen.solution, regime, rng), chosen.context)


def solved(problem: Problem, task: Task) -> bool:
    """Whether the answers came with the puzzles."""
    return bool(task.validate(problem.solution, problem).all())


def own_clues(problem: Problem, task: Task) -> bool:
    """Whether no clues can be drawn, since the puzzles came without their answers."""
    return task.name not in KEEPING and not solved(problem, task)


def _check_nodes(data: str, table: Problem, regime: str) -> None:
    """A regime of graphs is their size, and the report names it."""
    nodes = math.isqrt(table.solution.shape[1])
    if regime != "train" and str(nodes) != regime:
        raise LetgoError(f"{data} holds graphs of {nodes} nodes, not of {regime}; say --regime {nodes}")


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
        **extra_scores(solver.task, boards, problem),
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


def extra_scores(task: Task, tries: list[torch.Tensor], problem: Problem) -> dict[str, Any]:
    """What only this task has: IRED's element-wise scores for graphs, shortest paths for mazes."""
    boards = tries[0]
    if task.name == "connectivity":
        floor = {"all_joined": metrics.validity(torch.ones_like(boards), problem, task).as_dict()}
        if not solved(problem, task):  # nothing to compare the entries with
            return floor
        return {
            "element_accuracy": metrics.element_accuracy(boards, problem).as_dict(),
            "balanced_accuracy": metrics.balanced_accuracy(boards, problem).as_dict(),
            **floor,
        }
    if task.name == "maze":
        from letgo.tasks.maze import marked_share, path_length_optimal

        shortest = torch.stack([path_length_optimal(b, problem) for b in tries], dim=1)
        return {
            "length": metrics.Rate.of(shortest[:, 0]).as_dict(),
            "length_at_k": {"k": len(tries), **metrics.pass_at_k(shortest).as_dict()},
            "marked_share": metrics.Mean(marked_share(boards, problem), most=1.0).as_dict(),
        }
    return {}


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
