"""E_+ on three kinds of states (App. K.5): noised solutions, self-correction's inputs, and states that DDPM makes.

Where E_+ is as frequent as on DDPM's states, training meets what sampling meets. At every level the DDPM center is
that of the sampler's own step from t to s.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from letgo.analysis import Report
from letgo.analysis.drawing import COLOURS, caption, panels
from letgo.analysis.record import record
from letgo.analysis.study import Piece, Study, not_again, solutions
from letgo.estimates import mean
from letgo.kernels import Transition, ddpm, tweedie
from letgo.rng import DRAW, KERNEL, PIN, START
from letgo.shapes import State, Time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS = 40
STATES = {"forward": "noised solutions", "self_correction": "self-correction's inputs", "ddpm": "DDPM's states"}
LINES = {"forward": "plus", "self_correction": "both", "ddpm": "minus"}  # colours


def run(study: Study) -> Report:
    solutions(study)
    track = record(study, "ddpm")
    grid = study.sampler("ddpm").times()
    levels = torch.arange(0, study.steps, max(1, study.steps // LEVELS))
    happened = {"ddpm": (track.valid["tweedie"] & ~track.valid["ddpm"])[levels].double()}
    show = study.progress("trained-on states")
    parts: dict[str, list[Tensor]] = {"forward": [], "self_correction": []}
    for piece in study.pieces():
        rows: dict[str, list[Tensor]] = {name: [] for name in parts}
        for done, i in enumerate(levels.tolist(), start=1):
            t, s = (grid[j].view(1, 1, 1).to(study.solver.device) for j in (i, i + 1))
            for name, x_t in trained_on(piece, t, i).items():
                rows[name].append(_plus(piece, x_t, t, s))
            show(piece.start + piece.count * done / len(levels), len(study.problem))
        for name, found in rows.items():
            parts[name].append(torch.stack(found).double())
    happened |= {name: torch.cat(found, 1) for name, found in parts.items()}
    shares = {name: mean(happened[name].mean(0), most=1.0).as_dict() for name in STATES}
    value = {name: float(happened[name].mean()) for name in STATES}
    nearer = value["self_correction"] - value["ddpm"]
    return {
        "t": [round(float(grid[i]), 6) for i in levels],
        "plus": shares,
        "curves": {name: [round(x, 5) for x in happened[name].mean(1).tolist()] for name in STATES},
        "gap_ratio": (value["forward"] - value["ddpm"]) / nearer if nearer else None,
    }


def trained_on(piece: Piece, t: Time, i: int) -> dict[str, State]:
    """Return x_t as Simple and as self-correction (Algorithm 2) would make it, with t2 = t.

    There t2 = t1 u with t1 and u uniform; given t2 the density of t1 falls as 1 / t1 from t2 to 1, so t1 = t2^v with v
    uniform.
    """
    path, clues, x0 = piece.solver.path, piece.clues, piece.clues.values

    def normal(purpose: int) -> State:
        return piece.noise.normal(1 + i, purpose, *x0.shape[1:])

    v = torch.special.ndtr(piece.noise.normal(1 + i, DRAW, 1, 1))
    t1 = t**v
    proposal = clues.pin(piece.propose(path.sample(x0, t1, normal(START)), t1))
    return {"forward": clues.pin(path.sample(x0, t, normal(KERNEL))),
            "self_correction": clues.pin(path.sample(proposal, t, normal(PIN)))}  # fmt: skip


def _plus(piece: Piece, x_t: State, t: Time, s: Time) -> Tensor:
    """Return whether the Tweedie center is valid and DDPM's is not."""
    step = Transition(piece.solver.path, not_again, x_t, piece.propose(x_t, t), t, s)
    return (piece.broken(tweedie(step).center) == 0) & (piece.broken(ddpm(step).center) > 0)


def tell(report: Report) -> str:
    shares = ", ".join(f"{label} {report['plus'][name]['value']:.3f}" for name, label in STATES.items())
    ratio = report["gap_ratio"]
    apart = "" if ratio is None else f"; noised solutions are {ratio:.1f} times as far from DDPM's states"
    return f"E_+ on {shares}{apart}"


def plot(reports: list[Report]) -> Figure:
    figure, axes = panels(1, len(reports), size=(3.4, 2.6), sharey=True)
    for axis, report in zip(axes[0], reports, strict=True):
        for name, label in STATES.items():
            text = f"{label}: {report['plus'][name]['value']:.3f}"
            axis.plot(report["t"], report["curves"][name], color=COLOURS[LINES[name]], label=text)
        axis.set_title(f"{report['model']}, regime {report['regime']}", loc="left")
        axis.set_xlabel("t (0 data, 1 noise)")
        axis.set_ylim(-0.03, 1.4)  # room for the legend
        axis.set_yticks([0, 0.25, 0.5, 0.75, 1])
        axis.legend(frameon=False, title="mean over t", title_fontsize=7, loc="upper right", borderaxespad=0)
    axes[0][0].set_ylabel("share of boards in E_+")
    caption(figure, reports)
    return figure
