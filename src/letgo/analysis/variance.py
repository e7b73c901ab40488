"""Validity by a factor on the variance of each step's noise (Fig. 11): it does not close DDPM's gap."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from letgo.analysis import Report
from letgo.analysis.study import Study
from letgo.analysis.sweep import measured, plot_lines, tell

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FACTORS, QUICK = (0.0, 0.25, 0.5, 0.75, 1.0, 1.15, 1.3, 1.5, 2.0, 3.0, 4.0), (0.0, 0.5, 1.0, 1.5, 2.0, 4.0)

__all__ = ["plot", "run", "tell"]


def run(study: Study) -> Report:
    factors = QUICK if study.wish.quick else FACTORS
    rules = [study.sampler(rule) for rule in ("ddpm", "tweedie")]
    return {"rows": measured(study, [replace(sampler, variance=factor) for sampler in rules for factor in factors])}


def plot(reports: list[Report]) -> Figure:
    return plot_lines(reports, "variance", "factor on the variance of a step")
