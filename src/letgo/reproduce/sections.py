"""The sections of all experiments: a table of cells, or one of their own kind."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from letgo.metrics import Rate
from letgo.presets import PRESETS
from letgo.reproduce import paper
from letgo.reproduce.paper import TABLE1, TABLE7, TABLES, TRIES, Cell, Table
from letgo.reproduce.results import (
    MARGIN,
    RULE_NAMES,
    Result,
    Results,
    as_table,
    data_text,
    share,
    signed,
    steps_span,
    together,
)
from letgo.reproduce.store import Report, Store, fits, sampler, size, split_seed
from letgo.tune import together as tuned_together

# Where verified solving is measured: one column per task, both sizes of graphs.
SOLVED = ("sudoku-21", "extreme-pass1", "queens-random", "latin-random", "connectivity-12", "connectivity-18")
LIKE = ("count", "seed", "steps", "regime", "folds")  # tuned on the same instances in the same way
Seeds = dict[int, Report]  # one rule's reports by training seed


def show_grid(results: Results, table: Table) -> str:
    """All cells with intervals; columns without a report are named once."""
    every = {column.title: [c for c in table.cells() if c.column == column] for column in table.columns}
    columns = {
        title: cells
        for title, cells in every.items()
        if any(results.result(one) for cell in cells for one in cell.with_others())
    }
    parts = results.notes(table.name)
    for title, cells in columns.items():
        reports = [r for cell in cells if (found := results.result(cell)) for r in found.reports.values()]
        if cells[0].column.file and reports:
            texts = sorted(set(map(data_text, reports)))
            parts.append(f"{title}: {cells[0].column.steps} sampling steps; {'; '.join(texts)}.")
    if shown := [cell for cells in columns.values() for cell in cells]:
        parts += [show_rows(results, shown), *show_misses(results, shown)]
    if empty := [title for title in every if title not in columns]:
        parts.append(f"No report yet: {'; '.join(empty)}.")
    return "\n\n".join(parts)


def show_rows(results: Results, cells: list[Cell]) -> str:
    """A row for each cell, and after the paper's recipe those of others that were measured."""
    rows, several = [], len(cells[0].table.columns) > 1
    for cell in (one for main in cells for one in main.with_others()):
        found, (ours, theirs) = results.result(cell), cell.table.digits
        paper = f"{cell.paper.value:.{theirs}f}" + ("" if cell.paper.std is None else f" ± {cell.paper.std:.{theirs}f}")
        name = cell.model if cell.recipe else cell.objective
        lead = [*([cell.column.title] if several else []), name, RULE_NAMES[cell.rule] + _settings(found)]
        if found is not None:
            own = share(found.score, ours)
            seeds = ", ".join(map(str, found.reports)) + ("" if found.std is None else f" (± {found.std:.{ours}f})")
            row = [f"**{own}**" if results.miss(found) else own, str(found.n), seeds, steps_span(found.all_steps)]
            rows.append([*lead, *row, paper, signed(found.value - cell.paper.value, ours)])
        elif not cell.recipe:
            rows.append([*lead, "not measured yet", "", "", "", paper, ""])
    head = ["training", "sampler", "ours, 95% interval", "n", "seeds", "steps", "paper", "difference"]
    return as_table([*(["column"] if several else []), *head], rows)


def _settings(found: Result | None) -> str:
    """` (7, 0.7)`: what a rule was tuned to; of seeds that differ, one after another."""
    reports = found.reports.values() if found else ()
    texts = [", ".join(f"{value:g}" for value in r["settings"].values()) for r in reports]
    return f" ({' / '.join(texts[:1] if len(set(texts)) == 1 else texts)})" if any(texts) else ""


def show_misses(results: Results, cells: list[Cell]) -> list[str]:
    """One line for each reason, with the cells that it explains."""
    reasons: dict[str, list[str]] = {}
    for cell in cells:
        if short := results.miss(results.result(cell)):
            against, why = short
            name = f"**{cell.column.title}, {cell.objective}, {RULE_NAMES[cell.rule]}** ({against})"
            reasons.setdefault(why, []).append(name)
    return ["\n".join(f"- {', '.join(names)}: {why}" for why, names in reasons.items())] if reasons else []


