"""Every table and figure of the paper, and what we add: one entry of one list.

A new one is an Experiment: `needs` are the reports that must be there, `show` makes its section out of them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from letgo.estimates import rate
from letgo.models import LOOPED
from letgo.presets import PRESETS
from letgo.reproduce import paper, pictures
from letgo.reproduce.measure import Need, Session, collect_tuning, measure_all
from letgo.reproduce.own_runs import FIG9, FIG10
from letgo.reproduce.paper import TABLE1, TABLE1_D3PM, TABLE7, TABLES, TRIES, Cell, Table
from letgo.reproduce.pictures import Picture, analyze_missing, show_pictures, show_work
from letgo.reproduce.plots import LossCurve, Plot
from letgo.reproduce.results import MARGIN, RULE_NAMES, Result, Results, as_table, share, signed, steps_span, together
from letgo.reproduce.store import Report, Store, fits, sampler, size, split_seed, temperature
from letgo.samplers import BAND
from letgo.tune import together as tuned_together

Seeds = dict[int, Report]  # one rule's reports by training seed


@dataclass(frozen=True)
class Experiment:
    """An Experiment is a table or a figure: the reports that it needs, and how it is shown."""

    name: str
    title: str
    show: Callable[[Results], str]
    needs: tuple[Need, ...] = ()
    plot: Plot | LossCurve | None = None
    pictures: tuple[Picture, ...] = ()


def figure(name: str, title: str, *pictures: Picture) -> Experiment:
    """Return a figure of the paper, or a table that an analysis measures."""
    return Experiment(name, title, partial(show_pictures, name=name, pictures=pictures), pictures=pictures)


def section(results: Results, name: str, head: list[str], rows: list[list[str]]) -> str:
    """Return what was written about an experiment, and its table."""
    return "\n\n".join([*results.notes(name), as_table(head, rows) if rows else "Not measured yet."])


def largest(results: Results, file: str, **key: str) -> Report | None:
    """Return the report on the most instances among those with these entries."""
    fitting = [r for r in results.store.reports(file) if all(r.get(name) == value for name, value in key.items())]
    return results.use(max(fitting, key=size)) if fitting else None


def steps_of(report: Report) -> str:
    return steps_span([report.get("training_steps") or 0])


# Tables of the paper with rules as rows


def grid(name: str, plot: Plot | None = None) -> Experiment:
    """Return a table of the paper; verified solving stands beside some of its cells."""
    table = TABLES[name]
    needs = [Need.of(one) for cell in table.cells() for one in cell.with_others()]
    label = table.label or f"Table {name.removeprefix('table')}"
    return Experiment(
        name, f"{label}: {table.title}", partial(show_grid, table=table), (*needs, *SOLVED.get(name, ())), plot
    )


def show_grid(results: Results, table: Table) -> str:
    """Return all cells with intervals; columns without a report are named once."""
    every = {column.title: [c for c in table.cells() if c.column == column] for column in table.columns}
    columns = {
        title: cells
        for title, cells in every.items()
        if any(results.result(one) for cell in cells for one in cell.with_others())
    }
    parts = results.notes(table.name)
    if shown := [cell for cells in columns.values() for cell in cells]:
        parts += [show_rows(results, shown), *show_misses(results, shown)]
    if empty := [title for title in every if title not in columns]:
        parts.append(f"No report yet: {'; '.join(empty)}.")
    return "\n\n".join(parts)


def show_rows(results: Results, cells: list[Cell]) -> str:
    """Return a row for each cell, and after the paper's recipe those of others that were measured."""
    rows, several = [], len(cells[0].table.columns) > 1
    for cell in (one for main in cells for one in main.with_others()):
        found, (ours, theirs) = results.result(cell), cell.table.digits
        paper = f"{cell.paper.value:.{theirs}f}" + ("" if cell.paper.std is None else f" ± {cell.paper.std:.{theirs}f}")
        name = cell.model if cell.recipe else cell.objective
        lead = [*([cell.column.title] if several else []), name, RULE_NAMES[cell.rule] + _settings(found)]
        if found is not None:
            own = share(found.as_dict(), ours)
            seeds = ", ".join(map(str, found.reports)) + ("" if found.std is None else f" (± {found.std:.{ours}f})")
            row = [f"**{own}**" if results.miss(found) else own, str(found.n), seeds, steps_span(found.all_steps)]
            rows.append([*lead, *row, paper, signed(found.value - cell.paper.value, ours)])
        elif not cell.recipe:
            rows.append([*lead, "not measured yet", "", "", "", paper, ""])
    head = ["training", "sampler", "ours, 95% interval", "n", "seeds", "steps", "paper", "difference"]
    return as_table([*(["column"] if several else []), *head], rows)


