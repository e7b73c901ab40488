"""`letgo models`: the models that are shipped."""

from __future__ import annotations

import argparse
import json
import sys

from letgo.cli import options


def add(parser: argparse.ArgumentParser) -> None:
    options.flag(parser, "--json")
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.runs import locate, read_json, shipped

    rows = []
    for name in shipped():
        folder, _ = locate(name)
        card = read_json(folder / "card.json") if (folder / "card.json").exists() else {}
        rows.append({"name": name, "task": read_json(folder / "config.json")["task"], **card})
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    wide = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        print(f"{row['name']:{wide}}  {row['task']:14}  {row.get('summary', '')}")
    if not rows:
        print("no models are shipped with this build", file=sys.stderr)
    return 0
