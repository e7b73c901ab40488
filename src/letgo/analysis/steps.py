"""Validity by the number of sampling steps (App. M, Table 10): more of them help Tweedie reprojection, not DDPM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from letgo.analysis import Report
from letgo.analysis.study import Study
from letgo.analysis.sweep import measured, plot_lines, span, tell, with_steps
from letgo.samplers import fitting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STEPS, QUICK = (25, 50, 100, 200, 500, 1000, 2000, 5000), (25, 50, 100, 200)
RULES = ("tweedie", "ddpm", "confidence", "ancestral")  # of each family the two that the paper speaks of

__all__ = ["plot", "run", "tell"]


def run(study: Study) -> Report:
    """Up to --steps, where they are given."""
    fits = fitting(study.solver.path, study.solver.codec)
    steps = tuple(n for n in (QUICK if study.wish.quick else STEPS) if n <= (study.wish.steps or n))
    samplers = [study.sampler(rule) for rule in RULES if rule in fits]
    return {"steps": span(steps), "rows": measured(study, with_steps(samplers, steps))}


def plot(reports: list[Report]) -> Figure:
    return plot_lines(reports, "steps", "sampling steps", logarithmic=True)
