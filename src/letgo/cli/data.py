"""`letgo data make|fetch|check|digits`. What is heavy is imported inside, so that --help stays quick."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from letgo.cli.options import at_least, boards, flag, own_task, print_json
from letgo.errors import LetgoError

FETCHED = ("sudoku-extreme", "maze-hard", "mnist")


def add(parser: argparse.ArgumentParser) -> None:
    parser.description = "Make, fetch and check data files."
    actions = parser.add_subparsers(dest="action", required=True, metavar="make|fetch|check|digits")
    make = actions.add_parser("make", help="write solved instances of a task")
    text = "sudoku, sudoku-extreme, latin, queens, connectivity, maze, or one of an installed package"
    make.add_argument("task", nargs="?", metavar="TASK", help=f"{text}; none with --task")
    own_task(make)
    make.add_argument("--count", type=boards, required=True, metavar="N", help="how many instances")
    make.add_argument(
        "--seed", type=at_least(0), default=0, metavar="S", help="the same seed writes the same file (default 0)"
    )
    make.add_argument("--out", required=True, metavar="F", help=".npz, .csv, .csv.gz, .txt or .txt.gz")
    clues = "which clues are given; 'minimal' for unique Sudoku puzzles (default: the task's usual ones)"
    make.add_argument("--regime", metavar="G", help=clues)
    flag(make, "--force", "replace an existing file")
    flag(make, "--progress", "where stderr is no terminal: a line every 5 seconds, not every 30")
    fetch = actions.add_parser("fetch", help="download a data set from the Hugging Face hub")
    fetch.add_argument("name", metavar="{" + ",".join(FETCHED) + "}", help="the data set")
    fetch.add_argument("--out", metavar="DIR", help="default data/NAME")
    fetch.add_argument(
        "--revision", metavar="SHA", help="the commit to fetch; default: the newest, of mnist a fixed one"
    )
    flag(fetch, "--force", "fetch again what is there already")
    check = actions.add_parser("check", help="read a data file, report what is in it or its first fault")
    check.add_argument("file", help="a .npz, .csv, .txt or IDX file, gzipped or not; '-' reads puzzle lines from stdin")
    name = "a name, or FILE.py:CLASS of your own, which is run (default: what the file says, else sudoku)"
    check.add_argument("--task", metavar="T", help=name)
    check.add_argument(
        "--sample", type=int, default=200, metavar="N", help="Sudokus tried for uniqueness (default 200)"
    )
    digits = actions.add_parser("digits", help="images of digits, and the decoder that reads them")
    digits.add_argument("source", nargs="?", metavar="WHAT", help="mnist, optdigits, or a folder with MNIST's files")
    digits.add_argument("--out", required=True, metavar="DIR", help="where digits.safetensors and digits.json go")
    digits.add_argument(
        "--preset", default="sudoku-digits", metavar="P", help="whose boards show them (default sudoku-digits)"
    )
    digits.add_argument(
        "--decoder-steps", type=at_least(1), metavar="N", help="of the decoder's training (default: its own)"
    )
    digits.add_argument(
        "--seed", type=at_least(0), default=0, metavar="S", help="of the decoder's weights and batches (default 0)"
    )
    flag(digits, "--progress", "where stderr is no terminal: a line every 5 seconds, not every 30")
    flag(digits, "--json", "one JSON object on stdout")
    for action in (make, check):
        action.add_argument("--size", type=at_least(1), metavar="N", help="side of the board (default: the paper's)")
        flag(action, "--json", "one JSON object on stdout")
    for action in (make, fetch, check, digits):
        flag(action, "--quiet", "no progress")
        flag(action, "--debug", "show the traceback of an error")


def run(args: argparse.Namespace) -> int:
    return {"make": _make, "fetch": _fetch, "check": _check, "digits": _digits}[args.action](args)


def _make(args: argparse.Namespace) -> int:
    from letgo import __version__
    from letgo.data.check import sized_task
    from letgo.data.files import refuse_to_overwrite
    from letgo.data.make import check_suffix, make, save
    from letgo.data.source import source_of
    from letgo.progress import Progress

    if args.out == "-":
        raise LetgoError("--out -: nothing is written to standard output; name a file")
    if (args.task is None) == (args.own_task is None):
        raise LetgoError("data make needs either a TASK by its name or --task FILE.py:CLASS")
    task = sized_task(args.task or args.own_task, args.size)
    check_suffix(args.out, task)  # both before the work, which may take minutes
    refuse_to_overwrite(args.out, args.force)
    regime = args.regime or source_of(task).usual
    meta = {"task": task.name, "size": args.size, "regime": regime, "seed": args.seed, "count": args.count}
    meta["version"] = __version__
    args.voice.announce(f"making {args.count:,} instances of {task.name}")
    progress = Progress(f"making {task.name}", voice=args.voice)
    problem = make(task, args.count, args.seed, args.regime, progress)
    save(args.out, problem, task, meta, args.force)
    text = f"{args.out}: {args.count} instances of {task.name} ({regime})"
    print_json({"file": args.out, **meta}) if args.json else print(text)
    return 0


def _fetch(args: argparse.Namespace) -> int:
    from letgo.data.fetch import fetch

    bar = sys.stderr.isatty() and not args.quiet
    for path in fetch(args.name, args.out, args.force, progress=bar, revision=args.revision):
        print(path)
    return 0


def _digits(args: argparse.Namespace) -> int:
    import json
    from pathlib import Path

    from letgo.data.decoder import make_digits
    from letgo.data.digits import FACTS, DigitCodec
    from letgo.data.files import write_atomically
    from letgo.presets import preset

    config, folder = preset(args.preset), Path(args.out)
    codec = config.build_codec()
    if not isinstance(codec, DigitCodec):
        raise LetgoError(f"--preset {args.preset}: its boards show no digits; choose one such as sudoku-digits")
    if (folder / FACTS).exists():
        raise LetgoError(f"{folder / FACTS} is there already; name another --out")
    args.voice.announce("reading digits and training their decoder")
    files = make_digits(codec, config.build_task(), args.source, args.voice.say, args.decoder_steps, args.seed)
    folder.mkdir(parents=True, exist_ok=True)
    facts = {**json.loads(files[FACTS]), "command": args.command_line}
    for name, content in {**files, FACTS: (json.dumps(facts, indent=2) + "\n").encode()}.items():
        write_atomically(folder / name, content)
    print_json(facts) if args.json else print(f"{folder}: digits of {facts['source']}")
    return 0


def _check(args: argparse.Namespace) -> int:
    from letgo import tasks
    from letgo.data.check import check

    try:
        name = tasks.load(args.task) if args.task and ":" in args.task else args.task
        report = check(args.file, name, args.size, args.sample)
    except LetgoError as error:
        if args.task is not None or "one puzzle per line" not in str(error):
            raise
        raise LetgoError(f"{error}; it was read as sudoku, name another task with --task") from None
    print_json(report) if args.json else print("\n".join(_report_lines(report)))
    return 0


def _report_lines(report: dict[str, Any]) -> list[str]:
    """Write lines `key: value`, with counts as `what x how many`."""
    lines = []
    for key, value in report.items():
        if isinstance(value, dict):
            by = " x " if key in ("clues", "sources", "labels") else " "
            value = ", ".join(f"{what}{by}{number}" for what, number in value.items() if number is not None)
        if value is not None:
            lines.append(f"{key}: {value}")
    return lines
