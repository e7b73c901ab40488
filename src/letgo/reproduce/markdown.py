"""Pieces of Markdown that the page is made of."""

from __future__ import annotations

import re
from typing import Any

from letgo.reproduce.store import Report, Store


def share(score: dict[str, Any], digits: int = 3) -> str:
    """`0.953 [0.943, 0.961]`."""
    if score.get("low") is None:
        return f"{score['value']:.{digits}f}"
    return f"{score['value']:.{digits}f} [{score['low']:.{digits}f}, {score['high']:.{digits}f}]"


def as_table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in lines)


def anchor(title: str) -> str:
    """Where GitHub puts a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def steps_text(store: Store, report: Report) -> str:
    steps = store.trained_steps(report)
    return f"{steps:,}" if steps else "?"


def command(report: Report) -> str:
    """With the settings that it took from a file beside the model: another copy of the run may lack it."""
    words = [report["command"]]
    for name, value in report.get("settings", {}).items():
        flag = f"--{name.replace('_', '-')}"
        words += [] if f"{flag} " in words[0] else [f"{flag} {value:g}"]
    return " ".join(words)


def commands_block(lines: list[str]) -> list[str]:
    """Each command once, folded away; nothing where there is none."""
    shown = "\n".join(dict.fromkeys(lines))
    return [f"<details><summary>Commands</summary>\n\n```\n{shown}\n```\n\n</details>"] if lines else []


def signed(difference: float, digits: int) -> str:
    return f"{round(difference, digits) + 0.0:+.{digits}f}"  # + 0.0: no -0.0
