"""Table 5: EM decay's settings, as tuned."""

from __future__ import annotations

from typing import Any

from letgo.metrics import Rate
from letgo.paper import STEPS, TABLE5
from letgo.reproduce.compare import MARGIN, remark, steps_span
from letgo.reproduce.markdown import as_table, commands_block, share, signed
from letgo.reproduce.store import TUNE, Report, Store, split_seed
from letgo.tune import together

ALIKE = ("count", "seed", "steps", "regime", "folds")  # tuned on the same instances in the same way


def table5(store: Store, quick: bool = False) -> str:
    """What tuning chose for each model, beside the paper's choice."""
    rows, lines, commands = [], [], []
    for model, paper in TABLE5.items():
        theirs = f"({paper.sigma:g}, {paper.tau_start:g}) {paper.validity:.3f}"
        tables = _alike({split_seed(r["model"])[1]: r for r in store.reports(TUNE) if _tuned(r, model)})
        if not tables:
            rows.append([model, "not tuned yet", "", "", "", "", theirs, ""])
            continue
        whole, n = together(list(tables.values())), next(iter(tables.values()))["count"]
        best = whole["best"]
        steps = steps_span([r["training_steps"] for r in tables.values() if r.get("training_steps")])
        difference = best["validity"] - paper.validity
        text = share(Rate(round(best["validity"] * n), n).as_dict() | {"value": best["validity"]})
        if difference < -MARGIN and not quick:
            why = f"no reason was tested; the run has {steps} of the paper's {STEPS:,} steps."
            lines.append(f"- **{model}** (the paper: {paper.validity:.3f}): {why}")
            text = f"**{text}**"
        setting, seeds = f"({best['sigma']:g}, {best['tau_start']:g}){_edges(whole)}", ", ".join(map(str, tables))
        rows.append([model, setting, text, str(n), seeds, steps, theirs, signed(difference, 3)])
        commands += [_tuning(r["command"]) for r in tables.values()]
    head = ["model", "(sigma, tau_start)", "validity, 95% interval", "n", "seeds", "steps", "paper", "difference"]
    note = (
        "Validation instances, five folds; not test results. Of several seeds the best mean, on the same ones. The "
        "interval is that of the best of several settings, so it leans high. An edge is the least or the greatest "
        "value tried, so that a better one may lie beyond. The whole grids are in `results/tune.json`."
    )
    note = " ".join([note, *remark(store, "table5")])
    parts = ["## Table 5: EM decay's settings, as tuned", note, as_table(head, rows)]
    return "\n\n".join([*parts, *(["\n".join(lines)] if lines else []), *commands_block(commands)])


def _tuned(report: Report, model: str) -> bool:
    return report["rule"] == "em-decay" and split_seed(report["model"])[0] == model


def _tuning(command: str) -> str:
    """Beside a shipped model nothing is written."""
    return command if "tune runs/" in command else f"{command} --out tune.json"


def _edges(table: Report) -> str:
    """`, edge: tau_start`: which of the chosen values is the least or the greatest of its grid."""
    tried = {key: {row[key] for row in table["grid"]} for key in ("sigma", "tau_start")}
    found = [k for k, values in tried.items() if len(values) > 1 and table["best"][k] in (min(values), max(values))]
    return f", edge: {' and '.join(found)}" if found else ""


def _alike(tables: dict[int, Report]) -> dict[int, Report]:
    """Of several seeds those that were tuned like the first, setting by setting on the same instances."""

    def tried(table: Report) -> tuple[Any, ...]:
        return tuple(table.get(k) for k in ALIKE), [(row["sigma"], row["tau_start"]) for row in table["grid"]]

    return {seed: table for seed, table in sorted(tables.items()) if tried(table) == tried(tables[min(tables)])}
