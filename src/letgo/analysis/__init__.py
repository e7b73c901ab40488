"""Why it works: the paper's diagnostics on any model. `letgo analyze --list` names what `ANALYSES` holds.

An analysis has three functions: `run(study)` measures and returns plain values, `plot(reports)` draws one or several
of such reports, `tell(report)` says in a few lines what was found. They are those of the module of its name, or of an
object in `lines` or `fields`. Nothing here imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any

from letgo.errors import unknown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from letgo.analysis.study import Study

Report = dict[str, Any]  # plain values, as JSON has them


@dataclass(frozen=True)
class Analysis:
    """An Analysis asks one question about a model, or about samplers alone."""

    name: str
    shows: str  # one line
    paper: str  # where it stands in the paper
    count: int = 2000  # instances
    quick: int = 16  # instances of a quick look
    walks: float = 2.0  # times that an instance goes through the model's own steps
    needs_model: bool = True
    home: str | None = None  # the module of which it is an object

    @property
    def module(self) -> Any:
        """Return what has run, plot and tell."""
        if self.home is not None:
            return getattr(import_module(f"letgo.analysis.{self.home}"), self.name)
        return import_module(f"letgo.analysis.{self.name.replace('-', '_')}")

    def run(self, study: Study) -> Report:
        return self.module.run(study)

    def plot(self, reports: list[Report]) -> Figure:
        return self.module.plot(reports)

    def tell(self, report: Report) -> str:
        return self.module.tell(report)


ANALYSES: dict[str, Analysis] = {
    analysis.name: analysis
    for analysis in (
        Analysis(
            "mechanism",
            "what DDPM's anchor does: E_both, E_+, E_-, validity and violations of proposals and centers",
            "Figs. 2, 7, 8",
        ),
        Analysis(
            "states",
            "E_+ on noised solutions, on self-correction's inputs and on the states that DDPM makes",
            "App. K.5",
        ),
        Analysis(
            "forward-noise",
            "what decoding and the network read from noised solutions: accuracy, validity, violations, margins",
            "Fig. 6",
            count=64,
        ),
        Analysis(
            "changes",
            "changes of mind, commitment times, failures with and without a valid proposal, and what foretells them",
            "Table 16, App. P",
        ),
        Analysis(
            "toy",
            "two intervals and denoisers whose sign cannot be trusted: the forward marginal, trajectories, validity",
            "App. J, Figs. 4, 5",
            quick=200,
            needs_model=False,
        ),
        Analysis(
            "self-correction",
            "a board noised, proposed, noised again and proposed anew, as training shows it to the network",
            "Fig. 1, Algorithm 2",
            count=256,
            walks=0.01,
        ),
        Analysis(
            "trajectory",
            "one puzzle's states and proposals on their way through two rules, broken cells marked",
            "App. P, Figs. 12 to 17; mazes as Fig. 3",
            count=64,
        ),
        Analysis(
            "steps",
            "validity by the number of sampling steps",
            "App. M, Table 10",
            home="lines",
            count=999,
            walks=88.75,
        ),
        Analysis(
            "calls",
            "validity by calls of the network, of every rule that has nothing to tune",
            "ours",
            home="lines",
            walks=311.0,
        ),
        Analysis(
            "work",
            "validity by passes through the network's layers and by seconds: one try, and trying again while in doubt",
            "ours",
            count=250,
            quick=8,
            walks=1.76,
        ),
        Analysis("variance", "validity by a factor on the variance of each step", "Fig. 11", home="lines", walks=22.0),
        Analysis(
            "ahead",
            "validity under Tweedie reprojection by how many steps ahead the network is told the time",
            "ours",
            home="lines",
            walks=10.0,
        ),
        Analysis(
            "gain",
            "whether Tweedie reprojection lets a push of the blurred proposal towards a board grow or fade, by time",
            "ours",
            count=64,
            quick=8,
            walks=1.6,
        ),
        Analysis(
            "weights",
            "kept checkpoints, raw and averaged: validity, and the gain beside it",
            "section 4; ours",
            walks=3.6,
        ),
        Analysis(
            "sources",
            "validity by the source that a data set's instances come from, as many of each",
            "ours",
            walks=5.0,
        ),
        Analysis(
            "decay", "validity of EM decay by sigma and tau_start", "App. F.3, Table 5", home="fields", walks=26.0
        ),
        Analysis(
            "times",
            "validity of Tweedie reprojection or resample by the times between which proposals are noised",
            "ours",
            home="fields",
            walks=29.0,
        ),
        Analysis("curves", "validity of a run's kept checkpoints", "Figs. 9 and 10", walks=6.0),  # of three of them
    )
}


def analysis_of(name: str) -> Analysis:
    if name not in ANALYSES:
        raise unknown("analysis", name, ANALYSES, f"`letgo analyze --list` shows {', '.join(ANALYSES)}")
    return ANALYSES[name]