def section(results: Results, name: str, head: list[str], rows: list[list[str]]) -> str:
    """What was written about it, and its table."""
    return "\n\n".join([*results.notes(name), as_table(head, rows) if rows else "Not measured yet."])


def largest(results: Results, file: str, **key: str) -> Report | None:
    """Of the reports with these entries the one on the most instances."""
    fitting = [r for r in results.store.reports(file) if all(r.get(name) == value for name, value in key.items())]
    return results.use(max(fitting, key=size)) if fitting else None


def steps_of(report: Report) -> str:
    return steps_span([report.get("training_steps") or 0])


def solved_cells(table: Table) -> list[Cell]:
    """The cells that verified solving stands beside, other recipes included."""
    cells = [cell for cell in table.cells() if cell.rule == "tweedie" and cell.column.key in (*SOLVED, "maze-valid")]
    return [one for cell in cells for one in cell.with_others()]


def show_solve(results: Results) -> str:
    """Verified solving, with pass@1 and pass@10 of the same regime where they were measured."""
    rows = []
    for cell in (*solved_cells(TABLE1), *solved_cells(TABLE7)):
        best = largest(results, "solve", model=cell.model, regime=cell.column.regime)
        if best is None:
            continue
        texts = [share(Rate(best["solved"], best["puzzles"]).as_dict()), str(best["puzzles"])]
        texts += [f"{best['mean_calls']:.0f}", str(best["steps"])]
        for score, passes in (("validity", 1), ("pass_at_k", TRIES)):
            column = replace(cell.column, score=score, passes=passes)
            r = results.store.seeds(replace(cell, column=column)).get(0)
            texts.append("-" if r is None else f"{share(results.use(r)[score])}, n = {r['count']}")
        rows.append([cell.model, cell.column.regime, *texts, steps_of(best)])
    head = ["model", "regime", "solved", "n", "calls", "a full try", "pass@1", "pass@10", "steps"]
    return section(results, "solve", head, rows)


def show_tuning(results: Results) -> str:
    """What tuning chose for each model, beside the paper's choice."""
    rows = []
    for model, (sigma, tau_start, validity) in paper.TABLE5.items():
        theirs = f"({sigma:g}, {tau_start:g}) {validity:.3f}"
        reports = [r for r in results.store.reports("tune") if r["rule"] == "em-decay"]
        tables = _alike({seed: r for r in reports for name, seed in [split_seed(r["model"])] if name == model})
        if not tables:
            rows.append([model, "not tuned yet", "", "", "", "", theirs, ""])
            continue
        whole = tuned_together([results.use(table) for table in tables.values()])
        best, n = whole["best"], whole["count"]
        text = share(Rate(round(best["validity"] * n), n).as_dict() | {"value": best["validity"]})
        text = f"**{text}**" if best["validity"] - validity < -MARGIN and not results.quick else text
        tried = {key: {row[key] for row in whole["grid"]} for key in ("sigma", "tau_start")}
        edges = [k for k, values in tried.items() if len(values) > 1 and best[k] in (min(values), max(values))]
        setting = f"({best['sigma']:g}, {best['tau_start']:g})" + (f", edge: {' and '.join(edges)}" if edges else "")
        steps = steps_span([table["training_steps"] for table in tables.values()])
        seeds, difference = ", ".join(map(str, tables)), signed(best["validity"] - validity, 3)
        rows.append([model, setting, text, str(n), seeds, steps, theirs, difference])
    head = ["model", "(sigma, tau_start)", "validity, 95% interval", "n", "seeds", "steps", "paper", "difference"]
    return section(results, "table5", head, rows)


def _alike(tables: Seeds) -> Seeds:
    """Of several seeds those that were tuned like the first, setting by setting on the same instances."""

    def tried(table: Report) -> tuple[Any, ...]:
        return tuple(table.get(k) for k in LIKE), [(row["sigma"], row["tau_start"]) for row in table["grid"]]

    return {seed: table for seed, table in sorted(tables.items()) if tried(table) == tried(tables[min(tables)])}


