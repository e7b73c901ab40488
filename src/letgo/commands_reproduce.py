"""`letgo reproduce`: measure what experiments of the paper need, and write the pages from the results."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from letgo.data.files import refuse_unwritable
from letgo.errors import LetgoError
from letgo.progress import Progress
from letgo.reproduce.experiments import EXPERIMENTS, run_missing
from letgo.reproduce.measure import Session, data_files, shipped_instead
from letgo.reproduce.page import checkout, commands, sections, write_pages
from letgo.reproduce.paper import RULES
from letgo.reproduce.plan import QUICK_COUNT, Limits
from letgo.reproduce.results import Results
from letgo.reproduce.store import Store
from letgo.tasks import TASKS

TARGETS = {name: experiment.title for name, experiment in EXPERIMENTS.items()}
TARGETS["page"] = "no measurement: the pages and plots from the files in --out"


def run(args: argparse.Namespace) -> int:
    if args.list:
        for name, text in TARGETS.items():
            print(f"{name:10} {text}")
        return 0
    names = list(dict.fromkeys(args.names))
    unknown = [name for name in names if name not in TARGETS]
    if unknown or not names:
        said = f"unknown table '{unknown[0]}'" if unknown else "name a table"
        raise LetgoError(f"{said}; `letgo reproduce --list` shows {', '.join(TARGETS)}")
    root = checkout()
    out = args.out or ((root or Path()) / "results" / ("quick" if args.quick else ""))
    session = make_session(args, out)
    refuse_unwritable(args.page, "--page")
    for name in session.store.models():  # files that are no reports are found before the work, not after it
        session.store.reports(name)
    if args.commands:
        print("\n".join(commands(Results(session.store), names)))
        return 0
    run_missing(session, names)
    for what, why in session.skipped.items():
        print(f"left out: {what} ({why})", file=sys.stderr)
    if session.held and not args.quiet:
        told = f"{len(session.held)} report{'s were' if len(session.held) > 1 else ' was'} there already"
        print(f"{told}, of as many instances or more; --force measures again", file=sys.stderr)
    if not args.dry_run:
        _report(args, session.store, names, root)
    return 0


def make_session(args: argparse.Namespace, out: Path) -> Session:
    if args.models is not None and not args.models.is_dir():
        raise LetgoError(f"--models {args.models}: no such folder; it should hold a run folder for each model")
    for name in args.tasks or ():
        if name not in TASKS:
            raise LetgoError(f"--tasks: unknown task '{name}'; choose from {', '.join(TASKS)}")
    for name in args.rules or ():
        if name not in RULES:
            raise LetgoError(f"--rules: '{name}' is in no table; choose from {', '.join(RULES)}")
    if args.quick and args.out is None and not args.dry_run:
        out.mkdir(parents=True, exist_ok=True)
        (out / ".gitignore").write_text("*\n")  # git leaves a quick look alone

    def progress(label: str) -> Callable[[int, int], None]:
        return Progress(label, args.progress, args.quiet)

    def say(text: str) -> None:
        if args.dry_run or not args.quiet:
            print(text, flush=True)

    return Session(
        Store(out),
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


def _report(args: argparse.Namespace, store: Store, names: list[str], root: Path | None) -> None:
    """The sections on the terminal; the pages where they belong to these results."""
    results = Results(store, args.quick)
    ours = root is not None and not args.quick and store.folder.resolve() == (root / "results").resolve()
    page = args.page or (root / "docs" / "results.md" if root is not None and ours else None)
    if names != ["page"] and not args.quiet:
        print(sections(results, names))
    if page is None and "page" in names:
        raise LetgoError(f"{store.folder} is no results folder of a letgo checkout; say where with --page FILE")
    if page is None:
        return
    if not store.folder.is_dir():
        raise LetgoError(f"{store.folder}: no such folder, so there is nothing for {page}; name one with --out FOLDER")
    readme = root / "README.md" if root is not None and args.page is None else None
    written = list(write_pages(results, page, readme))
    print(f"wrote {page} and {len(written) - 1} files beside it")
