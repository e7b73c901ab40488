"""Validity by the number of sampling steps (App. M, Table 10): more of them help Tweedie reprojection, not DDPM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from letgo.analysis import Report
from letgo.analysis.study import Study
from letgo.analysis.sweep import counts, measured, plot_lines, tell, with_steps
from letgo.samplers import fitting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FACTORS = (
    0.125,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    25.0,
)  # on the model's own steps: of 200 they are Table 10's, 25 to 5,000
RULES = ("tweedie", "ddpm", "confidence", "ancestral")  # of each family the two that the paper speaks of

__all__ = ["plot", "run", "tell"]


def run(study: Study) -> Report:
    fits = fitting(study.solver.path, study.solver.codec)
    samplers = [study.sampler(rule) for rule in RULES if rule in fits]
    return {"rows": measured(study, with_steps(samplers, counts(study, FACTORS)))}


def plot(reports: list[Report]) -> Figure:
    return plot_lines(reports, "steps", "sampling steps", logarithmic=True)
