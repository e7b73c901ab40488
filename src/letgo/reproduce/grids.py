"""Tables of the grid kind: a row per cell, ours beside the paper's, misses with their reasons."""

from __future__ import annotations

from letgo.reproduce.compare import Result, data_text, steps_span
from letgo.reproduce.paper import OBJECTIVES, RULES, TABLE1, Cell, Table
from letgo.reproduce.results import RULE_NAMES, Results, as_table, share, signed


def show_grid(results: Results, table: Table) -> str:
    """All cells with intervals; columns without a report are named once."""
    parts = ["\n\n".join(results.notes(table.name))]
    columns = [c for c in table.columns if any(found for cell in _cells(table, c) for _, found in results.all_of(cell))]
    for column in (column for column in columns if column.file):
        every = [results.result(cell) for cell in _cells(table, column)]
        texts = {data_text(report) for found in every if found for report in found.reports.values()}
        parts.append(f"{column.title}: {column.steps} sampling steps; {'; '.join(sorted(texts))}.")
    cells = [cell for column in columns for cell in _cells(table, column)]
    if cells:
        parts += [show_rows(results, cells), *show_misses(results, cells)]
    if empty := [column.title for column in table.columns if column not in columns]:
        parts.append(f"No report yet: {'; '.join(empty)}.")
    return "\n\n".join(part for part in parts if part)


def _cells(table: Table, column: object) -> list[Cell]:
    return [cell for cell in table.cells() if cell.column == column]


def show_rows(results: Results, cells: list[Cell]) -> str:
    rows, several = [], len(cells[0].table.columns) > 1
    for cell, name, found in ((one, name, found) for one in cells for name, found in results.all_of(one)):
        ours, theirs = cell.table.digits
        paper = f"{cell.paper.value:.{theirs}f}"
        paper += "" if cell.paper.std is None else f" ± {cell.paper.std:.{theirs}f}"
        lead = [*([cell.column.title] if several else []), name, RULE_NAMES[cell.rule] + _settings(found)]
        if found is None:
            rows.append([*lead, results.absent(cell.model), "", "", "", paper, ""])
            continue
        own = share(found.score, ours)
        own = f"**{own}**" if name == cell.objective and results.miss(found) else own
        seeds = ", ".join(map(str, found.reports)) + ("" if found.std is None else f" (± {found.std:.{ours}f})")
        difference = signed(found.value - cell.paper.value, ours)
        rows.append([*lead, own, str(found.n), seeds, steps_span(found.all_steps), paper, difference])
    head = ["training", "sampler", "ours, 95% interval", "n", "seeds", "steps", "paper", "difference"]
    return as_table([*(["column"] if several else []), *head], rows)


def show_misses(results: Results, cells: list[Cell]) -> list[str]:
    """One line for each reason, with the cells that it explains."""
    reasons: dict[str, list[str]] = {}
    for cell in cells:
        if short := results.miss(results.result(cell)):
            name = f"**{cell.column.title}, {cell.objective}, {RULE_NAMES[cell.rule]}** ({short.against})"
            reasons.setdefault(short.why, []).append(name)
    return ["\n".join(f"- {', '.join(names)}: {why}" for why, names in reasons.items())] if reasons else []


def show_brief(results: Results) -> str:
    """Table 1 without intervals, and below it the other recipes."""
    parts = []
    for objective in OBJECTIVES:
        rows = [[c.title, *(_brief(results, Cell(TABLE1, c, r, objective)) for r in RULES)] for c in TABLE1.columns]
        parts.append(as_table([objective.capitalize(), *(RULE_NAMES[r] for r in RULES)], rows))
    others: dict[tuple[str, str], dict[str, str]] = {}
    for cell in TABLE1.cells():
        for name, found in results.variants(cell):
            entry = f"{found.value:.3f} ({cell.paper.value:.2f})"
            others.setdefault((cell.column.title, name), {})[cell.rule] = entry
    lines = [[title, f"`{name}`", *(row.get(r, "-") for r in RULES)] for (title, name), row in others.items()]
    if lines:
        parts.append(as_table(["Other recipes", "model", *(RULE_NAMES[r] for r in RULES)], lines))
    return "\n\n".join(parts)


def _brief(results: Results, cell: Cell) -> str:
    found = results.result(cell)
    own = "-" if found is None else f"{found.value:.3f}"
    return f"{f'**{own}**' if results.miss(found) else own} ({cell.paper.value:.2f})"


def _settings(found: Result | None) -> str:
    """` (7, 0.7)`: what a rule was tuned to; of seeds that differ, one after another."""
    reports = found.reports.values() if found else ()
    texts = [", ".join(f"{value:g}" for value in r["settings"].values()) for r in reports]
    known = dict.fromkeys(texts) if len(set(texts)) == 1 else texts
    return f" ({' / '.join(known)})" if any(texts) else ""
