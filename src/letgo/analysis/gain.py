"""How a blurred proposal answers to a little more of one board: what Tweedie reprojection makes of it in one step.

The network's proposal from noise alone is a blur, the mean of all boards that keep the clues. One step of Tweedie
reprojection noises it again and proposes anew. The gain is the share by which the new proposal follows a small push of
the blur towards a valid board: below 1 the blur is a fixed point that draws states back, above 1 the push grows. No
trajectory is sampled. Not in the paper (docs/knife-edge.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from letgo.analysis import Report
from letgo.analysis.drawing import caption, panels
from letgo.analysis.study import Piece, Study, solutions
from letgo.rng import START
from letgo.shapes import State, Time

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVELS, PUSH = 40, 0.05  # times, closer together near the data, and how far the blur is pushed
TIMES = [round(((level + 1) / LEVELS) ** 2, 6) for level in range(LEVELS)]
AHEAD, FEW_AHEAD = (0.0, 1.0, 3.0, 6.0), (0.0, 6.0)
COLOURS = ("#b3541e", "#c28f2c", "#5b8c5a", "#1f6f8b")


def run(study: Study) -> Report:
    """Measure at every time, and for every number of steps that the network is told the time ahead."""
    solutions(study)
    told = FEW_AHEAD if study.wish.quick else AHEAD
    return {"t": TIMES, "push": PUSH, "rows": [measured(study, ahead) for ahead in told]}


def measured(study: Study, ahead: float = 0.0) -> Report:
    """Return the means over instances, and what they add up to over the model's own steps."""
    show = study.progress(f"told t - {ahead:g} h: pushed")
    gains: list[list[Tensor]] = [[] for _ in TIMES]
    left: list[list[Tensor]] = [[] for _ in TIMES]
    for piece in study.pieces():
        shape = piece.clues.values.shape[1:]
        top = torch.ones(1, 1, 1, device=piece.clues.values.device)
        blur = piece.clues.pin(piece.propose(piece.noise.normal(0, START, *shape), top))
        for i, time in enumerate(TIMES):
            noise = piece.noise.normal(1 + i, START, *shape)
            gain, away = answers(piece, blur, time * top, ahead / study.steps, noise)
            gains[i].append(gain)
            left[i].append(away)
            show(piece.start + piece.count * (i + 1) / LEVELS, len(study.problem))
    curve, leaving = ([round(float(torch.cat(found).mean()), 5) for found in parts] for parts in (gains, left))
    return {"ahead": ahead, "gain": curve, "left": leaving, "crossing": crossing(TIMES, curve),
            "growth": growth(TIMES, curve, study.steps)}  # fmt: skip


def answers(piece: Piece, blur: State, t: Time, lead: float, noise: State) -> tuple[Tensor, Tensor]:
    """Return what is kept of each board's push, and how far the new proposal lies from the blur, a board being 1."""
    clues, path = piece.clues, piece.solver.path
    towards, told = clues.values - blur, (t - lead).clamp(min=0)
    states = (path.sample(blur + push * towards, t, noise) for push in (0.0, PUSH))
    plain, pushed = (clues.pin(piece.propose(x_t, told)) for x_t in states)
    whole = total(towards**2).clamp(min=1e-9)
    gain, away = total((pushed - plain) * towards) / whole / PUSH, total((plain - blur) ** 2) / whole
    return gain[: piece.count].double().cpu(), away[: piece.count].double().cpu()


def total(values: State) -> Tensor:
    return values.flatten(1).sum(1)


def crossing(times: list[float], curve: list[float]) -> float | None:
    """Return the largest time (the earliest in sampling) at which a push grows; between two levels by a line."""
    above = [i for i, value in enumerate(curve) if value >= 1]
    if not above:
        return None
    i = above[-1]
    if i + 1 == len(curve):
        return times[i]
    return round(times[i] + (times[i + 1] - times[i]) * (curve[i] - 1) / (curve[i] - curve[i + 1]), 5)


def growth(times: list[float], curve: list[float], steps: int) -> float:
    """Return by how many powers of e a push grows over all steps of an equidistant grid while it grows at all."""
    logs = torch.tensor(curve).clamp(min=1).log()
    return round(steps * float(torch.trapezoid(logs, torch.tensor(times))), 4)


def tell(report: Report) -> str:
    lines = []
    for row in report["rows"]:
        top, at = max(zip(row["gain"], report["t"], strict=True))
        since = "never grows" if row["crossing"] is None else f"grows from t = {row['crossing']:.3f} on"
        lines.append(
            f"told t - {row['ahead']:g} h: a push {since}, by e^{row['growth']:.1f} in all; "
            f"greatest gain {top:.2f} at t = {at:.3f}"
        )
    return "\n".join(lines)


def plot(reports: list[Report]) -> Figure:
    """Draw a column for each model, a line for each time told: the gain, and how far the answer leaves the blur."""
    top = 1.5 * max(1.0, *(value for report in reports for row in report["rows"] for value in row["gain"]))
    figure, axes = panels(2, len(reports), size=(3.4, 2.3), sharey="row", sharex=True)
    for gains, left, report in zip(*axes, reports, strict=True):
        for row, colour in zip(report["rows"], COLOURS, strict=False):
            label = "told t" if row["ahead"] == 0 else f"told t - {row['ahead']:g} h"
            gains.plot(report["t"], [max(value, 1e-3) for value in row["gain"]], color=colour, label=label)
            left.plot(report["t"], row["left"], color=colour, label=label)
        gains.axhline(1, color="#999999", lw=0.8)
        gains.set_yscale("log")
        gains.set_ylim(0.01, top)
        gains.set_xscale("log")
        gains.set_title(f"{report['model']}, regime {report['regime']}", loc="left")
        gains.legend(frameon=False)
        left.set_xlabel("t (0 data, 1 noise)")
        left.set_ylim(-0.03, 1.03)
    axes[0][0].set_ylabel("gain of a push to a board")
    axes[1][0].set_ylabel("answer's distance from the blur")
    caption(figure, reports)
    return figure
