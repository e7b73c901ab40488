"""What a measurement found: scores with their intervals, and the outcome of every instance behind them."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor

from letgo import __version__
from letgo.errors import LetgoError
from letgo.estimates import ESTIMATES, Column, Estimate
from letgo.runs import read_json
from letgo.typed import check

SCORES = ("validity", "pass_at_k", "violation_rate", "codeword_distance", "chosen_at_k", "uniqueness",
          "calls_per_instance")  # fmt: skip
SHOWN = ("validity", "pass_at_k")  # by every report
TRACES = ("weights_crc32", "instances_crc32")  # of a part: what was measured, on what
MOST_REPORT = 64 << 20  # bytes of a file: every outcome of a part is in it
PARTS = {"count", "calls", "seconds", "building_seconds", "command", "shard", "outcomes", "scores", "device"}


def board_digest(board: Tensor) -> int:
    """Return 48 bits of a board: equal boards have equal ones."""
    return int.from_bytes(hashlib.sha256(board.to(torch.uint8).numpy().tobytes()).digest()[:6], "big")


@dataclass(frozen=True, eq=False)
class Outcomes:
    """Outcomes have a row for each instance: its number in the whole drawn list, and a column for each score."""

    number: list[int]
    columns: dict[str, Column]

    def scores(self) -> dict[str, Estimate]:
        return {name: ESTIMATES[column.kind](column.values) for name, column in self.columns.items()}

    def as_dict(self) -> dict[str, Any]:
        return {"number": self.number, **{name: column.as_dict() for name, column in self.columns.items()}}

    @staticmethod
    def from_dict(values: dict[str, Any]) -> Outcomes:
        columns = {name: Column.from_dict(value) for name, value in values.items() if name != "number"}
        number = [int(number) for number in values["number"]]
        for name, column in columns.items():
            empty = len(number) > 0 and not column.values.numel()
            if column.kind not in ESTIMATES or len(column.values) != len(number) or empty:
                raise ValueError(f"the outcomes of {name} are damaged")
        return Outcomes(number, columns)

    @staticmethod
    def cat(parts: Sequence[Outcomes]) -> Outcomes:
        """Return all rows in the order of their numbers; a score that one part lacks, the whole lacks too."""
        number, columns = [n for part in parts for n in part.number], {}
        order = torch.tensor(number).argsort()
        for name in parts[0].columns:
            pieces = [part.columns[name] for part in parts if name in part.columns]
            if len({(piece.kind, piece.values.shape[1]) for piece in pieces}) > 1:
                raise LetgoError(f"the parts differ in the values of {name}; give all of them the same --passes")
            if len(pieces) == len(parts):
                columns[name] = Column(pieces[0].kind, torch.cat([piece.values for piece in pieces])[order])
        return Outcomes(sorted(number), columns)


@dataclass(frozen=True, eq=False)
class Report:
    """A Report is the record of `letgo evaluate --json`; scores are attributes too: `report.validity.value`."""

    task: str
    rule: str
    settings: dict[str, float]
    steps: int
    count: int
    seed: int
    scores: dict[str, Estimate] = field(repr=False)
    calls: int
    seconds: float
    device: str
    precision: str
    model: str | None = None
    regime: str | None = None
    building_seconds: float | None = None
    version: str = __version__
    command: str | None = None
    shard: str | None = None  # "I/N": part I of N
    digits: str | None = None  # where images of digits come from, of a model that has such
    whole: int | None = None  # of a part: the instances of all parts together
    weights_crc32: str | None = None  # of a part, so that the whole is one of one model
    instances_crc32: str | None = None  # of all parts together
    outcomes: Outcomes | None = field(default=None, repr=False)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self.scores:
            raise AttributeError(f"a report has no {name!r}; it has {', '.join(self.scores)}")
        return self.scores[name]

    def as_dict(self) -> dict[str, Any]:
        """Return JSON; a part keeps its outcomes, so that `merge` can make the whole of several."""
        scores = {name: score.as_dict() for name, score in self.scores.items()}
        outcomes = None if self.shard is None or self.outcomes is None else self.outcomes.as_dict()
        values = {
            **{name: getattr(self, name) for name in ("model", "regime", "task", "rule", "settings", "steps")},
            **{name: getattr(self, name) for name in ("count", "seed")},
            **{name: scores[name] for name in SCORES if name in scores},
            **{name: score for name, score in scores.items() if name not in SCORES},
            **{name: getattr(self, name) for name in ("calls", "seconds", "building_seconds", "device", "precision")},
            **{name: getattr(self, name) for name in ("version", "command", "shard", "digits", "whole", *TRACES)},
            "outcomes": outcomes,
        }
        return {name: value for name, value in values.items() if value is not None}

    def __repr__(self) -> str:
        low, high = self.validity.interval95
        found = f"{self.validity.value:.4g} of {self.validity.n:,} valid [{low:.4g}, {high:.4g}]"
        return f"<Report of {self.model or self.task} by {self.rule} in {self.steps:,} steps: {found}>"

    @staticmethod
    def read(path: Path) -> Report:
        try:
            if not path.exists():
                raise LetgoError(f"{path}: no such file; check the path")
            return Report.from_dict(read_json(path, MOST_REPORT))
        except LetgoError as error:
            raise LetgoError(f"{error}" if str(path) in str(error) else f"{path}: {error}") from None

    @staticmethod
    def from_dict(values: Any) -> Report:
        known = {f.name for f in fields(Report)} - {"scores", "outcomes"}
        try:
            scores: dict[str, Estimate] = {
                name: Estimate.from_dict(v) for name, v in values.items() if isinstance(v, dict) and "n" in v
            }
            outcomes = Outcomes.from_dict(values["outcomes"]) if "outcomes" in values else None
            shard_of(values.get("shard", "0/1"))
            plain, hints = {name: value for name, value in values.items() if name in known}, get_type_hints(Report)
            for name, value in plain.items():
                check(value, hints[name], name)
            return Report(**plain, scores=scores, outcomes=outcomes)
        except (ArithmeticError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise LetgoError(f"not a report of `letgo evaluate` ({error}); measure it again") from None

    @staticmethod
    def of(outcomes: Outcomes, **facts: Any) -> Report:
        """Compute the scores of all outcomes, beside what else is known of the measurement."""
        scores = outcomes.scores()
        return Report(**facts, count=len(outcomes.number), scores=scores, outcomes=outcomes)

    @staticmethod
    def merge(parts: Sequence[Report]) -> Report:
        """Make the report of the whole from those of all parts, exactly; only times and devices are put together."""
        _refuse_unlike(parts)
        outcomes = Outcomes.cat([part.outcomes for part in parts if part.outcomes is not None])
        building = [part.building_seconds for part in parts if part.building_seconds is not None]
        return replace(
            parts[0],
            count=len(outcomes.number),
            scores=_scores(outcomes),
            outcomes=outcomes,
            calls=sum(part.calls for part in parts),
            seconds=round(math.fsum(part.seconds for part in parts), 3),
            building_seconds=round(math.fsum(building), 3) if building else None,
            device=", ".join(dict.fromkeys(part.device for part in parts)),
            command=parts[0].command and PART.sub("", parts[0].command),
            shard=None,
            whole=None,
            **dict.fromkeys(TRACES),
        )


PART = re.compile(r" --(shard|out)[ =]('[^']*'|\S+)")  # words of a command that the whole's would not have


def _scores(outcomes: Outcomes) -> dict[str, Estimate]:
    """Return the scores of outcomes that were read from files; those that every report shows must be there."""
    for name in SHOWN:
        if name not in outcomes.columns:
            raise LetgoError(f"the parts have no outcomes of {name}; measure them again")
    try:
        return outcomes.scores()
    except (ArithmeticError, IndexError, RuntimeError, ValueError) as error:  # too few columns, no number
        raise LetgoError(f"the parts hold damaged outcomes ({error}); measure them again") from None


def shard_of(text: str) -> tuple[int, int]:
    """Read part I of N, counted from 0, of the text "I/N"."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
    if match is None or int(match[1]) >= int(match[2]):
        raise LetgoError(f"--shard {text}: expected I/N with I from 0 to N - 1")
    return int(match[1]), int(match[2])