def _settings(found: Result | None) -> str:
    """Return what a rule was tuned to, as ` (7, 0.7)`; of seeds that differ, one after another."""
    reports = found.reports.values() if found else ()
    texts = [
        ", ".join(
            f"{name} {value:g}" if name == "temperature" else f"{value:g}" for name, value in r["settings"].items()
        )
        for r in reports
    ]
    return f" ({' / '.join(texts[:1] if len(set(texts)) == 1 else texts)})" if any(texts) else ""


def show_misses(results: Results, cells: list[Cell]) -> list[str]:
    """Return one line for each reason, with the cells that it explains."""
    reasons: dict[str, list[str]] = {}
    for cell in cells:
        if short := results.miss(results.result(cell)):
            against, why = short
            name = f"**{cell.column.title}, {cell.objective}, {RULE_NAMES[cell.rule]}** ({against})"
            reasons.setdefault(why, []).append(name)
    return ["\n".join(f"- {', '.join(names)}: {why}" for why, names in reasons.items())] if reasons else []


# Masked diffusion, the block D3PM of Table 1


def show_d3pm(results: Results) -> str:
    """Return the paper's three decoders; how to measure what is missing; and what else was measured of such models."""
    cells, missing = list(TABLE1_D3PM.cells()), {}
    parts = [*results.notes(TABLE1_D3PM.name), show_rows(results, cells), *show_misses(results, cells)]
    for cell in cells:
        if results.result(cell) is None:
            missing.setdefault(cell.column.model, cell.column.task)
    if missing:
        lines = [line for model, task in missing.items() for line in _d3pm_commands(model, task)]
        parts.append("Not all is measured. What gives the rest:\n\n```\n" + "\n".join(lines) + "\n```")
    rows = []
    for name in sorted(filter(is_masked, results.store.models()), key=place):
        for r in beside_cells(results, name, cells):
            often, k = r["pass_at_k"], r["pass_at_k"]["k"]
            scores = [share(r["validity"]), f"{share(often)}, k = {k}" if k > 1 else "-"]
            rows.append([name, r["regime"], rule_of(r), *scores, str(r["count"]), str(r["steps"]), steps_of(r)])
    head = ["model", "regime", "decoder", "valid, 95% interval", "pass@k", "n", "sampling steps", "steps"]
    return "\n\n".join([*parts, *(["Beside the paper's rows:", as_table(head, rows)] if rows else [])])


def _d3pm_commands(model: str, task: str) -> list[str]:
    """Return what trains a model of masked diffusion and measures its cells, ours beside the paper's decoders."""
    data = f" --data {task}" if any(c.file for c in TABLE1_D3PM.columns if c.model == model) else ""
    measured = f" --data {task}={task}" if data else ""
    return [
        f"letgo train {model} --out runs/{model}{data}",
        f"letgo reproduce table1-d3pm --models runs --tasks {task} --seeds 0{measured}",
    ]


def beside_cells(results: Results, name: str, cells: list[Cell]) -> list[Report]:
    """Return the reports of a model that no cell of it shows."""
    model, seed = split_seed(name)
    pairs = [(cell, results.store.seeds(cell).get(seed)) for cell in cells if cell.model == model]
    shown = [(cell, temperature(best)) for cell, best in pairs if best is not None]
    return [
        results.use(r)
        for r in results.store.reports(name)
        if not any(fits(r, cell) and temperature(r) == warmth for cell, warmth in shown)
    ]


def rule_of(report: Report) -> str:
    """Name the rule of a report with its settings: `em sigma=0.1`."""
    return " ".join([report["rule"], *(f"{name}={value:g}" for name, value in report["settings"].items())])


def is_masked(name: str) -> bool:
    config = PRESETS.get(split_seed(name)[0])
    return config is not None and config.codec == "masked"


# Verified solving: one column per task, both sizes of graphs

