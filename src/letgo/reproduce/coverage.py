"""How much of the solution space a model reaches: Table 15 and App. O.3."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

import torch
from jaxtyping import Int
from torch import Tensor

from letgo import metrics
from letgo.estimates import rate
from letgo.reproduce.paper import O3_CLUES, O3_SOLUTIONS, QUEENS_BOARDS, QUEENS_TRAINING
from letgo.reproduce.store import Report
from letgo.rng import data_rng
from letgo.shapes import Symbols
from letgo.solver import Solver
from letgo.tasks import Problem
from letgo.tasks.queens import all_boards, train_split
from letgo.tasks.sudoku import Sudoku
from letgo.tasks.sudoku_search import completions, count_solutions
from letgo.tasks.task import random_masks

CPU_CHUNK = 1024
Advance = Callable[[float | int, int], None]


def distinct_boards(
    solver: Solver, rule: str, samples: int, seed: int, chunk: int, progress: Advance = lambda done, total: None
) -> tuple[Int[Tensor, "distinct"], int]:
    """Return keys of the distinct valid boards among unconditional samples, and how many samples were valid.

    Sample j is instance j mod chunk of try j div chunk; beside one chunk, only the distinct keys are held.
    """
    sampler, problem = solver.sampler(rule, regime=solver.generation), solver.empty(chunk)
    keys, valid = torch.empty(0, dtype=torch.long), 0
    for attempt, done in enumerate(range(0, samples, chunk)):
        boards = solver.codec.decode(solver.sample(problem, sampler, seed, 1, attempt)[: samples - done])
        boards = boards[solver.task.validate(boards, problem[: len(boards)])]
        valid += len(boards)
        keys = torch.unique(torch.cat([keys, metrics.board_keys(boards, solver.task.symbols)]))
        progress(min(samples, done + chunk), samples)
    return keys, valid


def coverage_report(
    solver: Solver, rule: str, samples: int, seed: int = 0, progress: Advance = lambda done, total: None
) -> Report:
    """Count distinct valid boards of N queens in and outside the training split, beside those of uniform draws."""
    size, symbols, total = solver.task.cells, solver.task.symbols, len(all_boards(solver.task.cells))
    chunk = min(samples, CPU_CHUNK if solver.device.type == "cpu" else solver.default_batch())
    keys, valid = distinct_boards(solver, rule, samples, seed, chunk, progress)
    split, _ = train_split(size, total * QUEENS_TRAINING // QUEENS_BOARDS)  # App. D's for N = 14, else the same share
    share = metrics.coverage(keys[:, None], metrics.board_keys(split, symbols)[:, None], total)
    return {
        "samples": samples,
        "validity": rate(valid, samples).as_dict(),
        "distinct": {part: round(share[part].value * share[part].n) for part in ("inside", "outside")},
        "coverage": {part: rate.as_dict() for part, rate in share.items()},
        "if_uniform": metrics.expected_distinct(total, valid) / total,
    }


def ambiguous_puzzles(task: Sudoku, count: int, seed: int) -> tuple[Problem, list[Symbols]]:
    """Draw App. O.3's puzzles: 32 to 38 random clues of 81 that leave 2 to 12 solutions; and all solutions of each."""
    rng = data_rng(seed, "solutions")
    clues = [round(c * task.cells / 81) for c in O3_CLUES]
    low, high = O3_SOLUTIONS
    parts: list[Problem] = []
    while sum(map(len, parts)) < count:
        boards, _ = task.solved(256, rng)
        problem = Problem(boards, random_masks(len(boards), task.cells, clues[0], clues[1], rng))
        solutions = count_solutions(problem, high + 1)
        parts.append(problem[(solutions >= low) & (solutions <= high)])
    puzzles = Problem.cat(parts)[:count]
    return puzzles, [completions(puzzles[i : i + 1], high + 1) for i in range(count)]


def solutions_report(
    solver: Solver,
    puzzles: Problem,
    solutions: list[Symbols],
    draws: int,
    rule: str = "tweedie",
    seed: int = 0,
    progress: Advance | None = None,
) -> Report:
    """Count which solutions of each puzzle the draws reach, and how evenly, beside exactly uniform draws."""
    each = puzzles[torch.arange(len(puzzles)).repeat_interleave(draws)]
    boards = solver.read(solver.sample(each, solver.sampler(rule), seed, progress=progress), each)
    counts = [
        (mine[:, None] == theirs).all(2).sum(0)  # draws that equal each solution
        for mine, theirs in zip(boards.split(draws), solutions, strict=True)
    ]
    valid = [int(c.sum()) for c in counts]
    total, found = sum(map(len, counts)), sum(int((c > 0).sum()) for c in counts)
    drawn = [(c, v) for c, v in zip(counts, valid, strict=True) if v]
    return {
        "puzzles": len(puzzles),
        "draws": draws,
        "validity": rate(sum(valid), len(puzzles) * draws).as_dict(),
        "solutions": total,
        "found": found,
        "share_found": rate(found, total).as_dict(),
        "found_if_uniform": sum(metrics.expected_distinct(len(c), v) for c, v in drawn),
        "uneven": fmean([metrics.uneven(c) for c, _ in drawn] or [0.0]),
        "uneven_if_uniform": fmean([metrics.expected_uneven(len(c), v) for c, v in drawn] or [0.0]),
        "counts": [c.tolist() for c in counts],
    }
