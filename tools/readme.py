"""Write the README's table of results from results/*.json, between its two markers.

python tools/readme.py            # the test suite fails where the README and the files disagree
"""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
# Table 1, 21 clues: baseline and self-correction, mean of three seeds after 2,000,000 steps.
PAPER = {
    "ddpm": (0.31, 0.87),
    "euler": (0.20, 0.79),
    "em": (0.21, 0.82),
    "em-decay": (0.81, 0.98),
    "tweedie": (0.95, 0.98),
}
NAMES = {
    "ddpm": "DDPM",
    "euler": "Euler",
    "em": "Euler-Maruyama",
    "em-decay": "EM decay",
    "tweedie": "**Tweedie reprojection**",
}


def reports(name: str, regime: str = "21") -> dict[str, dict[str, Any]]:
    path = ROOT / "results" / f"{name}.json"
    return {r["rule"]: r for r in json.loads(path.read_text()) if r["regime"] == regime}


def cell(report: dict[str, Any] | None) -> str:
    if report is None:
        return "-"
    v = report["validity"]
    fewer = "" if v["n"] == 2000 else f" (n = {v['n']})"
    return f"{v['value']:.3f} [{v['low']:.3f}, {v['high']:.3f}]{fewer}"


def section() -> str:
    baseline, corrected = reports("sudoku-baseline"), reports("sudoku")
    cards = {
        name: json.loads((ROOT / "src" / "letgo" / "shipped" / name / "card.json").read_text())
        for name in ("sudoku-baseline", "sudoku")
    }
    rows = [
        f"| {NAMES[rule]} | {cell(baseline.get(rule))} | {plain:.2f} | {cell(corrected.get(rule))} | {taught:.2f} |"
        for rule, (plain, taught) in PAPER.items()
        if rule in baseline or rule in corrected
    ]
    one = next(iter(corrected.values()))
    trained = ", ".join(f"`{n}` {c['steps']:,} steps in {c['seconds'] / 60:.0f} minutes" for n, c in cards.items())
    solved = json.loads((ROOT / "results" / "solve.json").read_text())
    return "\n".join(
        [
            "Share of valid boards, Sudoku with 21 clues, with its 95% interval:",
            "",
            "| sampler | `sudoku-baseline` | paper | `sudoku` (self-corrected) | paper |",
            "|---|---|---|---|---|",
            *rows,
            "",
            f"n = {one['validity']['n']} boards that no training saw (where not said otherwise), seed {one['seed']}, "
            f"{one['steps']} steps, one sample a board; `{one['command']}` and its like. "
            f"One training seed: {trained} on one H200, with the learning rate falling "
            "to 0 at the end. Measured before the weights were rounded to fp16, but for EM decay with the baseline. "
            "The paper's columns are means of three seeds at 2,000,000 steps.",
            "",
            f"With a look at the rules (`letgo solve --tries {solved['tries']}`), `sudoku` solved "
            f"{solved['solved']} of {solved['puzzles']} unseen 21-clue",
            f"puzzles, with {solved['mean_calls']:.0f} network calls each on average.",
        ]
    )


def updated(readme: str) -> str:
    head, rest = readme.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{section()}\n{END}{tail}"


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(updated(path.read_text()))