SOLVED_COLUMNS = ("sudoku-21", "extreme-pass1", "queens-random", "latin-random", "connectivity-12", "connectivity-18")


def solved_cells(table: Table) -> list[Cell]:
    """Return the cells that verified solving stands beside, other recipes included."""
    keys = (*SOLVED_COLUMNS, "maze-valid")
    cells = [cell for cell in table.cells() if cell.rule == "tweedie" and cell.column.key in keys]
    return [one for cell in cells for one in cell.with_others()]


def solved_needs(table: Table) -> tuple[Need, ...]:
    """Need verified solving, and pass@1 and pass@10 of Tweedie reprojection to stand beside it."""
    needs = [replace(Need.of(cell), passes=TRIES, first=True) for cell in solved_cells(table)]
    return (*needs, *(replace(need, passes=1, kind="solve") for need in needs))


def show_solve(results: Results) -> str:
    """Show verified solving, with pass@1 and pass@10 of the same regime where they were measured."""
    rows = []
    for cell in (*solved_cells(TABLE1), *solved_cells(TABLE7)):
        best = largest(results, "solve", model=cell.model, regime=cell.column.regime)
        if best is None:
            continue
        texts = [share(rate(best["solved"], best["puzzles"]).as_dict()), str(best["puzzles"])]
        texts += [f"{best['mean_calls']:.0f}", str(best["steps"])]
        for score, passes in (("validity", 1), ("pass_at_k", TRIES)):
            column = replace(cell.column, score=score, passes=passes)
            r = results.store.seeds(replace(cell, column=column)).get(0)
            texts.append("-" if r is None else f"{share(results.use(r)[score])}, n = {r['count']}")
        rows.append([cell.model, cell.column.regime, *texts, steps_of(best)])
    head = ["model", "regime", "solved", "n", "calls", "a full try", "pass@1", "pass@10", "steps"]
    return section(results, "solve", head, rows)


# Table 5, Table 15, App. O.3


def show_tuning(results: Results) -> str:
    """Return what tuning chose for each model, beside the paper's choice; seeds that were tuned alike are pooled."""
    rows = []
    for model, (sigma, tau_start, validity) in paper.TABLE5.items():
        theirs = f"({sigma:g}, {tau_start:g}) {validity:.3f}"
        reports = [r for r in results.store.reports("tune") if r["rule"] == "em-decay"]
        known = {seed: r for r in reports for name, seed in [split_seed(r["model"])] if name == model}
        if not known:
            rows.append([model, "not tuned yet", "", "", "", "", theirs, ""])
            continue
        alike = _tried(known[min(known)])
        tables = {seed: results.use(r) for seed, r in sorted(known.items()) if _tried(r) == alike}
        whole = tuned_together([*tables.values()])
        best, n = whole["best"], whole["count"]
        text = share(rate(round(best["validity"] * n), n).as_dict() | {"value": best["validity"]})
        text = f"**{text}**" if best["validity"] - validity < -MARGIN and not results.quick else text
        tried = {key: {row[key] for row in whole["grid"]} for key in ("sigma", "tau_start")}
        edges = [k for k, values in tried.items() if len(values) > 1 and best[k] in (min(values), max(values))]
        setting = f"({best['sigma']:g}, {best['tau_start']:g})" + (f", edge: {' and '.join(edges)}" if edges else "")
        steps = steps_span([table["training_steps"] for table in tables.values()])
        seeds, difference = ", ".join(map(str, tables)), signed(best["validity"] - validity, 3)
        rows.append([model, setting, text, str(n), seeds, steps, theirs, difference])
    head = ["model", "(sigma, tau_start)", "validity, 95% interval", "n", "seeds", "steps", "paper", "difference"]
    return section(results, "table5", head, rows)


def _tried(table: Report) -> tuple[Any, ...]:
    """Say on which instances, and which settings."""
    same = tuple(table.get(key) for key in ("count", "seed", "steps", "regime", "folds"))
    return same, [(row["sigma"], row["tau_start"]) for row in table["grid"]]


