"""Forward-noised solutions, as training sees them: what decoding alone and what the network read from them (Fig. 6)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from letgo.analysis import Report
from letgo.analysis.drawing import COLOURS, caption, panels
from letgo.analysis.study import Piece, Study, solutions
from letgo.rng import START
from letgo.shapes import State

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWS, LEVELS = 4, 40  # of noise for each puzzle, and equidistant times
READ = {"state": "D(x_t)", "proposal": "D(f(x_t, t))"}
MEASURES = {
    "accuracy": "open cells right",
    "valid": "share of valid boards",
    "violations": "cells in broken rules",
    "margin": "mean margin top1 - top2",
}


def run(study: Study) -> Report:
    """Return means and quartiles over puzzles and draws, at every time."""
    solutions(study)
    found: dict[str, dict[str, list[Tensor]]] = {}
    show, total = study.progress("noised"), DRAWS * LEVELS
    for piece in study.pieces():
        x0 = piece.clues.values
        for i in range(total):
            level = i // DRAWS
            t = torch.full((1, 1, 1), (level + 1) / LEVELS, device=x0.device)
            noise = piece.noise.normal(1 + i, START, *x0.shape[1:])
            x_t = piece.clues.pin(study.solver.path.sample(x0, t, noise))
            for name, x in (("state", x_t), ("proposal", piece.propose(x_t, t))):
                for measure, values in _measures(piece, x).items():
                    found.setdefault(f"{name} {measure}", {}).setdefault(f"{level}", []).append(values)
            show(piece.start + piece.count * (i + 1) / total, len(study.problem))
    curves = {name: _curves([torch.cat(found[name][level]) for level in found[name]]) for name in found}
    times = [(level + 1) / LEVELS for level in range(LEVELS)]
    return {"t": times, "draws": DRAWS, "curves": {read: _part(curves, read) for read in READ}}


def _part(curves: dict[str, Report], read: str) -> Report:
    return {name.split()[1]: curve for name, curve in curves.items() if name.split()[0] == read}


def _measures(piece: Piece, x: State) -> dict[str, Tensor]:
    """Return one number for each board; only one-hot codes have a margin."""
    board, hidden = piece.decode(x), ~piece.rows.given
    broken, cells = piece.judge(board), hidden.sum(1).clamp(min=1)
    right = ((board == piece.rows.solution) & hidden).sum(1) / cells
    measures = {"accuracy": right, "valid": (broken == 0).float(), "violations": broken.float()}
    if piece.solver.codec.one_hot:
        first, second = x[: piece.count].cpu().topk(2, dim=-1).values.unbind(-1)
        margin = first - second
        measures["margin"] = (margin * hidden).sum(1) / cells
        measures["gap"] = margin.masked_fill(~hidden, torch.inf).amin(1)  # App. K.1's gap: the least margin
    return measures


def _curves(values: list[Tensor]) -> Report:
    quartiles = torch.tensor([0.25, 0.75], dtype=torch.float64)
    lows, highs = zip(*(v.double().quantile(quartiles).tolist() for v in values), strict=True)
    means = [float(v.double().mean()) for v in values]
    rows = zip(("mean", "low", "high"), (means, lows, highs), strict=True)
    return {name: [round(x, 5) for x in row] for name, row in rows}


def tell(report: Report) -> str:
    """Tell the largest time at which most boards are still read right."""
    lines = []
    for read, label in READ.items():
        means = report["curves"][read]["valid"]["mean"]
        good = [t for t, share in zip(report["t"], means, strict=True) if share >= 0.5]
        until = f"up to t = {max(good):.3f}" if good else "at no time"
        lines.append(f"{label:13} is valid for half of the boards or more {until}")
    return "\n".join(lines)


def plot(reports: list[Report]) -> Figure:
    figure, axes = panels(len(reports), 4, size=(2.6, 2.3))
    for row, report in zip(axes, reports, strict=True):
        for read, colour in (("state", "ddpm"), ("proposal", "tweedie")):
            for axis, measure in zip(row, MEASURES, strict=True):
                curve = report["curves"][read].get(measure)
                if curve is None:
                    axis.text(0.5, 0.5, "no one-hot code", ha="center", transform=axis.transAxes)
                    continue
                axis.plot(report["t"], curve["mean"], color=COLOURS[colour], label=READ[read])
                axis.fill_between(report["t"], curve["low"], curve["high"], color=COLOURS[colour], alpha=0.2, lw=0)
        for axis, label in zip(row, MEASURES.values(), strict=True):
            axis.set_ylabel(label)
            axis.set_xlabel("t (0 data, 1 noise)")
        row[0].set_title(f"{report['model']}: means, quartiles of {report['draws']} draws a puzzle", loc="left")
        row[0].legend(frameon=False)
    caption(figure, reports)
    return figure
