"""Plots from the JSON files, where matplotlib is installed (`pip install 'letgo[plots]'`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from letgo.reproduce.paper import OBJECTIVES, RULES, Cell, Table
from letgo.reproduce.results import RULE_NAMES, Result, Results

COLOURS = {"baseline": "#b3541e", "self-correction": "#1f6f8b"}
LOSS_COLOURS = {"loss": "#3b3b3b", "recovery": "#1f6f8b", "simple": "#b3541e"}


@dataclass(frozen=True)
class Plot:
    """A Plot shows a table's columns as panels, the last one for the legend."""

    table: Table
    panels: tuple[int, int]
    recipe: str = ""  # the model that is drawn, where it is not the paper's

    def points(self, results: Results) -> dict[str, Result]:
        """Return the measured cells by name; the plot shows a point for each."""
        found = {cell.name: results.result(replace(cell, recipe=self.recipe)) for cell in self.table.cells()}
        return {name: one for name, one in found.items() if one is not None}

    def draw(self, results: Results, path: Path) -> None:
        """Draw one panel per column: ours with intervals, the paper's as hollow rings; a digest tells a stale plot."""
        import matplotlib

        matplotlib.use("svg")
        import matplotlib.pyplot as plt

        (down, across), ours = self.panels, self.points(results)
        rules = [rule for rule in RULES if any(cell.rule == rule for cell in self.table.cells())]
        style: dict[Any, Any] = {"svg.hashsalt": "letgo", "font.size": 8, "svg.fonttype": "none"}
        with plt.rc_context(style):
            size = (2.5 * across, 6.5 / 3 * down)
            figure, axes = plt.subplots(down, across, figsize=size, sharey=True, layout="constrained")
            for axis, column in zip(axes.flat, self.table.columns, strict=False):
                for shift, objective in zip((-0.14, 0.14), OBJECTIVES, strict=True):
                    cells = {place + shift: Cell(self.table, column, r, objective) for place, r in enumerate(rules)}
                    colour = COLOURS[objective]
                    axis.plot(list(cells), [c.paper.value for c in cells.values()], "o", mfc="none", mec=colour, ms=6)
                    own = {at: ours[c.name] for at, c in cells.items() if c.name in ours}
                    axis.plot(list(own), [point.value for point in own.values()], "o", color=colour, ms=3)
                    lows, highs = ([point.interval95[end] for point in own.values()] for end in (0, 1))
                    axis.vlines(list(own), lows, highs, color=colour, lw=1.5)
                axis.set_title(column.title, fontsize=8)
                axis.set_xticks(range(len(rules)), [RULE_NAMES[rule] for rule in rules], rotation=30, fontsize=7)
                axis.set_ylim(-0.03, 1.03)
                axis.grid(axis="y", lw=0.3)
            legend = axes.flat[len(self.table.columns)]
            legend.axis("off")
            for objective in OBJECTIVES:
                legend.plot([], [], "o", color=COLOURS[objective], ms=4, label=f"{objective}, ours with 95% interval")
                legend.plot([], [], "o", mfc="none", mec=COLOURS[objective], label=f"{objective}, the paper")
            legend.legend(loc="center", frameon=False, fontsize=8)
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, format="svg", metadata={"Date": None, "Description": results.store.digest()})
            plt.close(figure)


@dataclass(frozen=True)
class LossCurve:
    """A LossCurve shows the losses of a run by its steps, as `training.json` has them."""

    run: str

    def points(self, results: Results) -> list[dict[str, Any]]:
        return dict(results.store.read("training") or {}).get(self.run, {}).get("loss", [])

    def draw(self, results: Results, path: Path) -> None:
        """Draw a line for each loss; a digest tells a stale plot."""
        import matplotlib

        matplotlib.use("svg")
        import matplotlib.pyplot as plt

        points, about = self.points(results), results.store.read("training")[self.run]
        style: dict[Any, Any] = {"svg.hashsalt": "letgo", "font.size": 8, "svg.fonttype": "none"}
        with plt.rc_context(style):
            figure, axis = plt.subplots(figsize=(4.6, 2.4), layout="constrained")
            for name, colour in LOSS_COLOURS.items():
                here = [point for point in points if name in point]
                values = [point[name] for point in here]
                axis.plot(
                    [point["step"] / 1000 for point in here], values, "o-", ms=2.5, lw=1.2, color=colour, label=name
                )
            axis.set_ylim(bottom=0)
            axis.set_xlabel(f"thousand training steps; seed {about['seed']}, learning rate: {about.get('rate', '?')}")
            axis.set_ylabel("loss")
            axis.set_title(self.run, fontsize=8, loc="left")
            axis.grid(lw=0.3)
            axis.legend(frameon=False)
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(path, format="svg", metadata={"Date": None, "Description": results.store.digest()})
            plt.close(figure)