def show_coverage(results: Results) -> str:
    rows = []
    for rule, model in (*paper.TABLE15, OUR_COVERAGE):
        printed, total = "", None
        if theirs := paper.TABLE15.get((rule, model)):
            total = sum(theirs) / paper.QUEENS_BOARDS
            sizes = paper.QUEENS_TRAINING, paper.QUEENS_BOARDS - paper.QUEENS_TRAINING
            inside, outside = (100 * count / size for count, size in zip(theirs, sizes, strict=True))
            printed = f"{100 * total:.1f} ({inside:.1f} / {outside:.1f})"
        ours = largest(results, "coverage", rule=rule, model=model)
        if ours is None:
            rows.append([RULE_NAMES.get(rule, rule), model, "not measured yet", *[""] * 6, printed, ""])
            continue
        name = RULE_NAMES.get(rule) or f"{rule}, times {between(ours['settings'])}"
        scores = [ours["coverage"][part] for part in ("total", "inside", "outside")]
        spans = [share({key: 100 * score[key] for key in ("value", "low", "high")}, 1) for score in scores]
        short = None if total is None else scores[0]["value"] - total
        if short is not None and short < -MARGIN and not results.quick:
            spans[0] = f"**{spans[0]}**"
        counts = f"{ours['distinct']['inside']:,} / {ours['distinct']['outside']:,}"
        row = [*spans, f"{100 * ours['if_uniform']:.1f}", counts, f"{ours['samples']:,}", steps_of(ours)]
        difference = "" if short is None else signed(100 * short, 1)
        rows.append([name, model, *row, printed, difference])
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


# What we add to the paper


def place(name: str) -> tuple[int, tuple[str, int]]:
    """Put presets in their order, the further seeds of each after it; anything else comes last."""
    order, (model, seed) = list(PRESETS), split_seed(name)
    return order.index(model) if model in order else len(order), (model, seed)


def by_rule(store: Store, score: str = "validity") -> dict[tuple[str, str, int], dict[str, Seeds]]:
    """Return the largest reports that have a score, by model, regime and steps, then by rule and training seed."""
    groups: dict[tuple[str, str, int], dict[str, Seeds]] = {}
    for name in sorted(store.models(), key=place):
        model, seed = split_seed(name)
        for r in store.reports(name):
            if score in r and not sampler(r):
                seeds = groups.setdefault((model, r["regime"], r["steps"]), {}).setdefault(r["rule"], {})
                seeds[seed] = max(seeds.get(seed, r), r, key=size)
    return groups


def show_resample(results: Results) -> str:
    """Show `resample`, which no table of the paper has, beside the two rules that let go."""
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
    """Return a rate of another rule, pooled over the seeds that both have; with its own n where that differs."""
    both = [seed for seed in ours if seed in theirs and theirs[seed][score].get("k") == ours[seed][score].get("k")]
    if not both:
        return "-"
    rate = together([theirs[seed] for seed in both], score)
    values = [theirs[seed][score]["value"] for seed in both]
    text = share(rate) + (f" ± {statistics.stdev(values):.3f}" if len(both) > 1 else "")
    same = (len(both), rate["n"]) == (len(ours), together(list(ours.values()), score)["n"])
    return text if same else f"{text} (seed {', '.join(map(str, both))}; n = {rate['n']})"


def between(settings: Report) -> str:
    """Return the times that proposals are noised to, as `0.5 to 0.2`."""
    return f"{settings.get('t_max', 1):g} to {settings.get('t_min', 0):g}"


def show_times(results: Results) -> str:
    """Show samplers between other times beside the same ones on the usual grid, and EM decay; then the pictures."""
    rows = []
    for name in sorted(results.store.models(), key=place):
        reports = [r for r in results.store.reports(name) if not {"sure", "sure_early"} & {*r.get("settings", {})}]
        for r in map(results.use, [r for r in reports if {*BAND} & {*r.get("settings", {})}]):
            rest = {key: value for key, value in r["settings"].items() if key not in BAND}
            alike = [o for o in reports if (o["regime"], o["steps"]) == (r["regime"], r["steps"])]
            usual = [o for o in alike if (o["rule"], o["settings"]) == (r["rule"], rest)]
            decay = [o for o in alike if o["rule"] == "em-decay" and not sampler(o)]
            beside = [share(results.use(max(some, key=size))["validity"]) if some else "-" for some in (usual, decay)]
            found = [share(r["validity"]), share(r["uniqueness"]), *beside]
            rows.append(
                [
                    name,
                    r["regime"],
                    r["rule"],
                    str(r["steps"]),
                    between(r["settings"]),
                    *found,
                    str(r["count"]),
                    str(r["seed"]),
                ]
            )
    head = ["model", "regime", "rule", "steps", "times", "valid", "of these different", "times 1 to 0", "EM decay", "n"]
    measured = section(results, "times", [*head, "seed"], rows)
    return "\n\n".join([measured, *_chosen_times(results), show_pictures(results, "", TIMES)])


