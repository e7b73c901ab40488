"""`letgo presets`: the rows that can be trained."""

from __future__ import annotations

import argparse
import json

from letgo.cli import options


def add(parser: argparse.ArgumentParser) -> None:
    options.flag(parser, "--json")
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.presets import PRESETS

    if args.json:
        print(json.dumps({name: config.as_dict() for name, config in PRESETS.items()}, indent=2))
        return 0
    for name, config in PRESETS.items():
        objective = config.objective + (f" ({config.simple_weight:g})" if config.objective != "simple" else "")
        print(f"{name:26} {config.task:15} {objective:22} batch {config.batch:<4} {config.steps:>9,} steps")
    return 0
