"""`letgo presets`: the rows that can be trained."""

from __future__ import annotations

import argparse
import json

from letgo.cli import options


def add(parser: argparse.ArgumentParser) -> None:
    options.flag(parser, "--json", "all their settings, as JSON")
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.presets import PRESETS

    if args.json:
        print(json.dumps({name: config.as_dict() for name, config in PRESETS.items()}, indent=2))
        return 0
    wide = max(map(len, PRESETS))
    for name, config in PRESETS.items():
        weight = f" {config.simple_weight:g}" if config.objective == "self-correction" else ""
        print(f"{name:{wide}}  {config.objective + weight:19}  batch {config.batch:<3}  {config.steps:>9,} steps")
    return 0