def _chosen_times(results: Results) -> list[str]:
    """Show what `letgo tune` chose among other times, on validation instances."""
    rows = []
    for r in results.store.reports("tune"):
        if "t_max" in r["best"]:
            results.use(r)
            tried = {(row["t_max"], row["t_min"]): f"{row['validity']:.3f}" for row in r["grid"]}
            lead = [r["model"], r["regime"], r["rule"], str(r["steps"]), between(r["best"])]
            rows.append(
                [*lead, f"{r['best']['validity']:.3f}", tried.get((1.0, 0.0), "-"), str(len(tried)), str(r["count"])]
            )
    head = ["model", "regime", "rule", "steps", "times", "valid", "times 1 to 0", "settings tried", "n"]
    told = "Chosen on validation instances; the interval of the best of several leans high, so none is given:"
    return [told, as_table(head, rows)] if rows else []


def show_choice(results: Results) -> str:
    """Show the try of k with the highest self-likelihood, between pass@1 and pass@k."""
    rows = []
    for (model, regime, steps), rules in by_rule(results.store, "chosen_at_k").items():
        for r in (r for seeds in rules.values() for r in seeds.values()):
            if r["pass_at_k"]["value"]:  # else there is no valid board to choose
                scores = [share(r[score]) for score in ("validity", "chosen_at_k", "pass_at_k")]
                counts = [str(steps), str(r["chosen_at_k"]["k"]), str(r["count"]), str(r["seed"])]
                rows.append([model, regime, results.use(r)["rule"], *counts, *scores])
    head = ["model", "regime", "rule", "sampling steps", "k", "n", "seed", "pass@1", "chosen of k", "pass@k"]
    return section(results, "choice", head, rows)


def show_looped(results: Results) -> str:
    """Show looped denoisers: one sample, and trying again while the network doubts its board."""
    rows = []
    for name in sorted(filter(is_looped, results.store.models()), key=place):
        for r in map(results.use, results.store.reports(name)):
            calls, marks = r["calls_per_instance"], r["settings"]
            early, sure = marks.get("sure_early"), marks.get("sure_early", marks.get("sure"))
            when = "after each" if early is None else "on the way"
            tries = "1" if sure is None else f"up to {r['pass_at_k']['k']}, until above {sure:.2g} {when}"
            wrong = "-" if sure is None else f"{round(r['believed_wrong']['value'] * r['count'])} of {r['count']}"
            first = share(r["validity"] if sure is None else r["first_try"], 4)
            spent = f"{calls['value']:.0f}, {calls['median']:.0f}, {calls['p95']:.0f}"
            rule = f"{r['rule']}, t {between(marks)}" if {*BAND} & {*marks} else r["rule"]
            lead = [name, r["regime"], rule, str(r["steps"]), tries, first, share(r["validity"], 4), wrong]
            rows.append([*lead, spent, str(r["count"]), f"{r['device']}, {r['precision']}", steps_of(r)])
    head = ["model", "regime", "rule", "sampling steps", "tries", "first try right", "answer right", "believed, wrong"]
    head += ["calls (mean, median, 95%)", "n", "measured on", "steps"]
    return "\n\n".join([section(results, "looped", head, rows), *show_work(results, WORK)])


def is_looped(name: str) -> bool:
    config = PRESETS.get(split_seed(name)[0])
    return config is not None and config.network in LOOPED


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
    """Return what other recipes and the 4x4 model were measured on beside the tables' cells."""
    every = [one for table in TABLES.values() for cell in table.cells() for one in cell.with_others()]
    models, rows = {cell.model for cell in every if not cell.recipe}, []
    for name in results.store.models():
        if split_seed(name)[0] not in models and not is_looped(name) and not is_masked(name):
            for r in beside_cells(results, name, every):
                counts = [str(r["validity"]["n"]), str(r["seed"]), str(r["steps"]), steps_of(r)]
                rows.append([name, r["regime"], rule_of(r), share(r["validity"]), *counts])
    head = ["model", "regime", "rule", "valid, 95% interval", "n", "seed", "sampling steps", "steps"]
    return section(results, "others", head, rows)


