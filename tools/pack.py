"""Training, validation and test instances as small .npz files, for a machine that lacks the originals.

    python tools/pack.py packs --extreme data/sudoku-extreme      # all tasks; files that are there already are kept
    python tools/pack.py packs latin queens                       # some of them

Then `letgo train latin --data packs/latin.npz`, `letgo train sudoku-extreme --data packs/sudoku-extreme`. Graphs are
missing on purpose: half a million take 15 seconds to draw. Boards whose clues training draws anew are stored without.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from letgo import __version__
from letgo.data.make import save
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.presets import preset
from letgo.tasks import Problem
from letgo.training.train import training_instances

MAZES = {"valid": 500, "test": 1000}
Part = tuple[str, Callable[[], Problem]]


def drawn(name: str) -> Iterator[Part]:
    """What `letgo train NAME` draws by itself with seed 0."""
    yield f"{name}.npz", lambda: without_clues(training_instances(preset(name), None))


def mazes(name: str) -> Iterator[Part]:
    config = preset(name)
    source = source_of(config.build_task())
    yield f"{name}/train.npz", lambda: training_instances(config, None)
    for split, count in MAZES.items():
        yield f"{name}/{split}.npz", lambda split=split, count=count: source.draw(split, None, count, 0)


def extreme(folder: str | None) -> Iterator[Part]:
    """Training rows by source; validation and test whole, in order, so that a seed picks the same puzzles as there."""
    if folder is None:
        raise LetgoError("sudoku-extreme needs --extreme FOLDER with train.csv.gz, valid.csv.gz and test.csv.gz")
    config = preset("sudoku-extreme")
    task = config.build_task()
    yield "sudoku-extreme/train.npz", lambda: training_instances(config, folder)
    for split in ("valid", "test"):
        yield f"sudoku-extreme/{split}.npz", lambda split=split: source_of(task, folder).split(split)


def without_clues(problem: Problem) -> Problem:
    return replace(problem, given=torch.zeros_like(problem.given))


def parts(name: str, folder: str | None) -> Iterator[Part]:
    if name == "sudoku-extreme":
        return extreme(folder)
    return mazes(name) if preset(name).task == "maze" else drawn(name)


def write(path: Path, problem: Problem, name: str) -> None:
    meta: dict[str, Any] = {
        "task": preset(name).task,
        "size": None,
        "regime": path.stem if path.stem != name else "train",
    }
    meta |= {"seed": 0, "count": len(problem), "version": __version__}
    save(path, problem, preset(name).build_task(), meta)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    names = ["sudoku", "latin", "queens", "maze", "sudoku-extreme"]
    chosen = f"{' '.join(names)} (default: all of these), maze-muon"
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=chosen)
    parser.add_argument("--extreme", metavar="FOLDER", help="the Sudoku-Extreme files")
    options = parser.parse_args()
    try:
        for name in options.tasks or names:
            for file, problem in parts(name, options.extreme):
                path = options.out / file
                if not path.exists():
                    write(path, problem(), name)
                print(f"{path}  {path.stat().st_size / 1e6:.1f} MB", flush=True)
    except LetgoError as error:
        print(f"pack: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
