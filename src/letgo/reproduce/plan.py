"""What is to be measured: the reports that experiments need. One report serves several of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from letgo.reproduce.paper import Cell

QUICK_RULES, QUICK_COUNT = ("ddpm", "tweedie"), 16
TRIES = 10


@dataclass(frozen=True)
class Need:
    """One report: what is measured of a model (by the name of its seed 0), in which regime, with which rule."""

    task: str
    model: str
    regime: str
    rule: str
    steps: int
    count: int
    passes: int = 1  # samples per instance
    at: int | None = None  # the kept checkpoint to measure, where the run has it
    file: bool = False  # only on instances of a data file
    kind: str = "evaluate"  # a key of measure.KINDS
    first: bool = False  # training seed 0 alone
    quick: tuple[int, int] | None = (QUICK_COUNT, 1)  # count and passes of a quick run; None: never in one

    @staticmethod
    def of(cell: Cell) -> Need:
        c = cell.column
        return Need(c.task, cell.model, c.regime, cell.rule, c.steps, c.count, c.passes, c.at, c.file)

    @property
    def key(self) -> tuple[str, str, str, str, int]:
        return self.kind, self.model, self.regime, self.rule, self.steps


@dataclass(frozen=True)
class Limits:
    """What a run is restricted to; None is no restriction."""

    tasks: tuple[str, ...] | None = None
    rules: tuple[str, ...] | None = None
    count: int | None = None
    quick: bool = False

    def of(self, needs: Iterable[Need]) -> list[Need]:
        """What is left of these needs, each with the asked count, and in a quick run with its passes."""
        rules, left = self.rules or (QUICK_RULES if self.quick else None), []
        for need in needs:
            count, passes = (need.quick or (0, 0)) if self.quick else (need.count, need.passes)
            allowed = (self.tasks is None or need.task in self.tasks) and (rules is None or need.rule in rules)
            if allowed and count:
                left.append(replace(need, count=self.count or count, passes=passes))
        return left


def merged(needs: Iterable[Need]) -> list[Need]:
    """Needs that one report can serve, as one: the most passes, the most instances. Models stay together."""
    joined: dict[tuple[str, str, str, str, int], Need] = {}
    for need in needs:
        old = joined.get(need.key, need)
        passes, count, first = max(old.passes, need.passes), max(old.count, need.count), old.first and need.first
        joined[need.key] = replace(need, passes=passes, count=count, first=first)
    order = list(dict.fromkeys(need.model for need in joined.values()))
    return sorted(joined.values(), key=lambda need: order.index(need.model))
