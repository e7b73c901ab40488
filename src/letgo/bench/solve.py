"""Puzzles a second, from the texts of puzzles on the host to the texts of answers there. No rule is looked at."""

from __future__ import annotations

from statistics import median
from typing import Any

import torch

from letgo import __version__
from letgo.bench.clock import Say, builds, seconds
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.estimates import rate
from letgo.machine import device_name
from letgo.slots import Slots
from letgo.solver import Solver
from letgo.tasks import Problem, Task

SEED = 0  # of the puzzles, their images and the noise


def puzzles_of(task: Task, data: str | None, count: int, images: int = 1) -> Problem:
    """Draw test puzzles, then take each under random symmetries of the task, a new one for every further image."""
    problem = source_of(task, data).draw("test", None, count, SEED)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        more = [task.random_images(problem.solution, problem.given) for _ in range(images - 1)]
    return Problem.cat([Problem(problem.solution, problem.given, problem.context), *(Problem(*each) for each in more)])


def bench_solve(
    solver: Solver,
    problem: Problem,
    tries: int = 48,
    steps: int | None = None,
    batch: int | None = None,
    repeats: int = 5,
    say: Say = lambda text: None,
) -> dict[str, Any]:
    """Measure how many puzzles a second are settled: tried again, `tries` times at most, until the network is sure."""
    if tries > 1 and solver.short_try is None:
        raise LetgoError(f"model '{solver.config.name}' does not know when it is sure of a board; give --tries 1")
    texts = solver.task.format_clues(problem)
    runs: list[Slots] = []

    def settle() -> None:
        runs.append(solver.slots(texts, steps=steps, tries=tries, seed=SEED, verify=False, batch=batch))
        for _ in runs[-1].run():
            pass
        answers[:] = runs[-1].ledger.answers(solver.task)

    answers: list[Any] = []
    say(f"{len(texts):,} puzzles: warming up")
    first, built = seconds(settle, solver.device), builds()
    say(f"{repeats} times {len(texts):,} puzzles")
    taken = [seconds(settle, solver.device) for _ in range(repeats)]
    slots, speeds = runs[-1], sorted(len(texts) / each for each in taken)
    believed = slots.ledger.belief > slots.ledger.sure if tries > 1 else slots.ledger.solved
    return {
        "bench": "solve",
        "preset": solver.config.name,
        "device": device_name(solver.device),
        "threads": solver.threads,
        "torch": torch.__version__,
        "version": __version__,
        "precision": solver.precision,
        "puzzles": len(texts),
        "rule": slots.sampler.rule,
        "steps": slots.sampler.steps,
        "tries": tries,
        "batch": slots.whole,
        "repeats": repeats,
        "puzzles_per_second": median(speeds),
        "low": speeds[0],
        "high": speeds[-1],
        "solved": rate(int(slots.ledger.solved.sum()), len(texts)).as_dict(),
        "believed_wrong": int((believed & ~slots.ledger.solved).sum()),
        "calls_per_puzzle": float(slots.ledger.calls.double().mean()),
        "tries_per_puzzle": float(slots.ledger.tries.double().mean()),
        "rows_per_puzzle": slots.rows / len(texts),
        "warm_up_seconds": round(first, 2),
        "rebuilt": builds() - built,
    }


def summary(report: dict[str, Any]) -> str:
    """Write the report as a few lines for a reader."""
    solved = report["solved"]
    return "\n".join(
        [
            f"solve {report['preset']}, {report['puzzles']:,} puzzles ({report['images']} images each), "
            f"{report['rule']}, up to {report['tries']} tries of {report['steps']} steps, batch {report['batch']}, "
            f"{report['precision']}; {report['device']}, torch {report['torch']}",
            f"{report['puzzles_per_second']:,.1f} puzzles a second, text to text (median of {report['repeats']}; "
            f"{report['low']:,.1f} to {report['high']:,.1f}); warm-up {report['warm_up_seconds']} s, rebuilt "
            f"{report['rebuilt']}",
            f"solved {solved['value']:.4f} [{solved['low']:.4f}, {solved['high']:.4f}], believed and wrong "
            f"{report['believed_wrong']}; {report['calls_per_puzzle']:.1f} calls and {report['tries_per_puzzle']:.2f} "
            f"tries a puzzle; {report['rows_per_puzzle']:.1f} boards through the network a puzzle, with "
            "padding and tries in vain",
        ]
    )
