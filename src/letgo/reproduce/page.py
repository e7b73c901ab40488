"""docs/results.md, made of the JSON files alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from letgo.metrics import Rate
from letgo.paper import (
    O3_FOUND,
    O3_TOTAL,
    OBJECTIVES,
    QUEENS_BOARDS,
    QUEENS_TRAINING,
    RULES,
    TABLE1,
    TABLE7,
    TABLE15,
    TABLES,
    Cell,
    Column,
    Table,
)
from letgo.reproduce.appendix import other_models, other_systems, own_choice, own_rule, training
from letgo.reproduce.compare import MARGIN, Result, data_text, miss, remark, result, same_training, steps_span
from letgo.reproduce.markdown import anchor, as_table, command, commands_block, share, signed, steps_text
from letgo.reproduce.plan import COLUMNS, KNOWN, QUICK_COUNT, SOLVED, TRIES
from letgo.reproduce.settings import table5
from letgo.reproduce.store import COVERAGE, SOLUTIONS, SOLVE, Report, Store, largest, split_seed
from letgo.reproduce.summary import READING, WORDS, pair, summary

RULE_NAMES = {"ddpm": "DDPM", "euler": "Euler", "em": "EM", "em-decay": "EM decay", "tweedie": "Tweedie"}
NOTHING = "not trained yet"
EQUAL = 0.005  # apart by less, the one is called neither above nor below the other
QUICK = (
    f"A quick look, not a reproduction: DDPM and Tweedie reprojection only, pass@1, one seed, n = {QUICK_COUNT} where "
    "an entry says nothing else. Mazes are left out unless asked for (`table7`, or `--tasks maze`), Sudoku-Extreme "
    "without its file (`--data`). With n = 16 an interval spans up to .46; compare with nothing."
)


def _digits(table: Table) -> tuple[int, int]:
    """Decimals of our numbers and of the paper's."""
    return {"table1": (3, 2), "table7": (3, 3), "table8": (1, 2), "table12": (2, 1)}.get(table.name, (1, 1))


def _own(found: Result) -> str:
    digits, _ = _digits(found.cell.table)
    text = f"{found.value:.{digits}f}"
    return text if found.low is None else f"{text} [{found.low:.{digits}f}, {found.high:.{digits}f}]"


def _paper(cell: Cell) -> str:
    _, digits = _digits(cell.table)
    number = cell.paper
    return f"{number.value:.{digits}f}" + ("" if number.std is None else f" ± {number.std:.{digits}f}")


