"""What the tables ask to be measured. One report serves several of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from letgo.paper import OBJECTIVES, TABLES, Cell, Column, model_name

QUICK_RULES, QUICK_COUNT = ("ddpm", "tweedie"), 16
TRIES = 10
# Where verified solving is measured, with which table: one column per task, both sizes of graphs.
SOLVED = {
    "table1": ("sudoku-21", "extreme-pass1", "queens-random", "latin-random", "connectivity-12", "connectivity-18"),
    "table7": ("maze-valid",),
}
COLUMNS = {column.key: column for table in TABLES.values() for column in table.columns}
KNOWN = {cell.model for table in TABLES.values() for cell in table.cells()}  # models that some table asks for


@dataclass(frozen=True)
class Need:
    """One report: a model (by the name of its seed 0), a regime and a rule."""

    task: str
    model: str
    regime: str
    rule: str
    steps: int
    passes: int
    count: int
    at: int | None = None  # the kept checkpoint to measure, where the run has it


@dataclass(frozen=True)
class Limits:
    """What a run is restricted to; None is no restriction."""

    tasks: tuple[str, ...] | None = None
    rules: tuple[str, ...] | None = None
    count: int | None = None
    quick: bool = False

    def task(self, name: str) -> bool:
        return self.tasks is None or name in self.tasks

    def rule(self, name: str) -> bool:
        allowed = self.rules or (QUICK_RULES if self.quick else None)
        return allowed is None or name in allowed

    def sized(self, need: Need) -> Need:
        """The asked count, and in a quick run one pass."""
        count = self.count or (QUICK_COUNT if self.quick else need.count)
        return replace(need, count=count, passes=1 if self.quick else need.passes)


def solve_columns(names: Iterable[str], limits: Limits) -> list[Column]:
    """The columns of these tables in which puzzles are solved with the rules in view; never in a quick run."""
    keys = [key for name in names for key in SOLVED.get(name, ())]
    columns = [COLUMNS[key] for key in keys if limits.task(COLUMNS[key].model)]
    return columns if limits.rule("tweedie") and not limits.quick else []


def table_needs(names: Iterable[str], limits: Limits) -> list[Need]:
    """The reports behind these tables, each once, models together."""
    cells = [cell for name in names for cell in TABLES[name].cells()]
    return merged([limits.sized(_need(c.model, c.rule, c.column)) for c in cells if _wanted(c, limits)])


def solve_needs(columns: list[Column], limits: Limits) -> list[Need]:
    """pass@1 and pass@10 of Tweedie reprojection, to stand beside verified solving."""
    needs = [_need(model_name(c.model, o), "tweedie", c) for c in columns for o in OBJECTIVES]
    return merged([limits.sized(replace(need, passes=TRIES)) for need in needs])


def _need(model: str, rule: str, column: Column) -> Need:
    return Need(column.model, model, column.regime, rule, column.steps, column.passes, column.count, column.at)


def _wanted(cell: Cell, limits: Limits) -> bool:
    return limits.task(cell.column.model) and limits.rule(cell.rule)


def merged(*lists: list[Need]) -> list[Need]:
    """Needs that one report can serve, as one: the most passes, the most instances. Models stay together."""
    needs = [need for part in lists for need in part]
    joined: dict[tuple[str, str, str, int], Need] = {}
    for need in needs:
        key = (need.model, need.regime, need.rule, need.steps)
        old = joined.get(key, need)
        joined[key] = replace(need, passes=max(old.passes, need.passes), count=max(old.count, need.count))
    order = {model: i for i, model in enumerate(dict.fromkeys(need.model for need in needs))}
    return sorted(joined.values(), key=lambda need: order[need.model])
