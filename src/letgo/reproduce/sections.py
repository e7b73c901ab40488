"""Sections that are no grids: solving, tuning, coverage, rules of our own, other models, training."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any

from letgo.metrics import Rate
from letgo.presets import PRESETS
from letgo.reproduce import paper
from letgo.reproduce.compare import MARGIN, result, same_training, steps_span, together
from letgo.reproduce.paper import OBJECTIVES, TABLE1, TABLE7, TABLES, Cell, Column
from letgo.reproduce.plan import TRIES
from letgo.reproduce.results import KNOWN, RULE_NAMES, Results, as_table, share, signed
from letgo.reproduce.store import (
    COVERAGE,
    SOLUTIONS,
    SOLVE,
    TRAINING,
    TUNE,
    Report,
    Store,
    fits,
    largest,
    sampler,
    size,
    split_seed,
)
from letgo.tune import together as tuned_together

# Where verified solving is measured: one column per task, both sizes of graphs.
SOLVED = ("sudoku-21", "extreme-pass1", "queens-random", "latin-random", "connectivity-12", "connectivity-18")
SOLVED_COLUMNS = (*(column for column in TABLE1.columns if column.key in SOLVED), TABLE7.columns[0])
LIKE = ("count", "seed", "steps", "regime", "folds")  # tuned on the same instances in the same way
Seeds = dict[int, Report]  # one rule's reports by training seed


def section(results: Results, name: str, head: list[str], rows: list[list[str]], *more: str) -> str:
    """What was written about it, and its table."""
    body = as_table(head, rows) if rows else "Not measured yet."
    return "\n\n".join([*results.notes(name), body, *more])


def show_solve(results: Results) -> str:
    reports, rows = results.store.reports(SOLVE), []
    for column in SOLVED_COLUMNS:
        own = [Cell(TABLE1, column, "tweedie", objective) for objective in reversed(OBJECTIVES)]
        others = [r["model"] for r in reports if r["model"] not in KNOWN and r.get("task") == column.task]
        pairs = [(cell.model, cell) for cell in own]
        pairs += [(name, own[name.endswith("-baseline")]) for name in dict.fromkeys(others)]
        for model, cell in pairs:
            best = largest(r for r in reports if (r["model"], r.get("regime")) == (model, column.regime))
            if best is not None:
                solved = share(Rate(results.use(best)["solved"], best["puzzles"]).as_dict())
                counts = [str(best["puzzles"]), f"{best['mean_calls']:.0f}", str(best["steps"])]
                passes = _passes(results, cell, model)
                rows.append([model, column.regime, solved, *counts, *passes, results.steps(best)])
    head = ["model", "regime", "solved", "n", "calls", "a full try", "pass@1", "pass@10", "steps"]
    return section(results, "solve", head, rows)


def _passes(results: Results, cell: Cell, model: str) -> list[str]:
    """pass@1 and pass@10 of the same regime, where they were measured."""
    texts = []
    for score, passes in (("validity", 1), ("pass_at_k", TRIES)):
        column = replace(cell.column, score=score, passes=passes)
        report = results.store.seeds(replace(cell, column=column), model).get(0)
        texts.append("-" if report is None else f"{share(results.use(report)[score])}, n = {report['count']}")
    return texts


def show_tuning(results: Results) -> str:
    """What tuning chose for each model, beside the paper's choice."""
    rows, lines = [], []
    for model, (sigma, tau_start, validity) in paper.TABLE5.items():
        theirs = f"({sigma:g}, {tau_start:g}) {validity:.3f}"
        reports = [r for r in results.store.reports(TUNE) if r["rule"] == "em-decay"]
        tables = _alike({seed: r for r in reports for name, seed in [split_seed(r["model"])] if name == model})
        if not tables:
            rows.append([model, "not tuned yet", "", "", "", "", theirs, ""])
            continue
        whole = tuned_together([results.use(table) for table in tables.values()])
        best, n = whole["best"], whole["count"]
        steps = steps_span([r["training_steps"] for r in tables.values() if r.get("training_steps")])
        text = share(Rate(round(best["validity"] * n), n).as_dict() | {"value": best["validity"]})
        if best["validity"] - validity < -MARGIN and not results.quick:
            why = f"no reason was tested; the run has {steps} of the paper's {paper.STEPS:,} steps."
            lines.append(f"- **{model}** (the paper: {validity:.3f}): {why}")
            text = f"**{text}**"
        tried = {key: {row[key] for row in whole["grid"]} for key in ("sigma", "tau_start")}
        edges = [k for k, values in tried.items() if len(values) > 1 and best[k] in (min(values), max(values))]
        setting = f"({best['sigma']:g}, {best['tau_start']:g})" + (f", edge: {' and '.join(edges)}" if edges else "")
        seeds, difference = ", ".join(map(str, tables)), signed(best["validity"] - validity, 3)
        rows.append([model, setting, text, str(n), seeds, steps, theirs, difference])
    head = ["model", "(sigma, tau_start)", "validity, 95% interval", "n", "seeds", "steps", "paper", "difference"]
    return section(results, "table5", head, rows, *(["\n".join(lines)] if lines else []))


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
        ours = largest(r for r in results.store.reports(COVERAGE) if (r["rule"], r["model"]) == (rule, model))
        if ours is None:
            rows.append([RULE_NAMES[rule], model, results.absent(model), *[""] * 6, printed, ""])
            continue
        scores = [results.use(ours)["coverage"][part] for part in ("total", "inside", "outside")]
        spans = [share({key: 100 * score[key] for key in ("value", "low", "high")}, 1) for score in scores]
        short = scores[0]["value"] - total
        spans[0] = f"**{spans[0]}**" if short < -MARGIN and not results.quick else spans[0]
        counts = f"{ours['distinct']['inside']:,} / {ours['distinct']['outside']:,}"
        even, samples = f"{100 * ours['if_uniform']:.1f}", f"{ours['samples']:,}"
        row = [RULE_NAMES[rule], model, *spans, even, counts, samples, results.steps(ours), printed]
        rows.append([*row, signed(100 * short, 1)])
    head = ["sampler", "model", "total %", "in training %", "outside %", "total % if uniform", "distinct in / out"]
    return section(results, "table15", [*head, "samples", "steps", "paper", "difference"], rows)


