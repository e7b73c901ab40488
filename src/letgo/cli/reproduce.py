"""`letgo reproduce`: measure what experiments of the paper need, and write the pages from the results."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from letgo.cli import options
from letgo.errors import LetgoError, unknown


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="TABLE", help="table1, table5, ...; `--list` shows all")
    options.flag(parser, "--list", "what can be reproduced")
    options.flag(parser, "--quick", "DDPM and Tweedie, n = 16, pass@1: minutes on a CPU")
    models = "holds run folders X, X-baseline, X.s1, ... (default: the shipped models)"
    parser.add_argument("--models", type=options.path, metavar="FOLDER", help=models)
    options.device(parser)
    parser.add_argument("--count", type=options.boards, help="instances per cell (default: the paper's)")
    seeds = "training seeds (default 0,1,2, as far as trained)"
    parser.add_argument("--seeds", type=options.list_of(options.seed), help=seeds)
    parser.add_argument("--tasks", type=options.list_of(str), help="only these tasks, e.g. sudoku,latin (default: all)")
    parser.add_argument("--rules", type=options.list_of(str), help="only these rules, e.g. ddpm,tweedie (default: all)")
    parser.add_argument(
        "--data",
        action="append",
        metavar="[TASK=]PATH",
        help="Sudoku-Extreme's files, or TASK's (default: generated where possible)",
    )
    out, page = "the JSON (default results; quick: results/quick)", "write the page here (default docs/results.md)"
    parser.add_argument("--out", type=options.path, metavar="FOLDER", help=out)
    parser.add_argument("--page", type=options.path, metavar="FILE", help=page)
    options.flag(parser, "--force", "measure again what is there already")
    options.flag(parser, "--dry-run", "print the commands that are missing and stop")
    options.flag(parser, "--commands", "print the commands of the reports that are there and stop")
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.data.files import refuse_unwritable
    from letgo.machine import device_name, pick_device
    from letgo.progress import Progress
    from letgo.reproduce.experiments import ALSO, EXPERIMENTS, run_missing
    from letgo.reproduce.measure import Session, data_files
    from letgo.reproduce.page import checkout, commands, publish
    from letgo.reproduce.results import Results
    from letgo.reproduce.store import Store
    from letgo.tasks import TASKS

    titles = {name: experiment.title for name, experiment in EXPERIMENTS.items()}
    titles |= {name: f"a part of {other}" for name, other in ALSO.items()}
    titles["page"] = "no measurement: the pages and plots from the files in --out"
    if args.list:
        from letgo.reproduce.cost import cost

        costs = {name: cost(experiment) for name, experiment in EXPERIMENTS.items()}
        for name, title in titles.items():
            print(f"{name:10} {title}" + (f" ({costs[name]})" if name in costs else ""))
        print("What is trained first: docs/ablations.md has the command lines.")
        return 0
    listing = f"`letgo reproduce --list` shows {', '.join(titles)}"
    if not args.names:
        raise LetgoError(f"name a table; {listing}")
    known = (("table", args.names, titles, listing), ("task", args.tasks, TASKS, ""))
    rules = list(dict.fromkeys(need.rule for experiment in EXPERIMENTS.values() for need in experiment.needs))
    for what, given, right, hint in (*known, ("rule", args.rules, rules, f"the tables have {', '.join(rules)}")):
        for name in given or ():
            if name not in right:
                raise unknown(what, name, right, hint)
    names = list(dict.fromkeys(ALSO[name] if name in ALSO else str(name) for name in args.names))
    if args.models is not None and not args.models.is_dir():
        raise LetgoError(f"--models {args.models}: no such folder; it should hold a run folder for each model")
    refuse_unwritable(args.page, "--page")
    device = pick_device(args.device)
    root = checkout()
    out = args.out or (root or Path()) / "results" / ("quick" if args.quick else "")
    store = Store(out)
    for name in store.models():  # a damaged file is found before the work, not after it
        store.reports(name)
    if args.commands:
        print("\n".join(commands(Results(store), names)))
        return 0
    same = ("models", "device", "tasks", "rules", "count", "quick", "threads", "force", "dry_run")
    session = Session(
        store,
        **{name: getattr(args, name) for name in same},
        seeds=args.seeds or ((0,) if args.quick else (0, 1, 2)),
        data=data_files(args.data or []),
        ignored=args.quick and args.out is None,
        say=lambda text: print(text, flush=True) if args.dry_run or not args.quiet else None,
        progress=lambda label: Progress(label, voice=args.voice),
    )
    if not args.dry_run:
        args.voice.announce(f"measuring what is missing for {', '.join(names)}, on {device_name(device)}")
    run_missing(session, names)
    if session.skipped and not session.made and not session.held:
        raise LetgoError(nothing(names, session.skipped))
    for what, why in session.skipped.items():
        print(f"left out: {what} ({why})", file=sys.stderr)
    if session.held and not args.quiet:
        there = f"{session.held} report{'s were' if session.held > 1 else ' was'} there already"
        print(f"{there}, of as many instances or more; --force measures again", file=sys.stderr)
    if not args.dry_run:
        publish(Results(store, args.quick), names, args.page, root, args.quiet)
    return 0


def nothing(names: list[str], skipped: dict[str, str]) -> str:
    """Say in a line that nothing could be measured, and why."""
    what, why = next(iter(skipped.items()))
    others = [other for other in skipped if other != what]
    return f"{', '.join(names)}: nothing to measure. {what}: {why}" + (
        f"; also left out: {', '.join(others)}" if others else ""
    )
