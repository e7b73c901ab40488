"""All results of a folder: a measured cell beside the paper's, where it is a miss, and what Table 1 says as a whole."""

from __future__ import annotations

from typing import Any

from letgo.reproduce.compare import Miss, Result, miss, result, same_training, steps_span
from letgo.reproduce.paper import OBJECTIVES, RULES, STEPS, TABLE1, TABLE7, TABLES, Cell, Column
from letgo.reproduce.store import NOTES, Report, Store, split_seed

RULE_NAMES = {"ddpm": "DDPM", "euler": "Euler", "em": "EM", "em-decay": "EM decay", "tweedie": "Tweedie"}
KNOWN = {cell.model for table in TABLES.values() for cell in table.cells()}  # models that some table asks for
EQUAL = 0.005  # apart by less, the one is called neither above nor below the other


class Results:
    """What sections are made of. It remembers the reports that it gave away: their commands repeat a section."""

    def __init__(self, store: Store, quick: bool = False):
        self.store, self.quick = store, quick
        self.used: dict[int, Report] = {}
        self._cells: dict[tuple[str, str], Result | None] = {}

    def use(self, report: Report) -> Report:
        self.used[id(report)] = report
        return report

    def result(self, cell: Cell, model: str | None = None) -> Result | None:
        found = self._found(cell, model or cell.model)
        for report in found.reports.values() if found else ():
            self.use(report)
        return found

    def _found(self, cell: Cell, model: str) -> Result | None:
        key = (cell.name, model)
        if key not in self._cells:
            self._cells[key] = result(self.store, cell, model)
        return self._cells[key]

    def variants(self, cell: Cell) -> list[tuple[str, Result]]:
        """Other recipes measured in the same cell, by the name of their model."""
        names = dict.fromkeys(split_seed(name)[0] for name in self.store.models())
        pairs = [(name, self._found(cell, name)) for name in names if name not in KNOWN]
        named = [name for name, found in pairs if found is not None and same_training(name, found, cell)]
        return [(name, found) for name in named if (found := self.result(cell, name))]

    def all_of(self, cell: Cell) -> list[tuple[str, Result | None]]:
        """The paper's recipe, then other recipes under their models' names."""
        return [(cell.objective, self.result(cell)), *self.variants(cell)]

    def miss(self, found: Result | None) -> Miss | None:
        """Never in a quick run: 16 boards cannot miss."""
        return None if found is None or self.quick else miss(self.store, found)

    def absent(self, model: str) -> str:
        """Why a cell is empty."""
        if self.quick:
            return "not measured in this quick run"
        trained = any(split_seed(name)[0] == model for name in self.store.models())
        return "not measured yet" if trained else "not trained yet"

    def notes(self, about: str) -> list[str]:
        """What was written about an experiment."""
        return [note["text"] for note in self.store.reports(NOTES) if note.get("about") == about]

    def steps(self, report: Report) -> str:
        steps = self.store.trained_steps(report)
        return f"{steps:,}" if steps else "?"

    def pair(self, column: Column, rule: str) -> tuple[Result | None, Result | None]:
        """A cell of Table 1 without self-correction and with it."""
        without, corrected = (self.result(Cell(TABLE1, column, rule, objective)) for objective in OBJECTIVES)
        return without, corrected


def share(score: dict[str, Any], digits: int = 3) -> str:
    """`0.953 [0.943, 0.961]`."""
    if score.get("low") is None:
        return f"{score['value']:.{digits}f}"
    return f"{score['value']:.{digits}f} [{score['low']:.{digits}f}, {score['high']:.{digits}f}]"


def as_table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def signed(difference: float, digits: int) -> str:
    return f"{round(difference, digits) + 0.0:+.{digits}f}"  # + 0.0: no -0.0


def above(upper: Result | None, lower: Result | None) -> str:
    """Whether the one is above the other, and the training seeds for which the opposite holds."""
    if upper is None or lower is None:
        return "-"
    apart = upper.value - lower.value
    verdict = "about equal" if abs(apart) < EQUAL else "yes" if apart > 0 else "**no**"
    text = f"{verdict}: {lower.value:.3f} -> {upper.value:.3f}"
    for seed in lower.reports if abs(apart) >= EQUAL else ():
        if seed in upper.reports:
            a, b = lower.of(seed), upper.of(seed)
            text += f", but seed {seed}: {a:.3f} -> {b:.3f}" if abs(b - a) >= EQUAL and (b - a) * apart < 0 else ""
    return text


def orderings(results: Results) -> str:
    """The paper's two claims, column by column, and what both cures do together."""
    rows = []
    for column in TABLE1.columns:
        (ddpm, corrected), (tweedie, both) = (results.pair(column, rule) for rule in ("ddpm", "tweedie"))
        theirs = [Cell(TABLE1, column, "tweedie", objective).paper.value for objective in OBJECTIVES]
        last = f"{above(both, tweedie)} ({theirs[0]:.2f} -> {theirs[1]:.2f})"
        rows.append([column.title, above(tweedie, ddpm), above(corrected, ddpm), last])
    head = ["column", "Tweedie above DDPM, baseline", "self-correction lifts DDPM"]
    head.append("self-correction lifts Tweedie (the paper's)")
    text = "The paper's ordering; the last column is no claim of the paper's, and not true of all its columns:"
    return f"{text}\n\n{as_table(head, rows)}"


def summary(results: Results) -> str:
    """What holds and what does not, counted from Table 1."""
    found = [one for cell in TABLE1.cells() if (one := results.result(cell)) is not None]
    if not found:
        return "Nothing of Table 1 is measured yet."
    columns = [column for column in TABLE1.columns if any(one.cell.column == column for one in found)]
    ordered, fallen = 0, []
    for column in columns:
        (ddpm, corrected), (tweedie, both) = (results.pair(column, rule) for rule in ("ddpm", "tweedie"))
        if ddpm and corrected and tweedie:
            ordered += ddpm.value < min(corrected.value, tweedie.value)
        if tweedie and both and both.value < tweedie.value - 0.01:
            fallen.append(column.title)
    short = [one for one in found if results.miss(one)]
    text = (
        f"**What was run.** {len(columns)} of {len(TABLE1.columns)} columns of Table 1, {len(found)} of "
        f"{len(list(TABLE1.cells()))} entries, with up to {max(len(one.reports) for one in found)} training seeds of "
        f"{steps_span([steps for one in found for steps in one.all_steps])} steps; the paper's have {STEPS:,}.\n\n"
        f"**What reproduces.** In {ordered} of these {len(columns)} columns both of the paper's claims hold: without "
        "self-correction Tweedie reprojection is above DDPM, and self-correction lifts DDPM. "
        f"{len(found) - len(short)} of the {len(found)} entries are no miss."
    )
    said = [f"{len(short)} entries are misses, in bold, with the reason as far as one is known."] if short else []
    rows = [f"{one.cell.column.title} ({one.cell.objective})" for one in short]
    if whole := [row for row in dict.fromkeys(rows) if rows.count(row) == len(RULES)]:
        said.append(f"Every sampler misses in {'; '.join(whole)}.")
    if fallen:
        said.append(
            "Self-correction and Tweedie reprojection do not add up everywhere: together they are more than .01 below "
            f"Tweedie reprojection alone in {'; '.join(fallen)}."
        )
    mazes = results.result(Cell(TABLE7, TABLE7.columns[0], "tweedie", "self-correction"))
    if mazes is not None and mazes.value < 0.01:
        said.append("Mazes by the paper's recipe are not solved (Table 7 says why).")
    return f"{text}\n\n**What does not.** {' '.join(said)}" if said else text
