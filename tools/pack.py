"""Training, validation and test instances as small .npz files, for a machine that lacks the originals.

    python tools/pack.py packs                                                    # files that are there are kept
    python tools/pack.py packs latin queens                                       # some presets
    python tools/pack.py packs sudoku-extreme --data data/sudoku-extreme          # rows of files, not generated ones

Then `letgo train latin --data packs/latin.npz`, `letgo train sudoku-extreme --data packs/sudoku-extreme`. Graphs are
missing on purpose: half a million take 15 seconds to draw. Boards whose clues training draws anew are stored without.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import torch

from letgo import __version__
from letgo.config import Config
from letgo.data.make import save
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.presets import preset
from letgo.tasks import Problem
from letgo.training.train import training_instances

COUNTS = {"valid": 500, "test": 1000}


def parts(config: Config, data: str | None) -> Iterator[tuple[str, Callable[[], Problem]]]:
    """What `letgo train` draws by itself with seed 0; where clues belong to instances, the other splits too.

    Those of files are whole and in order, so that a seed picks the same instances as there.
    """
    source = source_of(config.build_task(), data)
    if config.masks != "data":
        yield f"{config.name}.npz", lambda: without_clues(training_instances(config, data))
        return
    yield f"{config.name}/train.npz", lambda: training_instances(config, data)
    for split, count in COUNTS.items():
        yield (
            f"{config.name}/{split}.npz",
            lambda split=split, count=count: source.split(split) if data else source.draw(split, None, count, 0),
        )


def without_clues(problem: Problem) -> Problem:
    return replace(problem, given=torch.zeros_like(problem.given))


def write(path: Path, problem: Problem, config: Config) -> None:
    regime = "train" if path.stem == config.name else path.stem
    meta = {"task": config.task, "size": None, "regime": regime, "seed": 0, "count": len(problem)}
    save(path, problem, config.build_task(), {**meta, "version": __version__})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("presets", nargs="*", metavar="PRESET", help="default: sudoku latin queens maze")
    parser.add_argument("--data", metavar="FOLDER", help="holds the instances: train, valid and test files")
    options = parser.parse_args()
    try:
        for config in map(preset, options.presets or ("sudoku", "latin", "queens", "maze")):
            for file, problem in parts(config, options.data):
                path = options.out / file
                if not path.exists():
                    write(path, problem(), config)
                print(f"{path}  {path.stat().st_size / 1e6:.1f} MB", flush=True)
    except LetgoError as error:
        print(f"pack: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