def show_training(results: Results) -> str:
    runs, rows = results.store.read("training") or {}, []
    for name in sorted((name for name in runs if name != "note"), key=place):
        run = runs[name]
        minutes = f"{run['seconds'] / 60:.0f}" if "seconds" in run else "?"
        steps = f"{run['steps']:,}" if "steps" in run else "?"
        rows.append([name, steps, run.get("rate", "?"), minutes, run.get("device", "?"), run.get("note", "")])
    return section(results, "training", ["run", "steps", "rate", "minutes", "device", "note"], rows)


# The list

SOLVED = {table.name: solved_needs(table) for table in (TABLE1, TABLE7)}
TUNED = tuple(Need(model.removesuffix("-baseline"), model, "", "em-decay", 0, 1, kind="tune") for model in paper.TABLE5)
OUR_COVERAGE = ("resample", "queens")  # no row of the paper: between its tuned times
COVERED = tuple(
    Need("queens", model, "gen", rule, 200, paper.QUEENS_SAMPLES, kind="coverage", first=True)
    for rule, model in (*paper.TABLE15, OUR_COVERAGE)
)
SUDOKU = ("sudoku-baseline", "sudoku")
WORK = Picture("work", ("sudoku-extreme-looped", "sudoku-extreme"), file=True, quick=8, beside="extreme-pass1")
TIMES = (
    Picture("times", ("queens-baseline", "queens"), "gen"),
    Picture("times", ("latin-baseline", "latin"), "gen"),
    Picture("times", SUDOKU, "hard"),
    Picture("times", SUDOKU),
    Picture("times", ("sudoku-extreme-looped",), steps=100, file=True, count=300),
)
BY_CALLS = ("sudoku", "latin", "queens", "connectivity")
SEVERAL = tuple(
    Need("sudoku", model, "", "tweedie", 200, paper.O3_PUZZLES, paper.O3_DRAWS, kind="solutions", first=True)
    for model in SUDOKU
)
# A decoder of today's beside the paper's three, on the same columns
REMASKED = tuple(
    replace(Need.of(Cell(TABLE1_D3PM, column, "remdm", paper.D3PM)), first=True) for column in TABLE1_D3PM.columns
)
D3PM = grid("table1-d3pm")
EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        grid("table1", Plot(TABLE1, (3, 4))),
        replace(D3PM, show=show_d3pm, needs=(*D3PM.needs, *REMASKED)),
        Experiment("solve", "Verified solving", show_solve, (*SOLVED["table1"], *SOLVED["table7"])),
        Experiment("table5", "Table 5: EM decay's settings, as tuned", show_tuning, TUNED),
        grid("table7", Plot(TABLE7, (1, 5), "maze-muon")),
        *map(grid, ("table8", "table9", "table11", "table12", "table13", "table14")),
        Experiment("table15", "Table 15: coverage of the 14-queens boards", show_coverage, COVERED),
        Experiment("solutions", "App. O.3: several solutions of one puzzle", show_solutions, SEVERAL),
        figure("fig1", "Figure 1: self-correction, a board at its five stages", Picture("self-correction", SUDOKU)),
        figure("fig2", "Figures 2, 7 and 8: what DDPM's anchor does", Picture("mechanism", SUDOKU)),
        figure("fig4", "Figures 4 and 5: the toy of App. J", Picture("toy")),
        figure("fig6", "Figure 6: forward-noised solutions", Picture("forward-noise", SUDOKU[:1])),
        figure(
            "states",
            "App. K.5: E_+ on trained-on and on sampled states",
            Picture("states", SUDOKU[:1]),
            Picture("states", ("sudoku-extreme-baseline",), file=True),
        ),
        Experiment(
            "table16",
            "Table 16: commitment times, and how runs fail",
            partial(pictures.show_commitment, pictures=pictures.COMMITTED),
            pictures=pictures.COMMITTED,
        ),
        figure("fig3", "Figure 3: a maze on its way", Picture("trajectory", ("maze-muon-baseline",))),
        figure("fig11", "Figure 11: the variance of a step", Picture("variance", SUDOKU)),
        figure("fig12", "Figure 12: a Latin square on its way", Picture("trajectory", ("latin-baseline",), "gen")),
        figure("fig13", "Figure 13: queens on their way", Picture("trajectory", ("queens-baseline",), "gen")),
        figure("fig14", "Figure 14: a graph on its way", Picture("trajectory", ("connectivity-ired-baseline",))),
        figure("fig15", "Figure 15: a Sudoku on its way", Picture("trajectory", ("sudoku-baseline",))),
        figure(
            "fig16",
            "Figures 16 and 17: a Sudoku of handwritten digits on its way",
            Picture("trajectory", ("mnist-sudoku-baseline",)),
            Picture("trajectory", ("sudoku-digits-baseline",)),  # of 8x8 pixels, shipped
        ),
        figure("fig9", "Figure 9: the weight of the simple loss", Picture("curves", FIG9)),
        figure("fig10", "Figure 10: ways of training", Picture("curves", FIG10)),
        figure("table10", "Table 10: sampling steps", Picture("steps", SUDOKU)),
        figure("decay", "App. F.3: EM decay's sensitivity", Picture("decay", SUDOKU)),
        figure(
            "calls",
            "Beyond the paper: accuracy by network calls",
            *(Picture("calls", (f"{name}-baseline", name, f"{name}-d3pm")) for name in BY_CALLS),
            Picture("calls", tuple(f"sudoku-extreme{kind}" for kind in ("-baseline", "", "-d3pm")), file=True, quick=4),
            Picture("calls", ("maze-muon-baseline", "maze-muon"), count=200, quick=2),
        ),
        figure(
            "ahead",
            "Beyond the paper: telling the network the time ahead",
            Picture("ahead", ("queens-baseline", "queens"), "gen"),
            Picture("ahead", ("latin-baseline", "latin"), "gen"),
            Picture("ahead", SUDOKU, "hard"),
            Picture("ahead", SUDOKU),
        ),
        Experiment("times", "Beyond the paper: the times between noise and data", show_times, pictures=TIMES),
        figure(
            "gain",
            "Beyond the paper: whether a blurred proposal grows into a board",
            Picture("gain", ("queens-baseline", "queens"), "gen"),
            Picture("gain", ("latin-baseline", "latin"), "gen"),
        ),
        figure(
            "sources",
            "Beyond the paper: Sudoku-Extreme by the source of a puzzle",
            Picture("sources", ("sudoku-extreme-baseline", "sudoku-extreme"), file=True, split="test"),
        ),
        Experiment("entries", "Graphs, entry by entry", show_entries),
        Experiment("resample", "A rule of our own: resample", show_resample),
        Experiment("choice", "Choosing among tries without the rules", show_choice),
        Experiment(
            "looped",
            "Beyond the paper: a looped denoiser that doubts itself",
            show_looped,
            plot=LossCurve("sudoku-extreme-looped"),
            pictures=(WORK,),
        ),
        Experiment("others", "Measured beside the tables", show_others),
        Experiment("training", "How the models were trained", show_training),
    )
}


# Figures that are panels of another one's picture
ALSO = {"fig5": "fig4", "fig7": "fig2", "fig8": "fig2", "fig17": "fig16"}


def run_missing(session: Session, names: list[str]) -> None:
    """Measure what these experiments lack, all together, for they share reports."""
    needs: list[Need] = []
    pictures = dict.fromkeys(p for name in names if name in EXPERIMENTS for p in EXPERIMENTS[name].pictures)
    for experiment in (EXPERIMENTS[name] for name in names if name in EXPERIMENTS):
        needs += experiment.needs
        if experiment.needs and session.tasks and not any(need.task in session.tasks for need in experiment.needs):
            tasks = dict.fromkeys(need.task for need in experiment.needs)
            session.leave_out(experiment.name, f"it has {', '.join(tasks)} alone")
    if session.quick and "solve" not in names and any(need.kind == "solve" for need in needs):
        session.leave_out("verified solving", "a quick run has it by its name alone: `letgo reproduce solve --quick`")
        needs = [need for need in needs if need.kind != "solve"]
    measure_all(session, [need for need in needs if need.kind != "tune"])
    collect_tuning(session, [need for need in needs if need.kind == "tune"])
    analyze_missing(session, list(pictures))
