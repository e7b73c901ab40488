"""Five-fold choice of sigma and tau_start on validation instances (section 4, App. F.3). Test is never touched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from letgo.errors import LetgoError
from letgo.solver import Solver
from letgo.tasks import Problem

# Above .4 the last of 200 steps are unstable; steps of 1000 shift the useful range to about .18.
SIGMAS = {"em": (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35), "em-decay": (3.0, 5.0, 7.0, 10.0, 14.0, 20.0)}
TAU_STARTS = (0.6, 0.7, 0.8)
FOLDS = 5


def tune(
    solver: Solver,
    rule: str,
    problem: Problem,
    sigmas: tuple[float, ...] | None = None,
    tau_starts: tuple[float, ...] | None = None,
    steps: int | None = None,
    seed: int = 0,
    batch: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Any]:
    """Validity of every setting in each fold; the best mean over folds wins, the smaller sigma on a tie."""
    if len(problem) < FOLDS:
        raise LetgoError(f"{FOLDS} folds need at least {FOLDS} instances, got {len(problem)}")
    taus: tuple[float | None, ...] = (tau_starts or TAU_STARTS) if rule == "em-decay" else (None,)
    settings = [(sigma, tau) for sigma in sorted(sigmas or SIGMAS[rule]) for tau in taus]
    grid = []
    for done, (sigma, tau) in enumerate(settings):
        made, _ = solver.rule(rule, sigma, tau)
        boards = solver.codec.decode(solver.sample(problem, made, steps, seed, 0, batch))
        valid = solver.task.validate(boards, problem).float()
        folds = [float(fold.mean()) for fold in valid.tensor_split(FOLDS)]
        mean = sum(folds) / FOLDS
        grid.append({"sigma": sigma, "tau_start": tau, "validity": round(mean, 4), "folds": folds})
        if progress is not None:
            progress(done + 1, len(settings))
    best = max(grid, key=lambda row: row["validity"])
    return {
        "rule": rule,
        "best": {k: best[k] for k in ("sigma", "tau_start", "validity")},
        "count": len(problem),
        "folds": FOLDS,
        "steps": solver.steps(steps),
        "seed": seed,
        "grid": grid,
        "torch": torch.__version__,
    }
