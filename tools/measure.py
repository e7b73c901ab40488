"""Tune and measure a model with every rule, all reports in one file.

    python tools/measure.py runs/sudoku --regimes 21,medium,hard --count 2000 --out results/sudoku.json

Each report carries the `letgo evaluate` command that repeats it.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

from letgo.cli import main as letgo
from letgo.runs import write_json

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model")
parser.add_argument("--regimes", required=True)
parser.add_argument("--rules", default="ddpm,euler,em,em-decay,tweedie")
parser.add_argument("--tune", action="store_true", help="choose sigma and tau_start first, and store them with the run")
parser.add_argument("--count", default="2000")
parser.add_argument("--device", default="auto")
parser.add_argument("--out", type=Path, required=True)
options = parser.parse_args()


def call(*words: str) -> None:
    sys.argv = ["letgo", *words]  # what the report names as its command
    if status := letgo(list(words)):
        raise SystemExit(status)


common = ("--device", options.device, "--plain")
if options.tune:
    for rule in ("em", "em-decay"):
        call("tune", options.model, "--rule", rule, *common)
reports = []
for regime in options.regimes.split(","):
    for rule in options.rules.split(","):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "report.json"
            words = ("evaluate", options.model, "--rule", rule, "--regime", regime, "--count", options.count, *common)
            call(*words, "--out", str(out))
            report = json.loads(out.read_text())
            reports.append({**report, "command": report["command"].split(" --out ")[0]})
        write_json(options.out, reports)
