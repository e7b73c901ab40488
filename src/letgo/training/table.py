"""A table of one's own: what is wrong with it, a configuration for it, and what a run learned of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from letgo.config import MIDDLE, SMALL, Config
from letgo.data.source import source_of
from letgo.data.table import LEAST_ROWS, Look, TableRows, options_of, read_table, shared_codes, table_of
from letgo.errors import LetgoError
from letgo.estimates import rate
from letgo.presets import PRESETS
from letgo.rng import data_rng
from letgo.runs import read_json
from letgo.runs.files import weights_digest
from letgo.solver import Solver
from letgo.tasks import Problem, Task

# How the network and its training grow with the cells of a row, so that a CPU learns in minutes; beyond, as for tasks.
_SMALL: dict[str, Any] = {"network_options": SMALL, "learning_rate": 2e-3, "batch": 64, "sample_steps": 50}
SIZES: dict[int, dict[str, Any]] = {
    16: {**_SMALL, "steps": 2_000, "warmup": 100},
    49: {**_SMALL, "steps": 4_000, "warmup": 200},
    100: {**_SMALL, "steps": 8_000, "warmup": 400, "network_options": MIDDLE, "sample_steps": 100},
}
FEW = 1000  # distinct rows below which a network may learn them by heart
CHECKED = 1000  # rows of a table that its own check is tried on
MEASURED = 200  # held-out rows of the report


def table_config(data: str, grid: tuple[int, ...] = (), valid: str = "", **changes: Any) -> Config:
    """Return a configuration that suits the rows of a file; `letgo.train(table_config(FILE), out=..., data=FILE)`.

    `valid` is a function by its place, FILE.py:FUNCTION, that was loaded before (`letgo.tasks.table.load_check`).
    """
    options: dict[str, Any] = {"valid": valid, **({"grid": grid} if grid else {})}
    task = table_of(data, **options)
    choices = read_table(data).choices()
    columns = shared_codes(choices, task.symbols)
    if len(columns[0]) < task.symbols and "codec" not in changes:
        task = replace(task, choices=choices)
        changes |= {"codec": "columns", "codec_options": {"columns": columns}}
    name = Path(data).name.partition(".")[0] or task.name
    size = next((size for cells, size in SIZES.items() if task.cells <= cells), {})
    config = Config.for_task(task, task_options=options_of(task), **{**size, **changes})
    return replace(config, name=f"{name}-table" if name in PRESETS else name)


def remarks(data: str, task: Task) -> list[str]:
    """Return what there is in the file, and what one may want to change before training on it."""
    look = Look.at(data)
    some = ", ".join(look.values[:6]) + (", ..." if len(look.values) > 6 else "")
    rows = f"{look.rows:,} row{'s' * (look.rows != 1)}"
    lines = [f"{data}: {rows} of {look.cells} cells; {len(look.values)} different values ({some})"]
    if look.constant:
        shown = ", ".join(look.constant[:3]) + (", ..." if len(look.constant) > 3 else "")
        lines.append(f"the same in every row, so nothing to learn there: {shown}")
    if look.numbered:
        lines.append(f"another value in every row, so nothing to learn there; leave it out: {', '.join(look.numbered)}")
    if look.rows > 1 and 2 * len(look.strange) > look.cells:
        lines.append(
            f"the first line is taken for a row, though {', '.join(look.strange[:3])} occur nowhere else; if it is a "
            "header, rename the columns that are called like a value"
        )
    if look.distinct < look.rows:
        again = look.rows - look.distinct
        copies = f"{again:,} rows are copies of others" if again > 1 else "1 row is a copy of another"
        lines.append(f"{copies}; all copies of a row are held out, or none")
    if LEAST_ROWS <= look.distinct < FEW:  # fewer are refused
        lines.append(
            f"{look.distinct} distinct rows are few: the network may learn them by heart, see `new` in the report"
        )
    if task.has_rules:
        rows = source_of(task, data).split("train")[:CHECKED]
        fine = int(task.validate(rows.solution.long(), rows).sum())
        if not fine:
            raise LetgoError(
                f"{task.valid} refuses every one of the first {len(rows)} rows; does it take a list of words?"
            )
        if fine < len(rows):
            lines.append(
                f"{task.valid} refuses {len(rows) - fine} of the first {len(rows):,} rows, trained on all the same"
            )
    return lines


def is_reported(folder: Path) -> bool:
    """Return whether report.json is there, on the run's present weights; somebody else's file of that name stays."""
    path = folder / "report.json"
    try:
        report = read_json(path) if path.exists() else {}
    except LetgoError:
        return False
    if not isinstance(report, dict) or (report and "completions" not in report):
        return True
    return report.get("weights_sha256") == weights_digest(folder)


def table_report(solver: Solver, data: str, seed: int = 0) -> dict[str, Any]:
    """Complete rows that were held out, half of whose cells are open, and draw as many from nothing.

    `chance` fills open cells with each column's own frequencies, independently: what a table knows without its rules.
    """
    source = TableRows(solver.task, data)
    rule = solver.best_rule
    held = source.draw("test", None, min(MEASURED, len(source.split("test"))), seed)
    boards = solver.draw(held, solver.sampler(rule), seed)
    empty = solver.empty(len(held))
    drawn = solver.draw(empty, solver.sampler(rule), seed)
    report: dict[str, Any] = {"rows": len(held), "rule": rule, "steps": solver.steps(), "seed": seed, "open": "half"}
    for name, made, problem in (
        ("completions", boards, held), ("generated", drawn, empty), ("chance", _by_chance(source, held, seed), held),
    ):  # fmt: skip
        report[name] = _scores(source, made, problem)
    return report


def _scores(source: TableRows, boards: torch.Tensor, problem: Problem) -> dict[str, Any]:
    known = source.known(boards)
    scores: dict[str, Any] = {"new": rate(int((~known).sum()), len(boards)).as_dict()}
    if source.task.has_rules:
        scores = {"valid": rate(int(source.task.validate(boards, problem).sum()), len(boards)).as_dict(), **scores}
    hidden = ~problem.given
    if bool(problem.given.any()):
        same = (boards == problem.solution) & hidden
        scores["exact"] = rate(int((boards == problem.solution).all(1).sum()), len(boards)).as_dict()
        scores["agreement"] = round(float(same.sum() / hidden.sum()), 4)
    else:
        scores["distinct"] = len(torch.unique(boards, dim=0))
    return scores


def _by_chance(source: TableRows, problem: Problem, seed: int) -> torch.Tensor:
    rows, rng = read_table(str(source.data), source.task).codes, data_rng(seed, "chance")
    picks = rng.integers(len(rows), size=tuple(problem.solution.shape))
    drawn = torch.from_numpy(rows[picks, torch.arange(rows.shape[1]).numpy()]).long()
    return problem.with_clues(drawn)


def report_lines(report: dict[str, Any], valid: str) -> list[str]:
    """Write the report for a reader."""

    def share(part: str, score: str) -> str:
        found = report[part][score]
        return f"{found['value']:.3f} [{found['low']:.3f}, {found['high']:.3f}]"

    rows = f"{report['rows']} row{'s' * (report['rows'] != 1)}"
    lines = [f"{rows} held out, half of the cells left open, completed with {report['rule']}:"]
    if valid:
        lines.append(f"  valid by {valid}   {share('completions', 'valid')}   by chance {share('chance', 'valid')}")
    same, chance = report["completions"]["agreement"], report["chance"]["agreement"]
    lines.append(f"  open cells filled as in the row held out   {same:.3f}   by chance {chance:.3f}")
    lines.append(f"  whole rows as they were held out   {share('completions', 'exact')}")
    generated = f"{report['generated']['distinct']} distinct, new {share('generated', 'new')}"
    lines.append(f"{rows} from nothing: {generated}" + (f", valid {share('generated', 'valid')}" if valid else ""))
    if not valid:
        lines.append("which rows are valid is not known; with --valid FILE.py:FUNCTION they are counted")
    return lines
