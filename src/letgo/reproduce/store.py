"""The folder of results: one file per model with `letgo evaluate` reports, and a file for each other kind."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, TypedDict

from letgo.errors import LetgoError
from letgo.reproduce.paper import Cell
from letgo.runs import locked, read_json, write_json
from letgo.typed import Natural, check

Report = dict[str, Any]

OTHERS = ("solve", "coverage", "solutions", "tune", "training", "notes")  # files of something else than one model


class Known(TypedDict, total=False):
    """Known is what a report is found and replaced by."""

    model: str
    task: str
    rule: str
    regime: str
    steps: Natural
    seed: int
    count: Natural
    puzzles: Natural
    samples: Natural
    draws: Natural
    settings: dict[str, Any]
    pass_at_k: dict[str, Any]
    weights_sha256: str
    training_steps: Natural | None
    command: str


def split_seed(name: str) -> tuple[str, int]:
    """`sudoku.s1` is seed 1 of `sudoku`; a plain name is seed 0."""
    model, _, seed = name.rpartition(".s")
    return (model, int(seed)) if model and seed.isdecimal() else (name, 0)


class Store:
    """A Store is a folder of reports. Every change is written at once, so that a stopped run loses nothing."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._files: dict[str, Any] = {}

    def read(self, name: str) -> Any:
        """Return a file's content; an empty list where there is none."""
        if name not in self._files:
            path = self.folder / f"{name}.json"
            self._files[name] = read_json(path) if path.is_file() else []
        return self._files[name]

    def reports(self, name: str) -> list[Report]:
        value = self.read(name)
        try:
            return check(value, list[Known], f"{self.folder / name}.json is no list of reports")
        except LetgoError as error:
            raise LetgoError(f"{error}; restore it or move it away") from None

    def models(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.json") if path.stem not in OTHERS)

    def add(self, name: str, report: Report, same: tuple[str, ...]) -> None:
        """Append; an older report that agrees in all of `same` gives way, but for one that still holds and is
        larger or has more passes."""

        def stays(old: Report) -> bool:
            if any(old.get(key) != report.get(key) for key in same) or sampler(old) != sampler(report):
                return True
            more = size(old) > size(report) or passes(old) > passes(report)
            return more and not stale(old, report)

        with locked(self.folder):  # another process may add to the same file
            self._files.pop(name, None)
            self._files[name] = [*filter(stays, self.reports(name)), report]
            write_json(self.folder / f"{name}.json", self._files[name])

    def digest(self) -> str:
        """Return the sha256 of all files: a page that was made from others is stale."""
        files = sorted(self.folder.glob("*.json"))
        return hashlib.sha256(b"".join(f"{path.name}\n".encode() + path.read_bytes() for path in files)).hexdigest()

    def seeds(self, cell: Cell) -> dict[int, Report]:
        """Return the best report of every seed for a cell: at the usual temperature, of the most instances, the latest.

        Seeds that were measured at another temperature than the first one are not pooled with it.
        """

        def worth(report: Report) -> tuple[bool, int]:
            return temperature(report) is None, size(report)

        names = {seed: name for name in self.models() for model, seed in [split_seed(name)] if model == cell.model}
        fitting = {seed: [r for r in self.reports(name) if fits(r, cell)] for seed, name in sorted(names.items())}
        best = {seed: max(reversed(reports), key=worth) for seed, reports in fitting.items() if reports}
        warmth = next((temperature(report) for report in best.values()), None)
        return {seed: report for seed, report in best.items() if temperature(report) == warmth}


def stale(old: Report, new: Report) -> bool:
    """Return whether the weights, the tuned settings or the data file have changed since; an old report may not say."""
    known = [(old.get(key), new.get(key)) for key in ("weights_sha256", "training_steps")]
    if any(None not in pair and pair[0] != pair[1] for pair in known):
        return True
    return old.get("settings", {}) != new.get("settings", {}) or data_digest(old) != data_digest(new)


def data_digest(report: Report) -> str | None:
    """Return the sha256 of the file that a report's instances come from; None where they were generated."""
    data = report.get("data")
    return data.get("sha256") if isinstance(data, dict) else None


def size(report: Report) -> int:
    return next((report[key] for key in ("count", "puzzles", "samples") if key in report), 0)


def passes(report: Report) -> int:
    """Return the samples per instance."""
    return report.get("pass_at_k", {}).get("k", report.get("draws", 1))


def sampler(report: Report) -> Report:
    """Return the settings that make another sampler of a rule: a scaled variance, soft pinning. Tuned ones do not."""
    return {key: value for key, value in report.get("settings", {}).items() if key not in ("sigma", "tau_start")}


def temperature(report: Report) -> float | None:
    """Return the temperature of the drawn symbols where it is not the usual one."""
    return report.get("settings", {}).get("temperature")


def fits(report: Report, cell: Cell) -> bool:
    """Return whether a report measures what a cell asks for; at which temperature, the cell leaves open."""
    column = cell.column
    if (report.get("regime"), report.get("rule"), report.get("steps")) != (column.regime, cell.rule, column.steps):
        return False
    if sampler(report).keys() - {"temperature"}:
        return False
    if column.score not in report or (column.file and data_digest(report) is None):
        return False
    return not column.score.endswith("_at_k") or report[column.score]["k"] == column.passes
