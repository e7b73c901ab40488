"""`letgo push`: a model with its card to the Hugging Face Hub."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from letgo.cli import options


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="RUN", help="a run folder, RUN@STEP or a shipped name")
    parser.add_argument("identifier", metavar="ID", help="where to, as NAME/MODEL; `letgo.load('hub:ID')` reads it")
    options.flag(parser, "--private", "where it is new: a repository that you alone see")
    parser.add_argument("--licence", metavar="NAME", help="one of the Hub's names, such as mit (default: unknown)")
    text = "a report of `letgo evaluate --out` for the card, one or more (default: its own validation)"
    parser.add_argument("--report", type=options.path, metavar="FILE", action="append", default=[], help=text)
    options.flag(parser, "--dry-run", "print the card and the names of the files, and push nothing")
    options.own_task(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.hub import push, stage
    from letgo.report import Report

    reports = tuple(Report.read(path).as_dict() for path in args.report)
    if args.dry_run:
        with tempfile.TemporaryDirectory() as name:
            stage(args.model, Path(name), args.identifier, args.licence, reports)
            print((Path(name) / "README.md").read_text(encoding="utf-8"))
            print("files:", ", ".join(sorted(path.name for path in Path(name).iterdir())))
        return 0
    args.voice.announce(f"pushing {args.model} to {args.identifier}")
    print(push(args.model, args.identifier, args.private, args.licence, reports))
    return 0
