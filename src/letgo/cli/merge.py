"""`letgo merge`: the report of the whole from the reports of its parts."""

from __future__ import annotations

import argparse

from letgo.cli import options


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("parts", metavar="PART.json", nargs="+", type=options.path, help="of `letgo evaluate --shard`")
    options.report(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.cli.evaluate import summary
    from letgo.data.files import refuse_unwritable
    from letgo.report import Report

    refuse_unwritable(args.out)
    report = Report.merge([Report.read(path) for path in args.parts]).as_dict()
    options.publish(report, args, summary)
    return 0
