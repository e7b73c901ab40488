"""The folder of results: one file per model with `letgo evaluate` reports, and a file for each other kind."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from letgo.errors import LetgoError
from letgo.reproduce.paper import Cell
from letgo.runs import locked, read_json, write_json

Report = dict[str, Any]

# Files that hold something else than one model's reports.
SOLVE, COVERAGE, SOLUTIONS, TUNE, TRAINING, NOTES = "solve", "coverage", "solutions", "tune", "training", "notes"
KINDS = (SOLVE, COVERAGE, SOLUTIONS, TUNE, TRAINING, NOTES)
STAND_IN = "88c3594236b6f0206ec4407842df56b99636e062a8c5d16c2cc7a95216d23136"  # of Sudoku-Extreme: test.csv.gz
STAND_IN_PACK = "8d04e7734c96a489f8e885e6e9639fc149bdf15dccf451269102e352631033ff"  # the same rows as test.npz


def split_seed(name: str) -> tuple[str, int]:
    """`sudoku.s1` is seed 1 of `sudoku`; a plain name is seed 0."""
    model, _, seed = name.rpartition(".s")
    return (model, int(seed)) if model and seed.isdecimal() else (name, 0)


def seeded(model: str, seed: int) -> str:
    return model if seed == 0 else f"{model}.s{seed}"


class Store:
    """Reports as they lie in a folder. Every change is written at once, so that a stopped run loses nothing."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._files: dict[str, Any] = {}

    def read(self, name: str) -> Any:
        """A file's content; an empty list where there is none."""
        if name not in self._files:
            path = self.folder / f"{name}.json"
            self._files[name] = read_json(path) if path.is_file() else []
        return self._files[name]

    def reports(self, name: str) -> list[Report]:
        value = self.read(name)
        if not isinstance(value, list) or not all(isinstance(r, dict) for r in value):
            raise LetgoError(f"{self.folder / name}.json is no list of reports; restore it or move it away")
        return value

    def models(self) -> list[str]:
        names = sorted(path.stem for path in self.folder.glob("*.json"))
        return [name for name in names if name not in KINDS]

    def check(self) -> None:
        """Raise where a file holds no reports."""
        for name in self.models():
            self.reports(name)

    def add(self, name: str, report: Report, same: tuple[str, ...]) -> None:
        """Append; an older report that agrees in all of `same` gives way, but for one that still holds and is
        larger or has more passes."""

        def stays(old: Report) -> bool:
            if any(old.get(key) != report.get(key) for key in same) or sampler(old) != sampler(report):
                return True
            more = size(old) > size(report) or passes(old) > passes(report)
            return more and not self.stale(old, report)

        with locked(self.folder):  # another process may add to the same file
            self._files.pop(name, None)
            self._files[name] = [*filter(stays, self.reports(name)), report]
            write_json(self.folder / f"{name}.json", self._files[name])

    def stale(self, old: Report, new: Report) -> bool:
        """Whether the model, its tuned settings or the data file have changed since."""
        weights = {r["weights_sha256"] for r in (old, new) if r.get("weights_sha256")}
        if len(weights) > 1:
            return True
        steps = self.trained_steps(old), new.get("training_steps")
        if None not in steps and steps[0] != steps[1]:
            return True
        if old.get("settings", {}) != new.get("settings", {}) or ("data" in old) != ("data" in new):
            return True
        return len({file for r in (old, new) if (file := rows_of(r))}) > 1

    def trained_steps(self, report: Report) -> int | None:
        """Optimiser steps behind a report: its own word, or that of the file about training."""
        if report.get("training_steps") is not None:
            return int(report["training_steps"])
        runs = self.read(TRAINING) or {}
        run = runs.get(report["model"]) if isinstance(runs, dict) else None
        return int(run["steps"]) if isinstance(run, dict) and "steps" in run else None

    def digest(self) -> str:
        """The sha256 of all files: a page that was made from others is stale."""
        found = hashlib.sha256()
        for path in sorted(self.folder.glob("*.json")):
            found.update(f"{path.name}\n".encode() + path.read_bytes())
        return found.hexdigest()

    def seeds(self, cell: Cell, of: str | None = None) -> dict[int, Report]:
        """The best report for a cell from every training seed: the most instances, then the latest."""
        found = {}
        for name in self.models():
            model, seed = split_seed(name)
            fitting = [r for r in self.reports(name) if fits(r, cell)] if model == (of or cell.model) else []
            if fitting:
                found[seed] = max(reversed(fitting), key=lambda r: r["count"])
        return dict(sorted(found.items()))


def rows_of(report: Report) -> str | None:
    """What tells the rows of a report's data file from others, however they are packed."""
    data = report.get("data")
    found = data.get("sha256") if isinstance(data, dict) else None
    return STAND_IN if found == STAND_IN_PACK else found


def size(report: Report) -> int:
    return next((report[key] for key in ("count", "puzzles", "samples") if key in report), 0)


def passes(report: Report) -> int:
    """Samples per instance."""
    return report.get("pass_at_k", {}).get("k", report.get("draws", 1))


def sampler(report: Report) -> Report:
    """Settings that make another sampler of a rule: a scaled variance, soft pinning. Tuned ones do not."""
    return {key: value for key, value in report.get("settings", {}).items() if key not in ("sigma", "tau_start")}


def largest(reports: Iterable[Report]) -> Report | None:
    return max(reports, key=size, default=None)


def fits(report: Report, cell: Cell) -> bool:
    """Whether a report measures what a cell asks for."""
    column = cell.column
    key = (column.regime, cell.rule, column.steps)
    if (report.get("regime"), report.get("rule"), report.get("steps")) != key or sampler(report):
        return False
    if column.score not in report or (column.file and "data" not in report):
        return False
    return not column.score.endswith("_at_k") or report[column.score]["k"] == column.passes
