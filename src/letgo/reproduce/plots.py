"""Plots from the JSON files, where matplotlib is installed (`pip install 'letgo[plots]'`)."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from letgo.reproduce.compare import result
from letgo.reproduce.paper import OBJECTIVES, RULES, Cell, Table
from letgo.reproduce.results import RULE_NAMES
from letgo.reproduce.store import Store

COLOURS = {"baseline": "#b3541e", "self-correction": "#1f6f8b"}
_MARK = re.compile(r"letgo data ([0-9a-f]{64})")


def available() -> bool:
    return importlib.util.find_spec("matplotlib") is not None


@dataclass(frozen=True)
class Plot:
    """A table's columns as panels, the last one for the legend."""

    table: Table
    panels: tuple[int, int]
    instead: tuple[str, str] | None = None  # the paper's model, and the one that is drawn

    def points(self, store: Store) -> list[dict[str, Any]]:
        """What the plot shows: a point per measured cell."""
        points = []
        for cell in self.table.cells():
            found = result(store, cell, cell.model.replace(*self.instead) if self.instead else None)
            if found is not None:
                ends = {k: v for k, v in found.score.items() if k != "n"}
                points.append({"cell": cell.name, **{k: None if v is None else round(v, 6) for k, v in ends.items()}})
        return points


def digest(points: list[dict[str, Any]]) -> str:
    return hashlib.sha256(json.dumps(points, sort_keys=True).encode()).hexdigest()


def drawn_digest(path: Path) -> str | None:
    """Which points a plot was drawn from: it says so in its metadata."""
    match = _MARK.search(path.read_text(encoding="utf-8")) if path.is_file() else None
    return match[1] if match else None


def draw(plot: Plot, store: Store, path: Path) -> None:
    """One panel per column: ours with intervals, the paper's as hollow rings, both objectives."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    points, (down, across) = plot.points(store), plot.panels
    rules = [rule for rule in RULES if any(cell.rule == rule for cell in plot.table.cells())]
    ours = {point["cell"]: point for point in points}
    style: dict[Any, Any] = {"svg.hashsalt": "letgo", "font.size": 8, "svg.fonttype": "none"}
    with plt.rc_context(style):
        figure, axes = plt.subplots(
            down, across, figsize=(2.5 * across, 6.5 / 3 * down), sharey=True, layout="constrained"
        )
        for axis, column in zip(axes.flat, plot.table.columns, strict=False):
            for shift, objective in zip((-0.14, 0.14), OBJECTIVES, strict=True):
                cells = {place + shift: Cell(plot.table, column, rule, objective) for place, rule in enumerate(rules)}
                colour = COLOURS[objective]
                axis.plot(list(cells), [c.paper.value for c in cells.values()], "o", mfc="none", mec=colour, ms=6)
                own = {at: ours[c.name] for at, c in cells.items() if c.name in ours}
                axis.plot(list(own), [point["value"] for point in own.values()], "o", color=colour, ms=3)
                ends = [[point[end] for point in own.values()] for end in ("low", "high")]
                axis.vlines(list(own), *ends, color=colour, lw=1.5)
            axis.set_title(column.title, fontsize=8)
            axis.set_xticks(range(len(rules)), [RULE_NAMES[rule] for rule in rules], rotation=30, fontsize=7)
            axis.set_ylim(-0.03, 1.03)
            axis.grid(axis="y", lw=0.3)
        legend = axes.flat[len(plot.table.columns)]
        legend.axis("off")
        for objective in OBJECTIVES:
            legend.plot([], [], "o", color=COLOURS[objective], ms=4, label=f"{objective}, ours with 95% interval")
            legend.plot([], [], "o", mfc="none", mec=COLOURS[objective], label=f"{objective}, the paper")
        legend.legend(loc="center", frameon=False, fontsize=8)
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None, "Description": f"letgo data {digest(points)}"}
        figure.savefig(path, format="svg", metadata=metadata)
        plt.close(figure)