def _refuse_unlike(parts: Sequence[Report]) -> None:
    """Refuse reports that are not all the parts of one measurement, each once."""
    if not parts:
        raise LetgoError("no reports to merge; name the files of all parts")
    for part in parts:
        if part.shard is None or part.outcomes is None:
            raise LetgoError("a report without its outcomes cannot be merged; name parts that --shard made")
        for name in (f.name for f in fields(Report) if f.name not in PARTS):
            values = getattr(parts[0], name), getattr(part, name)
            if values[0] != values[1]:
                raise LetgoError(
                    f"the parts differ in {name}: {values[0]!r} and {values[1]!r}; merge parts of one measurement"
                )
    shards = [shard_of(str(part.shard)) for part in parts]
    if len({total for _, total in shards}) > 1 or len(set(shards)) < len(shards):
        names = ", ".join(str(part.shard) for part in parts)
        raise LetgoError(f"parts {names} are not the parts of one whole; name each part once")
    there = {index for index, _ in shards}
    for missing in (index for index in range(shards[0][1]) if index not in there):
        raise LetgoError(f"part {missing}/{shards[0][1]} is missing; measure it with --shard {missing}/{shards[0][1]}")
    numbers = sorted(number for part in parts if part.outcomes is not None for number in part.outcomes.number)
    if len(numbers) != (parts[0].whole or len(numbers)) or numbers != list(range(len(numbers))):
        raise LetgoError("the parts share instances or leave some out; give all of them the same --count and --data")
