"""Train several presets one after another in one process, within one time limit; the same command goes on.

    python tools/train_all.py latin latin-baseline queens queens-baseline --out runs --steps 200000 --max-seconds 1500
    python tools/train_all.py sudoku-extreme --data sudoku-extreme=data/sudoku-extreme --out runs --seeds 1,2

Runs are written to OUT/PRESET, with --seeds to OUT/PRESET/s1 and so on (trained together where that is faster). What
is complete is skipped; what does not fit in the time is left for the next call. Measure them with
`letgo reproduce table1 --models OUT`.
"""

import argparse
import json
import sys
import time
from pathlib import Path

from letgo.cli import main as letgo


def finished(run: Path, steps: int) -> bool:
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text(encoding="utf-8").splitlines() if metrics.exists() else []
    return bool(lines) and json.loads(lines[-1])["step"] >= steps and (run / "validation.json").exists()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("presets", nargs="+", metavar="PRESET")
    parser.add_argument("--out", type=Path, default=Path("runs"))
    parser.add_argument("--data", action="append", default=[], metavar="PRESET=PATH", help="training data of a preset")
    parser.add_argument("--steps", type=int, default=200_000)
    parser.add_argument("--seeds", help="further seeds, e.g. 1,2")
    parser.add_argument("--max-seconds", type=float, default=float("inf"))
    parser.add_argument("--device", default="auto")
    parser.add_argument("--log-every", default="500")
    options = parser.parse_args()
    end = time.monotonic() + options.max_seconds
    data = dict(item.split("=", 1) for item in options.data)
    for preset in options.presets:
        left = end - time.monotonic()
        runs = [options.out / preset / f"s{seed}" for seed in options.seeds.split(",")] if options.seeds else []
        if all(finished(run, options.steps) for run in runs or [options.out / preset]):
            continue
        if left <= 0:
            return 0
        words = ["train", preset, "--out", str(options.out / preset), "--steps", str(options.steps)]
        words += ["--device", options.device, "--log-every", options.log_every]
        for name, value in (("--seeds", options.seeds), ("--data", data.get(preset.removesuffix("-baseline")))):
            words += [name, value] if value else []
        if left < float("inf"):
            words += ["--max-seconds", f"{left:.0f}"]
        sys.argv = ["letgo", *words]  # what the run names as its command
        if status := letgo(words):
            return status
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
