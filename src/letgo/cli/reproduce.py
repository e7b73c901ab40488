"""`letgo reproduce`: measure what a table of the paper needs, and write the page from the results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from letgo.cli import options
from letgo.errors import LetgoError, unknown

if TYPE_CHECKING:
    from letgo.reproduce.measure import Session
    from letgo.reproduce.store import Store

TARGETS = {
    "table1": "success rates of every task, sampler and objective; and verified solving",
    "table5": "EM decay's settings as `letgo tune` chose them on validation instances (collected, not tuned again)",
    "table7": "mazes: valid and shortest paths; and verified solving of them",
    "table8": "Sudoku, 21 clues, 500 sampling steps: beside the paper's runs of 200,000 steps",
    "table12": "distance to one-hot",
    "table13": "share of cells in a broken rule",
    "table14": "distinct boards among the valid ones",
    "table15": "coverage of the 14-queens boards from 500,000 samples (--count)",
    "solve": "verified solving alone: ten tries with early exit, beside pass@1 and pass@10",
    "solutions": "App. O.3: 1,000 draws from each of 50 puzzles (--count) with several solutions",
    "page": "no measurement: the page and its plots from the files in --out",
}


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="TABLE", help="table1, table5, ...; `--list` shows all")
    options.flag(parser, "--list", "what can be reproduced")
    options.flag(parser, "--quick", "DDPM and Tweedie, n = 16, pass@1: minutes on a CPU")
    models = "holds run folders X, X-baseline, X.s1, ..."
    parser.add_argument("--models", type=options.path, metavar="FOLDER", help=models)
    options.device(parser)
    parser.add_argument("--count", type=options.boards, help="instances per cell (default: the paper's)")
    seeds = "training seeds (default 0,1,2, as far as trained)"
    parser.add_argument("--seeds", type=options.list_of(options.seed), help=seeds)
    parser.add_argument("--tasks", type=options.list_of(str), help="only these tasks, e.g. sudoku,latin")
    parser.add_argument("--rules", type=options.list_of(str), help="only these rules, e.g. ddpm,tweedie")
    parser.add_argument("--data", action="append", metavar="[TASK=]PATH", help="Sudoku-Extreme's files, or TASK's")
    parser.add_argument("--also", type=options.list_of(str), help="other recipes to measure beside the paper's")
    out, page = "the JSON (default results; quick: results/quick)", "write the page here (default docs/results.md)"
    parser.add_argument("--out", type=options.path, metavar="FOLDER", help=out)
    parser.add_argument("--page", type=options.path, metavar="FILE", help=page)
    options.flag(parser, "--force", "measure again what is there already")
    options.flag(parser, "--dry-run", "print the commands that are missing and stop")
    options.batch(parser)
    options.flag(parser, "--plain", "no compilation")
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.data.files import refuse_unwritable

    if args.list:
        for name, text in TARGETS.items():
            print(f"{name:10} {text}")
        return 0
    names = list(dict.fromkeys(args.names))
    listing = f"`letgo reproduce --list` shows {', '.join(TARGETS)}"
    if not names:
        raise LetgoError(f"name a table; {listing}")
    for name in names:
        if name not in TARGETS:
            raise unknown("table", name, TARGETS, listing)
    root = checkout()
    out = args.out or ((root or Path()) / "results")
    if args.quick and args.out is None:
        out = out / "quick"
    session = make_session(args, out)
    refuse_unwritable(args.page, "--page")
    for name in session.store.models():  # files that are no reports are found before the work, not after it
        session.store.reports(name)
    _measure(session, names)
    for what, why in session.skipped.items():
        print(f"left out: {what} ({why})", file=sys.stderr)
    if session.held and not args.quiet:
        told = f"{len(session.held)} report{'s were' if len(session.held) > 1 else ' was'} there already"
        print(f"{told}, of as many instances or more; --force measures again", file=sys.stderr)
    if not args.dry_run:
        _report(args, session.store, names, root)
    return 0


def make_session(args: argparse.Namespace, out: Path) -> Session:
    from letgo.paper import RULES
    from letgo.progress import Progress
    from letgo.reproduce.measure import Session, shipped_instead
    from letgo.reproduce.plan import QUICK_COUNT, Limits
    from letgo.reproduce.store import Store
    from letgo.tasks import TASKS

    if args.models is not None and not args.models.is_dir():
        raise LetgoError(f"--models {args.models}: no such folder; it should hold a run folder for each model")
    for name in args.tasks or ():
        if name not in TASKS:
            raise unknown("task", name, TASKS)
    for name in args.rules or ():
        if name not in RULES:
            raise unknown("rule", name, RULES, f"the tables have {', '.join(RULES)}")

    def progress(label: str) -> Callable[[int, int], None]:
        return Progress(label, args.progress, args.quiet)

    def say(text: str) -> None:
        if args.dry_run or not args.quiet:
            print(text, flush=True)

    return Session(
        Store(_own_folder(out) if args.quick and args.out is None and not args.dry_run else out),
        args.models,
        args.also or (shipped_instead() if args.models is None else ()),
        (0,) if args.quick and args.seeds is None else args.seeds or (0, 1, 2),
        args.device,
        data_files(args.data or []),
        Limits(args.tasks, args.rules, args.count, args.quick),
        args.batch or (min(args.count or QUICK_COUNT, QUICK_COUNT) if args.quick else None),  # quicker than one by one
        args.plain,
        args.threads,
        args.force,
        args.dry_run,
        say,
        progress,
    )


def data_files(given: list[str]) -> dict[str, str]:
    """--data FILE is Sudoku-Extreme's; --data TASK=FILE is another task's. `letgo data fetch` puts it in ./data."""
    from letgo.tasks import TASKS

    files = {}
    for text in given:
        task, equals, path = text.partition("=")
        known = bool(equals) and task in TASKS
        files[task if known else "sudoku-extreme"] = path if known else text
    fetched = Path("data") / "sudoku-extreme"
    if "sudoku-extreme" not in files and fetched.is_dir():
        files["sudoku-extreme"] = str(fetched)
    for task, path in files.items():
        if path != "hub" and not Path(path).exists():
            raise LetgoError(f"--data {path}: no such file or folder for {task}")
    return files


def _measure(session: Session, names: list[str]) -> None:
    """Tables of the grid kind together: they share their reports."""
    from letgo.paper import TABLE5, TABLES
    from letgo.reproduce import coverage
    from letgo.reproduce.measure import run_solve, run_tables, run_tune
    from letgo.reproduce.plan import Limits
    from letgo.tasks import TASKS

    grids = [name for name in names if name in TABLES]
    if session.limits.quick and session.limits.tasks is None and "table7" not in names:
        every = tuple(task for task in TASKS if task != "maze")
        session.limits = Limits(every, session.limits.rules, session.limits.count, True)
    if grids:
        run_tables(session, grids)
    if "solve" in names:
        run_solve(session)
        if session.limits.quick:
            session.skipped["verified solving"] = "never in a quick run; leave --quick out"
    if "table5" in names:
        run_tune(session, tuple(TABLE5))
    if "table15" in names:
        coverage.run_coverage(session)
    if "solutions" in names:
        coverage.run_solutions(session)


def _report(args: argparse.Namespace, store: Store, names: list[str], root: Path | None) -> None:
    """The sections on the terminal; the whole page where it belongs to these results."""
    from letgo.data.files import written_atomically
    from letgo.reproduce import plots
    from letgo.reproduce.page import Page

    page = Page(store, args.quick)
    ours = root is not None and store.folder.resolve() == (root / "results").resolve()
    path = args.page or (root / "docs" / "results.md" if root is not None and ours and not args.quick else None)
    if names != ["page"] and not args.quiet:
        print(page.text([name for name in names if name != "page"]))
    if path is None:
        if "page" in names:
            raise LetgoError(f"{store.folder} is no results folder of a letgo checkout; say where with --page FILE")
        return
    if not store.folder.is_dir():
        raise LetgoError(f"{store.folder}: no such folder, so there is nothing for {path}; name one with --out FOLDER")
    with written_atomically(path) as file:
        file.write(page.text().encode())
    print(f"wrote {path}")
    if args.quick or not plots.available():
        return
    for name, plot in plots.PLOTS.items():
        picture, points = path.parent / "assets" / f"{name}.svg", plot.points(store)
        if points and (not picture.is_file() or plots.drawn_digest(picture) != plots.digest(points)):
            plots.draw(plot, store, picture)
            print(f"wrote {picture}")


def checkout() -> Path | None:
    """The root of letgo's source tree that we stand in, if we do."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        project = folder / "pyproject.toml"
        if project.is_file() and 'name = "letgo"' in project.read_text(encoding="utf-8"):
            return folder
    return None


def _own_folder(folder: Path) -> Path:
    """A folder that git leaves alone."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / ".gitignore").write_text("*\n")
    return folder
