"""Validity by calls of the network, for every rule that has nothing to tune: what a budget buys. Not in the paper."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from letgo.analysis import Report
from letgo.analysis.study import Study
from letgo.analysis.sweep import measured, plot_lines, span, tell, untuned
from letgo.samplers import RULES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CALLS, QUICK = (10, 20, 50, 100, 200, 500, 1000, 2000, 5000), (10, 20, 50, 100)

__all__ = ["plot", "run", "tell"]


def run(study: Study) -> Report:
    """Up to --steps calls, where they are given. EM and EM decay would have to be tuned at each: they are left out."""
    calls = tuple(n for n in (QUICK if study.wish.quick else CALLS) if n <= (study.wish.steps or n))
    samplers = [study.sampler(rule) for rule in untuned(study)]
    ahead = [replace(sampler, ahead=1.0) for sampler in samplers if sampler.rule == "tweedie"]
    each = [replace(s, steps=n // RULES[s.rule].calls) for s in (*samplers, *ahead) for n in calls]
    return {"steps": span(calls), "rows": measured(study, each)}


def plot(reports: list[Report]) -> Figure:
    return plot_lines(reports, "calls", "calls of the network", logarithmic=True)
