"""Validity by calls of the network, for every rule that has nothing to tune: what a budget buys. Not in the paper."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from letgo.analysis import Report
from letgo.analysis.study import Study
from letgo.analysis.sweep import counts, measured, plot_lines, tell, untuned
from letgo.samplers import RULES

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FACTORS = (
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    25.0,
)  # on the model's own steps: of 200 they are 10 to 5,000 calls

__all__ = ["plot", "run", "tell"]


def run(study: Study) -> Report:
    """EM and EM decay would have to be tuned at each number of calls: they are left out."""
    samplers = [study.sampler(rule) for rule in untuned(study)]
    ahead = [replace(sampler, ahead=1.0) for sampler in samplers if sampler.rule == "tweedie"]
    many = counts(study, FACTORS)
    each = [replace(s, steps=max(1, n // RULES[s.rule].calls)) for s in (*samplers, *ahead) for n in many]
    return {"rows": measured(study, each)}


def plot(reports: list[Report]) -> Figure:
    return plot_lines(reports, "calls", "calls of the network", logarithmic=True)