def show_solutions(results: Results) -> str:
    rows, theirs = [], f"{paper.O3_FOUND} of {paper.O3_TOTAL}: {paper.O3_FOUND / paper.O3_TOTAL:.3f}"
    for model in ("sudoku-baseline", "sudoku"):
        ours = largest(r for r in results.store.reports(SOLUTIONS) if r["model"] == model)
        if ours is None:
            rows.append([model, "not measured yet", *[""] * 5, theirs])
            continue
        found = f"{results.use(ours)['found']} of {ours['solutions']}: {share(ours['share_found'])}"
        uneven = f"{ours['uneven']:.3f} ({ours['uneven_if_uniform']:.3f})"
        drawn = [share(ours["validity"]), f"{ours['puzzles']} x {ours['draws']}", results.steps(ours)]
        rows.append([model, found, f"{ours['found_if_uniform']:.1f}", uneven, *drawn, theirs])
    head = ["model", "solutions found", "found if uniform", "unevenness (if uniform)", "valid draws"]
    return section(results, "solutions", [*head, "puzzles x draws", "steps", "paper"], rows)


def place(name: str) -> tuple[int, tuple[str, int]]:
    """Presets in their order, the further seeds of each after it; anything else comes last."""
    order, (model, seed) = list(PRESETS), split_seed(name)
    return order.index(model) if model in order else len(order), (model, seed)


def by_rule(store: Store, score: str = "validity") -> dict[tuple[str, str, int], dict[str, Seeds]]:
    """Reports that have a score, by model, regime and sampling steps, then by rule and training seed: the largest."""
    found: dict[tuple[str, str, int], dict[str, Seeds]] = {}
    for name in sorted(store.models(), key=place):
        model, seed = split_seed(name)
        for r in store.reports(name):
            if score in r and not sampler(r):
                seeds = found.setdefault((model, r["regime"], r["steps"]), {}).setdefault(r["rule"], {})
                seeds[seed] = max(seeds.get(seed, r), r, key=size)
    return found


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
    """Of k tries the one that the network believes most, between pass@1 and pass@k."""
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
    """Whole matrices are the paper's measure of graphs; IRED counts entries."""
    rows, floors = [], {}
    for cell in TABLE1.cells():
        found = results.result(cell)
        report = next(iter(found.reports.values())) if found else {}
        if "all_joined" in report:
            floor = report["all_joined"]
            floors[cell.column.title] = f"{share(floor)} (n = {floor['n']})"
            scores = [share(report[score]) for score in ("element_accuracy", "balanced_accuracy")]
            rows.append([cell.column.title, cell.objective, RULE_NAMES[cell.rule], *scores, str(report["count"])])
    head = ["graphs", "training", "sampler", "entries right", "balanced accuracy", "n"]
    said = [f"Answering 'all joined' is right on {text} of {title}: the floor." for title, text in floors.items()]
    return section(results, "entries", head, rows, *said)


def show_others(results: Results) -> str:
    """What other recipes and the 4x4 model were measured on beside the tables' cells."""
    rows = []
    for name in results.store.models():
        model, _ = split_seed(name)
        if model in KNOWN:
            continue
        every = [(cell, result(results.store, cell, model)) for table in TABLES.values() for cell in table.cells()]
        cells = [cell for cell, found in every if found is not None and same_training(model, found, cell)]
        for r in results.store.reports(name):
            if not any(fits(r, cell) for cell in cells):
                rule = " ".join([results.use(r)["rule"], *(f"{k}={v:g}" for k, v in r["settings"].items())])
                counts = [str(r["validity"]["n"]), str(r["seed"]), str(r["steps"]), results.steps(r)]
                rows.append([name, r["regime"], rule, share(r["validity"]), *counts])
    head = ["model", "regime", "rule", "valid, 95% interval", "n", "seed", "sampling steps", "steps"]
    return section(results, "others", head, rows)


def show_training(results: Results) -> str:
    read, rows = results.store.read(TRAINING), []
    runs = {name: run for name, run in read.items() if isinstance(run, dict)} if isinstance(read, dict) else {}
    for name in sorted(runs, key=place):
        run = runs[name]
        minutes = f"{run['seconds'] / 60:.0f}" if "seconds" in run else "?"
        steps = f"{run['steps']:,}" if "steps" in run else "?"
        rows.append([name, steps, run.get("rate", "?"), minutes, run.get("device", "?"), run.get("note", "")])
    return section(results, "training", ["run", "steps", "rate", "minutes", "device", "note"], rows)


def solved_cells(columns: tuple[Column, ...] = SOLVED_COLUMNS) -> list[Cell]:
    """The cells of Tweedie reprojection that verified solving stands beside, with both objectives."""
    return [Cell(TABLE1, column, "tweedie", objective) for column in columns for objective in OBJECTIVES]