class Page:
    """The sections of the page, from one folder of results."""

    def __init__(self, store: Store, quick: bool = False):
        self.store, self.quick = store, quick
        self.results: dict[tuple[str, str], Result | None] = {}

    def result(self, cell: Cell, model: str | None = None) -> Result | None:
        key = (cell.name, model or cell.model)
        if key not in self.results:
            self.results[key] = result(self.store, cell, model)
        return self.results[key]

    def absent(self, model: str) -> str:
        """Why a cell is empty."""
        if self.quick:
            return "not measured in this quick run"
        return "not measured yet" if any(split_seed(n)[0] == model for n in self.store.models()) else NOTHING

    def variants(self, cell: Cell) -> list[tuple[str, Result]]:
        """Other recipes measured in the same cell, by the name of their model."""
        names = dict.fromkeys(split_seed(name)[0] for name in self.store.models())
        found = [(name, self.result(cell, name)) for name in names if name not in KNOWN]
        return [(name, one) for name, one in found if one is not None and same_training(name, one, cell)]

    def missed(self, found: Result) -> bool:
        return not self.quick and miss(self.store, found) is not None

    def text(self, names: list[str] | None = None) -> str:
        """The whole page, or the sections of some tables."""
        sections: dict[str, Callable[[], str]] = {
            "table1": self.table1,
            "solve": self.solve,
            "table7": self.table7,
            "table8": lambda: self.grid(TABLES["table8"], "Like for like only for runs of about 200,000 steps."),
            "table5": lambda: table5(self.store, self.quick),
            "table12": lambda: self.grid(TABLES["table12"], "Lower is closer to a code word."),
            "table13": lambda: self.grid(TABLES["table13"], "Lower is better."),
            "table14": lambda: self.grid(
                TABLES["table14"], "Where boards have clues of their own, few repeats say little (App. O.2)."
            ),
            "table15": self.table15,
            "solutions": self.solutions,
        }
        if names is not None:
            parts = [sections[name]() for name in sections if name in names]
            return "\n\n".join([QUICK, *parts] if self.quick else parts)
        made = [make() for make in sections.values()]
        made += [own_rule(self.store), own_choice(self.store), other_systems(), other_models(self.store)]
        made.append(training(self.store))
        return "\n\n".join([*([QUICK] if self.quick else self.top(made)), *made]) + "\n"

    def top(self, sections: list[str]) -> list[str]:
        """What a reader should know first, and where the rest is."""
        titles = [section.partition("\n")[0].removeprefix("## ") for section in sections]
        links = ", ".join(f"[{title.partition(':')[0]}](#{anchor(title)})" for title in titles)
        said = remark(self.store, "all")
        return [*summary(self.result, self.missed), *said, WORDS, f"**Contents.** {links}.", READING]

    # Table 1

    def table1(self) -> str:
        parts = ["## Table 1: success rates", "Ours, and the paper's in brackets; intervals and n are below."]
        for objective in OBJECTIVES:
            name = "Baseline" if objective == "baseline" else "Self-correction"
            rows = [[c.title, *(self.brief(Cell(TABLE1, c, r, objective)) for r in RULES)] for c in TABLE1.columns]
            parts.append(as_table([name, *(RULE_NAMES[r] for r in RULES)], rows))
        parts += self.other_recipes()
        if any(self.result(cell) for cell in TABLE1.cells()) and not self.quick:
            parts.append("![Validity by rule, ours with intervals beside the paper's](assets/table1.svg)")
        parts.append(self.orderings())
        parts += [self.detail(TABLE1, column) for column in TABLE1.columns]
        return "\n\n".join(parts)

    def brief(self, cell: Cell) -> str:
        found = self.result(cell)
        _, digits = _digits(cell.table)
        own = "-" if found is None else f"{found.value:.3f}"
        own = f"**{own}**" if found is not None and self.missed(found) else own
        return f"{own} ({cell.paper.value:.{digits}f})"

    def other_recipes(self) -> list[str]:
        """Table 1 for models that are not the paper's, where there are any."""
        rows: dict[tuple[str, str], dict[str, str]] = {}
        for cell in TABLE1.cells():
            for name, found in self.variants(cell):
                _, digits = _digits(cell.table)
                entry = f"{found.value:.3f} ({cell.paper.value:.{digits}f})"
                rows.setdefault((cell.column.title, name), {})[cell.rule] = entry
        lines = [[title, f"`{name}`", *(row.get(r, "-") for r in RULES)] for (title, name), row in rows.items()]
        return [as_table(["Other recipes", "model", *(RULE_NAMES[r] for r in RULES)], lines)] if lines else []

    def orderings(self) -> str:
        """The paper's two claims, column by column, and what both cures do together."""
        rows = []
        for column in TABLE1.columns:
            (ddpm, corrected), (tweedie, both) = (pair(self.result, column, rule) for rule in ("ddpm", "tweedie"))
            theirs = [Cell(TABLE1, column, "tweedie", objective).paper.value for objective in OBJECTIVES]
            last = f"{_above(both, tweedie)} ({theirs[0]:.2f} -> {theirs[1]:.2f})"
            rows.append([column.title, _above(tweedie, ddpm), _above(corrected, ddpm), last])
        head = ["column", "Tweedie above DDPM, baseline", "self-correction lifts DDPM"]
        head.append("self-correction lifts Tweedie (the paper's)")
        text = "The paper's ordering; the last column is no claim of the paper's, and not true of all its columns:"
        return f"{text}\n\n{as_table(head, rows)}"

    def detail(self, table: Table, column: Column) -> str:
        cells = [cell for cell in table.cells() if cell.column == column]
        found = [self.result(cell) for cell in cells]
        head = f"### {column.title}"
        if not any(found):
            return f"{head}\n\n{self.absent(cells[0].model).capitalize()}."
        parts = [head, *self.remarks(column, found), self.rows(cells, column=False)]
        commands = self.commands([one for cell in cells for _, one in self.all_of(cell)])
        return "\n\n".join([*parts, *self.misses(cells), *self.graphs(column, found), *commands])

    def rows(self, cells: list[Cell], column: bool) -> str:
        rows = []
        every = [(cell, name, found) for cell in cells for name, found in self.all_of(cell)]
        for cell, name, found in every:
            lead = [*([cell.column.title] if column else []), name, RULE_NAMES[cell.rule] + _settings(found)]
            if found is None:
                rows.append([*lead, self.absent(cell.model), "", "", "", _paper(cell), ""])
                continue
            digits, _ = _digits(cell.table)
            own = f"**{_own(found)}**" if name == cell.objective and self.missed(found) else _own(found)
            seeds = ", ".join(map(str, found.reports)) + ("" if found.std is None else f" (± {found.std:.{digits}f})")
            steps = steps_span(found.all_steps)
            rows.append([*lead, own, str(found.n), seeds, steps, _paper(cell), signed(found.difference, digits)])
        head = ["training", "sampler", "ours, 95% interval", "n", "seeds", "steps", "paper", "difference"]
        return as_table([*(["column"] if column else []), *head], rows)

    def all_of(self, cell: Cell) -> list[tuple[str, Result | None]]:
        """The paper's recipe, then other recipes under their models' names."""
        return [(cell.objective, self.result(cell)), *self.variants(cell)]

    def misses(self, cells: list[Cell]) -> list[str]:
        """One line for each reason, with the cells that it explains."""
        reasons: dict[str, list[str]] = {}
        for cell in cells:
            found = self.result(cell)
            short = None if found is None or self.quick else miss(self.store, found)
            if short is not None:
                name = f"**{cell.column.title}, {cell.objective}, {RULE_NAMES[cell.rule]}** ({short.against})"
                reasons.setdefault(short.why, []).append(name)
        lines = [f"- {', '.join(names)}: {why}" for why, names in reasons.items()]
        return ["\n".join(lines)] if lines else []

    def remarks(self, column: Column, found: list[Result | None]) -> list[str]:
        remarks = [] if self.quick else remark(self.store, column.model)
        if column.model != "sudoku-extreme":
            return remarks
        texts = {data_text(r) for f in found if f is not None for r in f.reports.values()}
        return [f"{column.steps} sampling steps; {'; '.join(sorted(texts))}. {' '.join(remarks)}"]

    def graphs(self, column: Column, found: list[Result | None]) -> list[str]:
        """Whole matrices are the paper's measure; IRED counts entries."""
        reports = [(f.cell, next(iter(f.reports.values()))) for f in found if f is not None]
        reports = [(cell, r) for cell, r in reports if "all_joined" in r]
        if column.model != "connectivity" or not reports:
            return []
        floor = reports[0][1]["all_joined"]
        rows = [
            [c.objective, RULE_NAMES[c.rule], share(r["element_accuracy"]), share(r["balanced_accuracy"])]
            for c, r in reports
        ]
        return [
            f"Answering 'all joined' is right on {share(floor)} of these graphs (n = {floor['n']}): the floor.",
            f"Entry by entry, seed 0, n = {reports[0][1]['count']} graphs:",
            as_table(["training", "sampler", "entries right", "balanced accuracy"], rows),
        ]

    def commands(self, found: list[Result | None]) -> list[str]:
        return commands_block([command(r) for f in found if f is not None for r in f.reports.values()])

    def grid(self, table: Table, note: str) -> str:
        """A table with one row per cell; columns without a report are named once."""
        number = table.name.removeprefix("table")
        note = " ".join([note, *remark(self.store, table.name)])
        parts = [f"## Table {number}: {table.title[0].lower()}{table.title[1:]}", note]
        cells = [cell for cell in table.cells() if any(found for c in self.beside(cell) for _, found in self.all_of(c))]
        if cells:
            parts.append(self.rows(cells, column=len(table.columns) > 1))
            parts += self.misses(cells)
        empty = [c.title for c in table.columns if not any(cell.column == c for cell in cells)]
        if empty:
            parts.append(f"No report yet: {'; '.join(empty)}.")
        if cells and table.name in ("table7", "table8"):
            parts += self.commands([found for cell in cells for _, found in self.all_of(cell)])
        elif cells:
            parts.append("From the reports of Table 1, whose commands are there.")
        return "\n\n".join(parts)

    def beside(self, cell: Cell) -> list[Cell]:
        """All cells of a cell's column."""
        return [other for other in cell.table.cells() if other.column == cell.column]

    # The other tables

    def table7(self) -> str:
        note = (
            "Mazes are drawn by our own generator (1,000 for training, 20,000 for `maze-muon`, 1,000 for testing): "
            "these are not Table 7's mazes, and a difference to the paper is no error by itself. There, "
            "self-correction lowers DDPM's pass@1. Marking every open cell is 'valid' too, so read it beside 'length'."
        )
        text = self.grid(TABLES["table7"], note)
        if self.quick or not any(name.startswith("maze-muon") for c in TABLE7.cells() for name, _ in self.variants(c)):
            return text
        above, rule, table = text.partition("\n\n| ")
        picture = "![`maze-muon` by rule, with intervals, beside the paper's other mazes](assets/table7.svg)"
        return f"{above}\n\n{picture}{rule}{table}"

    def solve(self) -> str:
        reports = self.store.reports(SOLVE)
        note = (
            "`letgo solve --tries 10` with Tweedie reprojection may look at the rules: it stops at the first valid "
            "proposal and tries again where there was none. pass@1 and pass@10 never look. Calls are network calls per "
            "puzzle, on average; a full try costs one per sampling step. Of a maze any way counts, not only a shortest "
            "one; of a graph the rules are the answer itself, so there looking at them is worth nothing to a user. "
            "Training seed 0, and instances drawn with seed 0: other ones than those of pass@1 where n differs."
        )
        rows, commands = [], []
        for column in (COLUMNS[key] for keys in SOLVED.values() for key in keys):
            own = [Cell(TABLE1, column, "tweedie", objective) for objective in reversed(OBJECTIVES)]
            pairs = [(cell.model, cell) for cell in own]
            others = [r["model"] for r in reports if r["model"] not in KNOWN and r.get("task") == column.model]
            pairs += [(name, own[name.endswith("-baseline")]) for name in dict.fromkeys(others)]
            for model, cell in pairs:
                mine = [r for r in reports if (r["model"], r.get("regime")) == (model, column.regime)]
                if mine:
                    best = max(mine, key=lambda r: r["puzzles"])
                    steps = steps_text(self.store, best)
                    rows.append([model, column.regime, *_solved(best), *self.passes(cell, model), steps])
                    commands.append(best["command"])
        head = ["model", "regime", "solved", "n", "calls", "a full try", "pass@1", "pass@10", "steps"]
        body = as_table(head, rows) if rows else "Not measured yet."
        return "\n\n".join(["## Verified solving", note, body, *commands_block(commands)])

    def passes(self, cell: Cell, model: str | None = None) -> list[str]:
        """pass@1 and pass@10 of the same regime, where they were measured; of another recipe by its name."""
        asked = replace(cell.column, score="validity"), replace(cell.column, score="pass_at_k", passes=TRIES)
        one, ten = (self.store.seeds(replace(cell, column=column), model).get(0) for column in asked)
        return [
            "-" if one is None else f"{share(one['validity'])}, n = {one['count']}",
            "-" if ten is None else f"{share(ten['pass_at_k'])}, n = {ten['count']}",
        ]

    def table15(self) -> str:
        reports = self.store.reports(COVERAGE)
        rows, commands = [], []
        for key, paper in TABLE15.items():
            rule, model = key
            outside = QUEENS_BOARDS - QUEENS_TRAINING
            theirs = [paper.inside / QUEENS_TRAINING, paper.outside / outside]
            total = (paper.inside + paper.outside) / QUEENS_BOARDS
            printed = f"{100 * total:.1f} ({100 * theirs[0]:.1f} / {100 * theirs[1]:.1f})"
            ours = largest(r for r in reports if (r["rule"], r["model"]) == key)
            if ours is None:
                rows.append([RULE_NAMES[rule], model, self.absent(model), "", "", "", "", "", "", printed, ""])
                continue
            commands.append(ours["command"])
            spans = [_percent(ours["coverage"][part]) for part in ("total", "inside", "outside")]
            counts = f"{ours['distinct']['inside']:,} / {ours['distinct']['outside']:,}"
            short = ours["coverage"]["total"]["value"] - total
            spans[0] = f"**{spans[0]}**" if short < -MARGIN and not self.quick else spans[0]
            difference = signed(100 * short, 1)
            even = f"{100 * ours['if_uniform']:.1f}"
            steps = self.store.trained_steps(ours)
            known = f"{steps:,}" if steps else "?"
            samples = f"{ours['samples']:,}"
            rows.append([RULE_NAMES[rule], model, *spans, even, counts, samples, known, printed, difference])
        head = ["sampler", "model", "total %", "in training %", "outside %", "total % if uniform", "distinct in / out"]
        head += ["samples", "steps", "paper", "difference"]
        note = (
            f"Distinct valid boards among unconditional samples, as shares of all {QUEENS_BOARDS:,} boards of 14 "
            f"queens, of the {QUEENS_TRAINING:,} training boards and of the rest. 'If uniform' is what as many valid, "
            "exactly uniform samples would reach. Seed 0."
        )
        note = " ".join([note, *remark(self.store, "table15")])
        parts = ["## Table 15: coverage of the 14-queens boards", note, as_table(head, rows)]
        return "\n\n".join([*parts, *commands_block(commands)])

    def solutions(self) -> str:
        rows, commands = [], []
        for model in ("sudoku-baseline", "sudoku"):
            ours = largest(r for r in self.store.reports(SOLUTIONS) if r["model"] == model)
            if ours is None:
                rows.append([model, "not measured yet", "", "", "", "", "", f"{O3_FOUND} of {O3_TOTAL}"])
                continue
            commands.append(ours["command"])
            found = f"{ours['found']} of {ours['solutions']}: {share(ours['share_found'])}"
            uneven = f"{ours['uneven']:.3f} ({ours['uneven_if_uniform']:.3f})"
            size = f"{ours['puzzles']} x {ours['draws']}"
            even = f"{ours['found_if_uniform']:.1f}"
            theirs = f"{O3_FOUND} of {O3_TOTAL}: {O3_FOUND / O3_TOTAL:.3f}"
            steps = steps_text(self.store, ours)
            rows.append([model, found, even, uneven, share(ours["validity"]), size, steps, theirs])
        head = ["model", "solutions found", "found if uniform", "unevenness (if uniform)", "valid draws"]
        head += ["puzzles x draws", "steps", "paper"]
        note = (
            "Puzzles of 32 to 38 random clues with 2 to 12 solutions, all listed by search; Tweedie reprojection draws "
            "each puzzle many times. Unevenness is the total variation between the draws' shares of the solutions and "
            "equal shares, averaged over puzzles; exactly uniform draws would show the number in brackets. The paper's "
            "puzzles are others."
        )
        parts = ["## App. O.3: several solutions of one puzzle", note, as_table(head, rows)]
        return "\n\n".join([*parts, *commands_block(commands)])


