"""How much of the solution space a model reaches: Table 15 and App. O.3."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from letgo import __version__, metrics
from letgo.errors import LetgoError
from letgo.machine import device_name
from letgo.paper import (
    O3_CLUES,
    O3_DRAWS,
    O3_PUZZLES,
    O3_SOLUTIONS,
    QUEENS_BOARDS,
    QUEENS_SAMPLES,
    QUEENS_TRAINING,
    TABLE15,
)
from letgo.reproduce.measure import Session, about, settings_for
from letgo.reproduce.store import COVERAGE, SOLUTIONS, Report
from letgo.rng import data_rng
from letgo.runs import shipped
from letgo.shapes import Symbols
from letgo.solver import Solver
from letgo.tasks import Problem
from letgo.tasks.queens import Queens, all_boards, train_split
from letgo.tasks.sudoku import Sudoku
from letgo.tasks.sudoku_search import completions, count_solutions
from letgo.tasks.task import random_masks

CPU_CHUNK = 1024


def distinct_boards(
    solver: Solver,
    rule: str,
    samples: int,
    steps: int | None = None,
    seed: int = 0,
    batch: int | None = None,
    chunk: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Int[Tensor, "distinct"], int]:
    """Keys of the distinct valid boards among unconditional samples, and how many samples were valid.

    Sample j is instance j mod chunk of try j div chunk; beside one chunk, only the distinct keys are held.
    """
    if samples < 1:
        raise LetgoError(f"{samples} samples: ask for at least 1")
    chunk = min(samples, chunk or (CPU_CHUNK if solver.device.type == "cpu" else solver.default_batch()))
    sampler = solver.sampler(rule, steps, solver.generation)
    problem = solver.empty(chunk)
    found, valid = torch.empty(0, dtype=torch.long), 0
    for attempt in range(-(-samples // chunk)):
        x = solver.sample(problem, sampler, seed, 1, attempt, batch)[: samples - attempt * chunk]
        boards = solver.codec.decode(x)
        boards = boards[solver.task.validate(boards, problem[: len(boards)])]
        valid += len(boards)
        found = torch.unique(torch.cat([found, metrics.board_keys(boards, solver.task.symbols)]))
        if progress is not None:
            progress(min(samples, (attempt + 1) * chunk), samples)
    return found, valid


def training_boards(task: Queens) -> Symbols:
    """The split of App. D for N = 14; for smaller boards the same share of all."""
    if task.size == 14:
        return train_split()[0]
    return train_split(task.size, len(all_boards(task.size)) * QUEENS_TRAINING // QUEENS_BOARDS)[0]


def coverage_report(solver: Solver, rule: str, samples: int, seed: int = 0, **options: Any) -> Report:
    """Distinct valid boards inside and outside the training split, beside what uniform draws would give."""
    task = solver.task
    if not isinstance(task, Queens):
        raise LetgoError(f"coverage is counted for queens, whose boards can all be listed; not for {task.name}")
    used = solver.sampler(rule, regime=solver.generation).settings
    started = time.perf_counter()
    found, valid = distinct_boards(solver, rule, samples, seed=seed, **options)
    seconds = time.perf_counter() - started
    training, total = metrics.board_keys(training_boards(task), task.symbols), len(all_boards(task.size))
    everything = torch.ones(len(found), dtype=torch.bool)
    share = metrics.coverage(found[:, None], everything, training[:, None], total)
    return {
        "task": task.name,
        "rule": rule,
        "settings": used,
        "steps": solver.steps(options.get("steps")),
        "samples": samples,
        "seed": seed,
        "validity": metrics.Rate(valid, samples).as_dict(),
        "distinct": {"inside": share.inside.successes, "outside": share.outside.successes},
        "coverage": share.as_dict(),
        "if_uniform": metrics.expected_distinct(total, valid) / total,
        "seconds": round(seconds, 3),
        "device": device_name(solver.device),
        "version": __version__,
    }


def ambiguous_puzzles(task: Sudoku, count: int, seed: int) -> tuple[Problem, list[Symbols]]:
    """App. O.3: random clues, 32 to 38 of 81, that leave 2 to 12 solutions; and all solutions of each."""
    rng = data_rng(seed, "solutions")
    clues = [round(c * task.cells / 81) for c in O3_CLUES]
    low, high = O3_SOLUTIONS
    kept: list[Problem] = []
    while sum(map(len, kept)) < count:
        boards, _ = task.solved(256, rng)
        problem = Problem(boards, random_masks(len(boards), task.cells, clues[0], clues[1], rng))
        solutions = count_solutions(problem, high + 1)
        kept.append(problem[(solutions >= low) & (solutions <= high)])
    puzzles = Problem.cat(kept)[:count]
    return puzzles, [completions(puzzles[i : i + 1], high + 1) for i in range(count)]


def solutions_report(
    solver: Solver,
    puzzles: Problem,
    solutions: list[Symbols],
    draws: int,
    rule: str = "tweedie",
    steps: int | None = None,
    seed: int = 0,
    batch: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Which solutions of each puzzle the draws reach, and how evenly, beside exactly uniform draws."""
    sampler = solver.sampler(rule, steps)
    started = time.perf_counter()
    each = puzzles[torch.arange(len(puzzles)).repeat_interleave(draws)]
    boards = solver.codec.decode(solver.sample(each, sampler, seed, batch=batch, progress=progress))
    seconds = time.perf_counter() - started
    counts = [
        (mine[:, None] == theirs).all(2).sum(0)  # draws that equal each solution
        for mine, theirs in zip(boards.split(draws), solutions, strict=True)
    ]
    valid = [int(c.sum()) for c in counts]
    total, found = sum(map(len, counts)), sum(int((c > 0).sum()) for c in counts)
    drawn = [(c, v) for c, v in zip(counts, valid, strict=True) if v]
    return {
        "task": solver.task.name,
        "rule": rule,
        "settings": sampler.settings,
        "steps": sampler.steps,
        "puzzles": len(puzzles),
        "draws": draws,
        "seed": seed,
        "validity": metrics.Rate(sum(valid), len(puzzles) * draws).as_dict(),
        "solutions": total,
        "found": found,
        "share_found": metrics.Rate(found, total).as_dict(),
        "found_if_uniform": sum(metrics.expected_distinct(len(c), v) for c, v in drawn),
        "uneven": _mean([metrics.uneven(c) for c, _ in drawn]),
        "uneven_if_uniform": _mean([metrics.expected_uneven(len(c), v) for c, v in drawn]),
        "counts": [c.tolist() for c in counts],
        "seconds": round(seconds, 3),
        "device": device_name(solver.device),
        "version": __version__,
    }


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def run_coverage(session: Session) -> None:
    """Table 15: EM decay and Tweedie, both objectives, from unconditional samples."""
    samples = session.limits.count or (64 if session.limits.quick else QUEENS_SAMPLES)
    for rule, model in TABLE15:
        where = session.find(model, 0) if session.limits.task("queens") and session.limits.rule(rule) else None
        if where is None:
            continue
        solver = session.solver(where)
        used = settings_for(session, solver, rule, where)
        if used is None:
            continue
        facts = {"settings": used, **about(session, solver, where)}
        key = {"model": model, "rule": rule, "seed": 0}
        words = ["reproduce", "table15", "--rules", rule, "--count", samples]
        if not _needed(session, COVERAGE, {**key, "samples": samples}, facts, where, words):
            continue
        show = session.progress(f"{model}, {rule}: sampled")
        report = coverage_report(solver, rule, samples, batch=session.batch, progress=show)
        report = {"model": model, **report, **facts, "command": _command(session, where, words)}
        session.store.add(COVERAGE, report, tuple(key))
        session.say(f"{model}, {rule}: {sum(report['distinct'].values())} distinct boards of {samples} samples")


