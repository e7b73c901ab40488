"""Measure SRM's published rectified-flow baseline on MNIST-Sudoku with a rule of ours (section 4, Figs. 16 and 17).

    letgo data digits FOLDER-WITH-MNIST --preset mnist-sudoku --out digits/mnist-28
    python tools/srm.py last.ckpt --digits digits/mnist-28 --rule tweedie --count 1000 --out srm-tweedie.json

The checkpoint is `outputs/ms1000_base/.../last.ckpt` of SRM's release; nothing in it is run. Clues are pinned softly at
all times, as the network was trained on boards that are noisy all over, and taken as given when a board is read.
"""

import argparse
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from letgo.data.digits import read_facts
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.evaluation import evaluate
from letgo.models.srm import WIDTHS, UNet, load_srm
from letgo.presets import preset
from letgo.runs import write_json
from letgo.samplers import Sampler
from letgo.solver import Solver


def measure(options: argparse.Namespace) -> dict[str, object]:
    """Return the report of one rule, as `letgo evaluate --json` writes it."""
    facts, config = read_facts(options.digits), preset("mnist-sudoku-baseline")
    config = replace(config, name="srm", codec_options={**config.codec_options, "source": facts["source"]})
    network = load_srm(options.checkpoint, UNet(widths=options.widths))
    solver = Solver(config, network, options.device, options.digits, fast=options.device != "cpu")
    problem = source_of(solver.task, options.data).draw("test", options.regime, options.count, options.seed)
    sampler = Sampler(options.rule, options.steps, soft_until=0.0)
    report = evaluate(solver, problem, sampler, seed=options.seed, batch=options.batch)
    named = replace(report, model="srm", regime=options.regime, command="python " + shlex.join(sys.argv))
    return {**named.as_dict(), "digits": {name: facts[name] for name in ("source", "pool", "accuracy", "ceiling")}}


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(","))


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--digits", type=Path, required=True)
    parser.add_argument("--rule", default="tweedie")
    parser.add_argument("--regime", default="hard")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--data", help="SRM's folder with sudokus.npy; without it boards of our own")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path)
    widths = [int(width) for width in WIDTHS]
    parser.add_argument(
        "--widths", type=lambda text: [int(w) for w in text.split(",")], default=widths, help="for a trial"
    )
    options = parser.parse_args(words)
    try:
        report = measure(options)
    except LetgoError as error:
        parser.error(str(error))
    if options.out:
        write_json(options.out, report)
    score = report["validity"]
    print(f"{options.rule}: {score['value']:.4f} [{score['low']:.4f}, {score['high']:.4f}], n = {score['n']}")


if __name__ == "__main__":
    main()