def _above(upper: Result | None, lower: Result | None) -> str:
    if upper is None or lower is None:
        return "-"
    apart = upper.value - lower.value
    verdict = "about equal" if abs(apart) < EQUAL else "yes" if apart > 0 else "**no**"
    other = "" if abs(apart) < EQUAL else _other_way(upper, lower, apart)
    return f"{verdict}: {lower.value:.3f} -> {upper.value:.3f}{other}"


def _other_way(upper: Result, lower: Result, apart: float) -> str:
    """The training seeds for which the opposite holds."""
    pairs = {seed: (lower.of(seed), upper.of(seed)) for seed in lower.reports if seed in upper.reports}
    turned = {seed: (a, b) for seed, (a, b) in pairs.items() if abs(b - a) >= EQUAL and (b - a) * apart < 0}
    return "".join(f", but seed {seed}: {a:.3f} -> {b:.3f}" for seed, (a, b) in turned.items())


def _solved(report: Report) -> list[str]:
    rate = report.get("share") or Rate(report["solved"], report["puzzles"]).as_dict()
    return [share(rate), str(report["puzzles"]), f"{report['mean_calls']:.0f}", str(report["steps"])]


def _percent(score: dict[str, Any]) -> str:
    return share({key: 100 * score[key] for key in ("value", "low", "high")}, 1)


def _settings(found: Result | None) -> str:
    """` (7, 0.7)`: what a rule was tuned to; of seeds that differ, one after another."""
    reports = found.reports.values() if found else ()
    texts = [", ".join(f"{value:g}" for value in r["settings"].values()) for r in reports]
    known = dict.fromkeys(texts) if len(set(texts)) == 1 else texts
    return f" ({' / '.join(known)})" if any(texts) else ""
