"""Validity by one number at a time: steps, calls of the network, the variance of a step, the time told ahead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from letgo.analysis import Report
from letgo.analysis import sweep as sweeps
from letgo.analysis.study import Study
from letgo.samplers import RULES, Sampler, fitting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Factors on the model's own steps: of 200 they are Table 10's, 25 to 5,000; and 10 to 5,000 calls
STEPS = (0.125, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0)
CALLS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0)
QUICK = 1000  # steps: where Tweedie reprojection solves nearly all (Table 10), which a quick look shows, too
PAIRS = ("tweedie", "ddpm", "confidence", "ancestral")  # of each family the two rules that the paper speaks of
VARIANCES, FEW_VARIANCES = (0.0, 0.25, 0.5, 0.75, 1.0, 1.15, 1.3, 1.5, 2.0, 3.0, 4.0), (0.0, 0.5, 1.0, 1.5, 2.0, 4.0)
AHEAD, FEW_AHEAD = (0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 9.0, 12.0, 24.0), (0.0, 2.0, 6.0, 12.0, 24.0)


@dataclass(frozen=True)
class Lines:
    """The picture has a line for each sampler, by the number on its horizontal axis."""

    number: str
    label: str
    samplers: Callable[[Study], list[Sampler]]
    logarithmic: bool = False
    beside: Callable[[Study], list[Report]] = lambda study: []  # rows that no sampler gives alone

    def run(self, study: Study) -> Report:
        return {"rows": sweeps.measured(study, self.samplers(study)) + self.beside(study)}

    def plot(self, reports: list[Report]) -> Figure:
        return sweeps.plot_lines(reports, self.number, self.label, self.logarithmic)

    def tell(self, report: Report) -> str:
        return sweeps.tell(report)


def by_steps(study: Study) -> list[Sampler]:
    """More steps help Tweedie reprojection, not DDPM (App. M, Table 10)."""
    fits = fitting(study.solver.path, study.solver.codec)
    samplers = [study.sampler(rule) for rule in PAIRS if rule in fits]
    return [replace(s, steps=count) for s in samplers for count in sweeps.counts(study, STEPS, QUICK)]


def by_calls(study: Study) -> list[Sampler]:
    """Return what a budget buys. EM and EM decay would have to be tuned at each number of calls: they are left out."""
    samplers = [study.sampler(rule) for rule in sweeps.untuned(study)]
    ahead = [replace(sampler, ahead=1.0) for sampler in samplers if sampler.rule == "tweedie"]
    many = sweeps.counts(study, CALLS)
    return [replace(s, steps=max(1, n // RULES[s.rule].calls)) for s in (*samplers, *ahead) for n in many]


def while_in_doubt(study: Study) -> list[Report]:
    """Return what is believed and right within so many calls, where the model tries again while it doubts its board."""
    if study.solver.short_try is None:
        return []
    budgets = sweeps.counts(study, CALLS, sweeps.MOST)  # of a quick look, too: most instances need few
    return sweeps.within(sweeps.try_again(study, budgets[-1]), budgets)


def by_variance(study: Study) -> list[Sampler]:
    """A factor on the variance of each step's noise does not close DDPM's gap (Fig. 11)."""
    factors = FEW_VARIANCES if study.wish.quick else VARIANCES
    return [replace(study.sampler(rule), variance=factor) for rule in ("ddpm", "tweedie") for factor in factors]


def by_ahead(study: Study) -> list[Sampler]:
    """Tell the network of Tweedie reprojection other times than t, so many steps ahead (docs/knife-edge.md)."""
    return [replace(study.sampler("tweedie"), ahead=c) for c in (FEW_AHEAD if study.wish.quick else AHEAD)]


steps = Lines("steps", "sampling steps", by_steps, logarithmic=True)
calls = Lines("calls", "calls of the network", by_calls, logarithmic=True, beside=while_in_doubt)
variance = Lines("variance", "factor on the variance of a step", by_variance)
ahead = Lines("ahead", "steps ahead, c of t - c h", by_ahead)