def show_coverage(results: Results) -> str:
    rows = []
    for (rule, model), (inside, outside) in paper.TABLE15.items():
        total = (inside + outside) / paper.QUEENS_BOARDS
        parts = inside / paper.QUEENS_TRAINING, outside / (paper.QUEENS_BOARDS - paper.QUEENS_TRAINING)
        printed = f"{100 * total:.1f} ({100 * parts[0]:.1f} / {100 * parts[1]:.1f})"
        ours = largest(results, "coverage", rule=rule, model=model)
        if ours is None:
            rows.append([RULE_NAMES[rule], model, "not measured yet", *[""] * 6, printed, ""])
            continue
        scores = [ours["coverage"][part] for part in ("total", "inside", "outside")]
        spans = [share({key: 100 * score[key] for key in ("value", "low", "high")}, 1) for score in scores]
        short = scores[0]["value"] - total
        spans[0] = f"**{spans[0]}**" if short < -MARGIN and not results.quick else spans[0]
        counts = f"{ours['distinct']['inside']:,} / {ours['distinct']['outside']:,}"
        row = [*spans, f"{100 * ours['if_uniform']:.1f}", counts, f"{ours['samples']:,}", steps_of(ours)]
        rows.append([RULE_NAMES[rule], model, *row, printed, signed(100 * short, 1)])
    head = ["sampler", "model", "total %", "in training %", "outside %", "total % if uniform", "distinct in / out"]
    return section(results, "table15", [*head, "samples", "steps", "paper", "difference"], rows)


def show_solutions(results: Results) -> str:
    rows, theirs = [], f"{paper.O3_FOUND} of {paper.O3_TOTAL}: {paper.O3_FOUND / paper.O3_TOTAL:.3f}"
    for model in ("sudoku-baseline", "sudoku"):
        if ours := largest(results, "solutions", model=model):
            solutions = f"{ours['found']} of {ours['solutions']}: {share(ours['share_found'])}"
            uneven = f"{ours['uneven']:.3f} ({ours['uneven_if_uniform']:.3f})"
            drawn = [share(ours["validity"]), f"{ours['puzzles']} x {ours['draws']}", steps_of(ours)]
            rows.append([model, solutions, f"{ours['found_if_uniform']:.1f}", uneven, *drawn, theirs])
    head = ["model", "solutions found", "found if uniform", "unevenness (if uniform)", "valid draws"]
    return section(results, "solutions", [*head, "puzzles x draws", "steps", "paper"], rows)


def place(name: str) -> tuple[int, tuple[str, int]]:
    """Presets in their order, the further seeds of each after it; anything else comes last."""
    order, (model, seed) = list(PRESETS), split_seed(name)
    return order.index(model) if model in order else len(order), (model, seed)


def by_rule(store: Store, score: str = "validity") -> dict[tuple[str, str, int], dict[str, Seeds]]:
    """Reports that have a score, by model, regime and sampling steps, then by rule and training seed: the largest."""
    groups: dict[tuple[str, str, int], dict[str, Seeds]] = {}
    for name in sorted(store.models(), key=place):
        model, seed = split_seed(name)
        for r in store.reports(name):
            if score in r and not sampler(r):
                seeds = groups.setdefault((model, r["regime"], r["steps"]), {}).setdefault(r["rule"], {})
                seeds[seed] = max(seeds.get(seed, r), r, key=size)
    return groups


def show_resample(results: Results) -> str:
    """`resample`, which no table of the paper has, beside the two rules that let go."""
    rows = []
    for (model, regime, steps), rules in by_rule(results.store).items():
        ours = {seed: results.use(r) for seed, r in rules.get("resample", {}).items()}
        k = max((r["pass_at_k"]["k"] for r in ours.values()), default=0)
        scores = {regime: "validity", f"{regime}, pass@{k}": "pass_at_k"} if k > 1 else {regime: "validity"}
        for where, score in scores.items() if ours else ():
            mine = {s: r for s, r in ours.items() if score == "validity" or r["pass_at_k"]["k"] == k}
            cells = [_beside(rules.get(rule, {}), mine, score) for rule in ("resample", "tweedie", "em-decay")]
            n = together(list(mine.values()), score)["n"]
            rows.append([model, where, str(steps), ", ".join(map(str, mine)), str(n), *cells])
    head = ["model", "regime", "sampling steps", "seeds", "n", "resample", "Tweedie", "EM decay"]
    return section(results, "resample", head, rows)