def run_solutions(session: Session) -> None:
    """App. O.3: Tweedie, both objectives. `--count` is the number of puzzles."""
    count = session.limits.count or (2 if session.limits.quick else O3_PUZZLES)
    draws = 8 if session.limits.quick else O3_DRAWS
    for model in ("sudoku-baseline", "sudoku"):
        where = session.find(model, 0) if session.limits.task("sudoku") and session.limits.rule("tweedie") else None
        if where is None:
            continue
        solver = session.solver(where)
        facts = {"settings": {}, **about(session, solver, where)}
        key = {"model": model, "rule": "tweedie", "seed": 0}
        words = ["reproduce", "solutions", "--count", count]
        if not _needed(session, SOLUTIONS, {**key, "puzzles": count, "draws": draws}, facts, where, words):
            continue
        task = solver.task
        assert isinstance(task, Sudoku)
        puzzles, solutions = ambiguous_puzzles(task, count, 0)
        show = session.progress(f"{model}: draws")
        report = solutions_report(solver, puzzles, solutions, draws, batch=session.batch, progress=show)
        report = {"model": model, **report, **facts, "command": _command(session, where, words)}
        session.store.add(SOLUTIONS, report, tuple(key))
        session.say(f"{model}: {report['found']} of {report['solutions']} solutions found")


def _needed(session: Session, name: str, asked: Report, facts: Report, where: str, words: list[Any]) -> bool:
    """Whether no report serves yet; a dry run prints the command and measures nothing."""
    sizes = ("samples", "puzzles", "draws")

    def serves(report: Report) -> bool:
        same = all(report.get(k) == v for k, v in asked.items() if k not in sizes)
        enough = all(report.get(k, 0) >= asked[k] for k in sizes if k in asked)
        return same and enough and not session.store.stale(report, facts)

    needed = session.force or not any(map(serves, session.store.reports(name)))
    key = name, where, *asked.values()
    if needed:
        session.made.add(key)
    else:
        session.keep(*key)
    if needed and session.dry_run:
        session.say(_command(session, where, words))
    return needed and not session.dry_run


def _command(session: Session, where: str, words: list[Any]) -> str:
    found_in = ["--models", str(session.models)] if session.models and where not in shipped() else []
    return session.words(*words, *(["--quick"] if session.limits.quick else []), *found_in)
