"""`letgo models`: the models that are shipped."""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from typing import Any

from letgo.cli import options

WIDE = 80


def add(parser: argparse.ArgumentParser) -> None:
    options.flag(parser, "--long", "with data, figures, and the lines that train and measure each again")
    options.flag(parser, "--json", "all that the cards say")
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
    if args.long:
        print("\n\n".join(long(row) for row in rows))
        return 0
    wide = max((len(row["name"]) for row in rows), default=0)
    for row in rows:
        print(wrapped(f"{row['name']:{wide}}  ", row.get("summary", "")))
    if not rows:
        print("no models are shipped with this build", file=sys.stderr)
    return 0


def wrapped(head: str, text: str) -> str:
    """Return the text beside its head, and below where it is long."""
    return textwrap.fill(text, WIDE, initial_indent=head, subsequent_indent=" " * len(head)) or head


def long(card: dict[str, Any]) -> str:
    """Tell all that a reader asks of a model. Commands stay on one line, to be pasted."""
    lines = [f"{card['name']}: {card.get('summary', '')}" if "summary" in card else card["name"]]
    lines = textwrap.wrap(lines[0], WIDE, subsequent_indent="  ")
    for head, text in (("data", card.get("data")), ("recipe", card.get("recipe")), ("training", training(card))):
        if text:
            lines.append(wrapped(f"  {head:9} ", text))
    for figure in card.get("figures", []):
        span = f"{figure['value']:.3f} [{figure['low']:.3f}, {figure['high']:.3f}]"
        lines.append(f"  figure    {figure['rule']} {figure['regime']}: {span}, n = {figure['n']}:")
        lines.append(f"  {figure['command']}")
    if card.get("again"):
        lines += [wrapped("  again     ", card["again_seen"] + ":"), f"  {card['again']}"]
    else:
        lines.append(wrapped("  made by   ", card.get("made_note", "")).rstrip())
        lines += [f"  {command}" for command in card.get("commands", [])]
    return "\n".join(lines)


def training(card: dict[str, Any]) -> str:
    if not {"steps", "seconds", "trained_on"} <= set(card):
        return ""
    return f"{card['steps']:,} steps in {card['seconds']:,.0f} s on {card['trained_on']}"