def _beside(theirs: Seeds, ours: Seeds, score: str) -> str:
    """A rate of another rule, pooled over the seeds that both have; with its own n where that differs."""
    both = [seed for seed in ours if seed in theirs and theirs[seed][score].get("k") == ours[seed][score].get("k")]
    if not both:
        return "-"
    rate = together([theirs[seed] for seed in both], score)
    values = [theirs[seed][score]["value"] for seed in both]
    text = share(rate) + (f" ± {statistics.stdev(values):.3f}" if len(both) > 1 else "")
    same = (len(both), rate["n"]) == (len(ours), together(list(ours.values()), score)["n"])
    return text if same else f"{text} (seed {', '.join(map(str, both))}; n = {rate['n']})"


def show_choice(results: Results) -> str:
    """Of k tries the one with the highest self-likelihood, between pass@1 and pass@k."""
    rows = []
    for (model, regime, steps), rules in by_rule(results.store, "chosen_at_k").items():
        for r in (r for seeds in rules.values() for r in seeds.values()):
            if r["pass_at_k"]["value"]:  # else there is no valid board to choose
                scores = [share(r[score]) for score in ("validity", "chosen_at_k", "pass_at_k")]
                counts = [str(steps), str(r["chosen_at_k"]["k"]), str(r["count"]), str(r["seed"])]
                rows.append([model, regime, results.use(r)["rule"], *counts, *scores])
    head = ["model", "regime", "rule", "sampling steps", "k", "n", "seed", "pass@1", "chosen of k", "pass@k"]
    return section(results, "choice", head, rows)


def show_entries(results: Results) -> str:
    """Whole matrices are the paper's measure of graphs; IRED counts entries. 'All joined' is the floor of both."""
    rows = []
    for cell in TABLE1.cells():
        found = results.result(cell)
        report = next(iter(found.reports.values())) if found else {}
        if "all_joined" in report:
            scores = [share(report[s]) for s in ("element_accuracy", "balanced_accuracy", "all_joined")]
            rows.append([cell.column.title, cell.objective, RULE_NAMES[cell.rule], *scores, str(report["count"])])
    head = ["graphs", "training", "sampler", "entries right", "balanced accuracy", "answering 'all joined'", "n"]
    return section(results, "entries", head, rows)


def show_others(results: Results) -> str:
    """What other recipes and the 4x4 model were measured on beside the tables' cells."""
    every = [one for table in TABLES.values() for cell in table.cells() for one in cell.with_others()]
    models, rows = {cell.model for cell in every if not cell.recipe}, []
    for name in results.store.models():
        model, _ = split_seed(name)
        cells = [cell for cell in every if cell.model == model]
        for r in results.store.reports(name) if model not in models else ():
            if not any(fits(r, cell) for cell in cells):
                rule = " ".join([results.use(r)["rule"], *(f"{k}={v:g}" for k, v in r["settings"].items())])
                counts = [str(r["validity"]["n"]), str(r["seed"]), str(r["steps"]), steps_of(r)]
                rows.append([name, r["regime"], rule, share(r["validity"]), *counts])
    head = ["model", "regime", "rule", "valid, 95% interval", "n", "seed", "sampling steps", "steps"]
    return section(results, "others", head, rows)


def show_training(results: Results) -> str:
    runs = results.store.read("training") or {}
    rows = []
    for name in sorted((name for name in runs if name != "note"), key=place):
        run = runs[name]
        minutes = f"{run['seconds'] / 60:.0f}" if "seconds" in run else "?"
        steps = f"{run['steps']:,}" if "steps" in run else "?"
        rows.append([name, steps, run.get("rate", "?"), minutes, run.get("device", "?"), run.get("note", "")])
    return section(results, "training", ["run", "steps", "rate", "minutes", "device", "note"], rows)
