"""Models that no weights are shipped of: the line that trains each, and what it costs.

The runs of Figs. 9 and 10 and the two rows of Table 8 that no preset is of have names of their own here, those of
docs/ablations.md; `--models FOLDER` holds them.
"""

from __future__ import annotations

import shlex

from letgo.config import Config
from letgo.presets import PRESETS, preset
from letgo.reproduce.paper import TABLES

KEPT = "--steps 100000 --keep 20000,60000,100000"  # checkpoints of the paper's grid, as far as these runs go
EARLY = "--steps 200000 --seeds 0,1,2"  # Table 8's
LAMBDAS = {
    f"lambda-{weight}": f"sudoku --simple-weight {weight} {KEPT}" for weight in ("0", "0.01", "0.1", "0.2", "0.5")
}
VARIANTS = {
    name: f"sudoku --ablation {name} {KEPT}"
    for name in ("input-perturbation", "ddpm-step", "ddpm-mean", "ddpm-step-mean", "random-n", "self-conditioning")
}
RUNS = {
    "baseline": f"sudoku-baseline {KEPT}",
    **LAMBDAS,
    **VARIANTS,
    "rollouts-16": f"sudoku --ablation rollouts-16 --init sudoku-baseline --learning-rate 1e-4 {KEPT}",
    **{f"sudoku-{name}": f"sudoku --ablation {name} {EARLY}" for name in ("corrupt-20", "corrupt-40")},
}
FIG9 = ("baseline", *LAMBDAS)
FIG10 = ("baseline", "lambda-0.1", *VARIANTS, "rollouts-16")

# Milliseconds of a step on an H200 (docs/performance.md), estimates where a step is more than two passes; a CPU core
# takes about three forward passes of .97 ms a board for each of 256 boards, and half as much again with a second input
SIMPLE, TWICE = 1.0, 1.33
SLOW = {"random-n": 2.4, "self-conditioning": 3.0, "rollouts-16": 3.0}
CPU = 750.0


def config_of(model: str) -> Config:
    """Return the preset of a model's name, or the one that a run of ours starts from."""
    return preset(RUNS[model].split()[0] if model in RUNS else model)


def training(model: str, folder: str = "runs", seed: int = 0) -> str:
    """Return the line that trains a seed of a model, or all where they are trained together; "" of nobody's name."""
    if model not in RUNS and model not in PRESETS:
        return ""
    config = config_of(model)
    of_files = any(c.file and c.task == config.task for table in TABLES.values() for c in table.columns)
    files = ["--data", "FOLDER"] if of_files else ["--digits", "FOLDER"] if config.codec == "digits" else []
    words = RUNS.get(model, model).split()
    one = seed > 0 and "--seeds" not in words
    which, out = (["--seed", str(seed)], f"{model}.s{seed}") if one else ([], model)
    return shlex.join(["letgo", "train", *words, *files, *which, "--out", f"{folder}/{out}"])


def how_to_train(model: str, folder: str = "runs", seed: int = 0) -> str:
    line = training(model, folder, seed)
    return f"; `{line}` trains it" if line else ""


def seconds(model: str) -> tuple[float, float]:
    """Return how long the training of all seeds of a run takes, on a CPU core and on an H200; 0 for a preset."""
    words = RUNS.get(model, "").split()
    if not words:
        return 0.0, 0.0
    steps = int(words[words.index("--steps") + 1])
    seeds = len(words[words.index("--seeds") + 1].split(",")) if "--seeds" in words else 1
    once = config_of(model).objective == "simple" or "input-perturbation" in words
    each = SLOW.get(model, SIMPLE if once else TWICE)
    return seeds * steps * CPU * each / 1000, seeds * steps * each / 1000
