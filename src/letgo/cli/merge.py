"""`letgo merge`: the report of the whole from the reports of its parts."""

from __future__ import annotations

import argparse

from letgo.cli import options

MOST_REPORT = 64 << 20  # bytes: every outcome of a part is in it


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("parts", metavar="PART.json", nargs="+", type=options.path, help="of `letgo evaluate --shard`")
    options.report(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.cli.evaluate import summary
    from letgo.data.files import refuse_unwritable
    from letgo.errors import LetgoError
    from letgo.report import Report
    from letgo.runs import read_json

    refuse_unwritable(args.out)
    parts = []
    for path in args.parts:
        try:
            parts.append(Report.from_dict(read_json(path, MOST_REPORT)))
        except LetgoError as error:
            raise LetgoError(f"{path}: {error}") from None
    report = Report.merge(parts).as_dict()
    options.publish(report, args, summary)
    return 0
