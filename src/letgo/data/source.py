"""Where a task's instances come from: its own generator, a list, or files. `source_of` is the one door to them."""

from __future__ import annotations

import gzip
import hashlib
import sys
import zipfile
from dataclasses import replace
from functools import cache
from math import isqrt
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from letgo import tasks
from letgo.data.columns import questions
from letgo.data.files import FilePath, file_kind, place
from letgo.data.puzzles import parse_puzzles, read_puzzles
from letgo.data.store import load_npz, npz_meta
from letgo.errors import LetgoError, unknown
from letgo.machine import refuse_beyond_memory
from letgo.rng import data_rng
from letgo.tasks.task import Look, Problem, Task, solved

SUFFIXES = ("npz", "csv", "csv.gz")
HELD_OUT = 2_000  # rows, but at most a tenth, at the end of a train file without a valid file beside it
AT_ONCE, LARGE_AT_ONCE = 1024, 64  # instances that `make` draws at once; part of what a seed means
LARGE = 256  # cells: 16x16 Sudokus and mazes are slow to find


def source_of(task: Task, data: FilePath | None = None) -> Source:
    """Return the source that the task is registered with; `data` is a file, a folder of splits or 'hub'."""
    row = tasks.find(task.name)
    build = Source if row is None else tasks.resolve(row.source)
    return build(task, None if data is None else str(data))


class Source:
    """A Source has instances that the task draws itself or, with `data`, those of files."""

    hub: str | None = None  # the name of the task's data set in `letgo.data.fetch`
    partial = False  # whether rows are read of which some cells are open: `letgo complete`
    has_csv = False  # whether the task has a layout of columns, that of its data set

    def __init__(self, task: Task, data: str | None = None):
        self.task, self.data = task, data
        self.regimes = task.regimes
        self.usual = task.regimes[0]  # the regime of `letgo data make` and of the page's random puzzles
        # The least, the most and the usual number, where a regime may be a number (of clues, of nodes).
        self.counts = None if task.usual_clues is None else (0, task.cells - 1, task.usual_clues)
        self.keeps_clues = not task.generates  # instances of a file keep the clues that came with them

    @property
    def look(self) -> Look:
        return self.task.look

    # The three questions that a source answers.

    def draw(self, split: str, regime: str | None, count: int, seed: int) -> Problem:
        """Draw the instances of (split, regime, seed), numbered: the same for every model and rule, never those of
        training.

        Where a regime is a split, it is the one that is drawn from.
        """
        if count < 1:
            raise LetgoError(f"count must be at least 1, got {count}")
        self.check_memory(count)
        if regime == "valid" and split == "test":
            split = "valid"
        rng = data_rng(seed, split)
        if self.data is None:
            problem = self.generate(split, regime or self.regimes[0], count, rng)
        else:
            problem = self._choose(split, regime, count, rng)
        return replace(problem, number=torch.arange(len(problem)))

    def training(self, count: int, seed: int) -> Problem:
        """Return training instances: `count` of the task's own, or all of a file's."""
        if self.data is not None:
            return self.split("train")
        self.check_memory(count)
        return self.generate("train", "train", count, data_rng(seed, "train"))

    def validation(self, count: int, seed: int) -> Problem:
        """Return instances that choose a run's weights; a file alone has none of its own, so the task draws them."""
        beside = self.data == "hub" or (self.data is not None and Path(self.data).is_dir())
        return (self if beside else type(self)(self.task)).draw("valid", None, count, seed)

    def identity(self, split: str) -> dict[str, Any] | str:
        """Return the file that a split is read from, by name, hash and length: paths differ from machine to machine."""
        path = self.file_of(split)
        return "generated" if path is None else file_identity(path)

    def file_of(self, split: str) -> Path | None:
        """Return the file that a split is read from; None where instances are generated."""
        if self.data is None:
            return None
        folder = self._folder()
        path = Path(self.data) if folder is None else split_file(folder, split)
        if path is None and folder is not None and split == "valid":
            path = split_file(folder, "train")  # whose last rows are held out
        if path is None or not path.is_file():
            raise LetgoError(f"{self.data}: no {split} file there; give --data FILE or a folder that holds {split}.csv")
        return path

    def names(self, split: str, problem: Problem) -> list[str]:
        """Return where each instance comes from, where a data set says so; else all are of one kind."""
        return ["all"] * len(problem)

    # What is refused or remarked upon.

    def check_training(self) -> None:
        """Refuse to train on as many generated instances as a preset has rows of a data set."""

    def check_tuning(self) -> None:
        """Tuning looks at validation instances of the kind that the model is measured on, never at other rows."""
        if self.data is None or Path(self.data).is_dir():
            return
        name = Path(self.data).name.lower()
        if name.startswith("test."):
            raise LetgoError(f"--data {self.data}: tuning never looks at test instances; give valid.csv, or the folder")
        if name.startswith("train.") and not lends_rows(Path(self.data)):
            raise LetgoError(
                f"--data {self.data}: tuning never looks at training instances; give the valid file beside it"
            )

    def check_memory(self, count: int) -> None:
        """Refuse more instances than can be drawn; a cell is a symbol and whether it is given, twice meanwhile."""
        refuse_beyond_memory(count, 2 * 9 * self.task.cells, f"instances of {self.task.name}")

    def remark(self, regime: str | None) -> str:
        """Return what a reader of scores should know of these instances."""
        return ""

    def check_regime(self, regime: str) -> None:
        """Refuse, before a file is read, a regime that rows with clues of their own cannot have."""
        if self.keeps_clues and regime not in (*self.regimes, "train"):
            raise unknown("regime", regime, (*self.regimes, "train"))

    def check_rows(self, regime: str, rows: Problem) -> None:
        """Refuse a regime that the rows of a file do not have."""

    # Instances of the task's own.

    def generate(self, split: str, regime: str, count: int, rng: np.random.Generator) -> Problem:
        free = self.task.usual_clues is not None or regime.isdecimal()
        if not free and regime not in (*self.regimes, "train"):
            raise unknown("regime", regime, self.regimes)
        return self.task.generate(count, rng, regime)

    def at_once(self, regime: str) -> int:
        """Return how many instances `make` draws at once."""
        return LARGE_AT_ONCE if self.task.cells >= LARGE else AT_ONCE

    # Instances of files.

    def own_clues(self, problem: Problem) -> bool:
        """Return whether no clues can be drawn, since the puzzles came without their answers."""
        return not self.keeps_clues and not solved(problem, self.task)

    def _choose(self, split: str, regime: str | None, count: int, rng: np.random.Generator) -> Problem:
        explicit = regime is not None or split == "test"  # a run's own validation has no regime
        regime = regime or self.regimes[0]
        self.check_regime(regime)
        rows = self.split(split)
        if split == "valid":
            count = min(count, len(rows))  # held-out rows may be few
        if len(rows) < count:
            raise LetgoError(
                f"{self.data} holds {len(rows)} instances, fewer than --count {count}; give --count {len(rows)}"
            )
        if explicit:
            self.check_rows(regime, rows)
        chosen = rows[torch.from_numpy(rng.choice(len(rows), count, replace=False))]
        own = self.own_clues(chosen)
        if own and explicit and regime != self.regimes[0]:
            raise LetgoError(f"{self.data}: puzzles without answers bring their own clues; leave --regime out")
        if self.keeps_clues or own:
            return chosen
        return Problem(chosen.solution, self.task.masks(chosen.solution, regime, rng), chosen.context)

    def split(self, split: str) -> Problem:
        """Return all rows of 'train', 'valid' or 'test' of a folder (or of the hub's data set); a file serves for any
        of them.

        The hub's data sets have no validation file: there the last rows of train.csv are held out for it. So they are
        of a file called train.* with no valid.* beside it, since its folder may be given the next time.
        """
        folder = self._folder()
        if folder is None:
            path = Path(str(self.data))
            problem = self.read(str(self.data), solved=split == "train")
            return _part(problem, split) if split != "test" and lends_rows(path) else problem
        own = split_file(folder, split)
        if own is not None and (split != "train" or split_file(folder, "valid") is not None):
            return self.read(own)
        train = split_file(folder, "train")
        if split == "test" or train is None:
            names = ", ".join(f"{split}.{suffix}" for suffix in SUFFIXES)
            raise LetgoError(f"{place(folder)}: no file for {split} in it; expected one of {names}")
        return _part(self.read(train), split)

    def read(self, path: FilePath, solved: bool = False) -> Problem:
        """Read .npz of `letgo data make`, .npy or .npz with boards, .csv(.gz) where the task has a layout for it.

        All else has a puzzle per line. These need no answers, and where they have none the solution is 0; `solved`
        refuses those.
        """
        kind = file_kind(path)
        if kind in ("npz", "npy"):
            return load_npz(path, self.task)
        if kind == "csv":
            return self.read_csv(path)
        problem = read_puzzles(path, self.task)
        complete = self.task.validate(problem.solution, problem)
        if solved and not complete.all():
            number = int((~complete).nonzero()[0]) + 1
            raise LetgoError(f"{place(path)}: puzzle {number} has no answer; solved boards come from .npz or .csv")
        return problem

    def read_csv(self, path: FilePath) -> Problem:
        raise LetgoError(
            f"{place(path)}: .csv files hold 9x9 Sudokus or mazes, not {self.task.name} of {self.task.cells} cells; "
            "use .npz or .txt"
        )

    def read_questions(self, path: FilePath) -> Problem:
        """Read the puzzles of a .csv alone, whatever else it holds."""
        texts = [(place(path, line), row[1]) for line, row in questions(path)]
        if not texts:
            raise LetgoError(f"{place(path)}: no rows after the header; expected one puzzle per row")
        return parse_puzzles(texts, self.task)

    def read_partial(self, path: FilePath) -> Problem:
        """Read rows of which some cells are left open."""
        raise LetgoError(f"{place(path)}: {self.task.name} has no partial rows; solve its puzzles by `letgo solve`")

    def csv_texts(self, problem: Problem) -> tuple[list[str], list[str]]:
        """Return questions and answers as a .csv has them."""
        return self.task.format_clues(problem), self.task.format(problem.solution, problem)

    def inspect(self, path: FilePath, sample: int) -> dict[str, Any]:
        """Return what is in a file; its first fault is a LetgoError."""
        problem = self.read(path)
        made = npz_meta(path) if file_kind(path) == "npz" else {}
        return clue_counts(problem.given.numpy()) | ({"made": made} if made else {}) | self.task.facts(problem, sample)

    def _folder(self) -> Path | None:
        """Return the folder; None for a file. 'hub' fetches the task's data set first, where it is not there yet."""
        if self.data != "hub":
            return Path(str(self.data)) if Path(str(self.data)).is_dir() else None
        if self.hub is None:
            raise LetgoError(f"--data hub: the hub has no data set for {self.task.name}; give --data FILE")
        from letgo.data.fetch import fetch

        return fetch(self.hub)[0].parent


def load_problems(path: FilePath, task: Task, solved: bool = False) -> Problem:
    """Return the puzzles of one file, whatever its kind."""
    return source_of(task).read(path, solved)


class Listed(Source):
    """Boards come from a list in three parts: so few exist that training, validation and test need their own."""

    def generate(self, split: str, regime: str, count: int, rng: np.random.Generator) -> Problem:
        """Draw uniformly; the regime 'train' gives no board twice before each has come once."""
        listed: Any = self.task  # the task has a method `listed`
        boards = listed.listed("train" if regime == "train" else split)
        if boards is None:
            return super().generate(split, regime, count, rng)
        drawn = in_rounds(len(boards), count, rng) if regime == "train" else rng.integers(len(boards), size=count)
        board = torch.from_numpy(boards[drawn]).long()
        return Problem(board, self.task.masks(board, regime, rng))

    def at_once(self, regime: str) -> int:
        return sys.maxsize if regime == "train" else super().at_once(regime)


class Graphs(Source):
    """A graph's regime is its number of nodes."""

    def __init__(self, task: Task, data: str | None = None):
        super().__init__(task, data)
        nodes = isqrt(task.cells)
        self.usual, self.counts = str(nodes), (2, sys.maxsize, nodes)

    def check_regime(self, regime: str) -> None:
        """A regime is any number of nodes, which `check_rows` compares with the file's."""

    def check_rows(self, regime: str, rows: Problem) -> None:
        nodes = isqrt(rows.solution.shape[1])
        if regime not in ("train", str(nodes)):
            raise LetgoError(f"{self.data} holds graphs of {nodes} nodes, not of {regime}; give --regime {nodes}")


def in_rounds(rows: int, count: int, rng: np.random.Generator) -> Int[np.ndarray, "{count}"]:
    """Draw numbers of rows, none of them twice before every one has come once."""
    rounds = (rng.permutation(rows) for _ in range(-(-count // max(rows, 1))))
    return np.concatenate([np.empty(0, np.int64), *rounds])[:count]


def split_file(folder: Path, split: str) -> Path | None:
    paths = (folder / f"{split}.{suffix}" for suffix in SUFFIXES)
    return next((path for path in paths if path.is_file()), None)


def lends_rows(path: Path) -> bool:
    """Return whether a file's last rows are held out for validation."""
    return path.name.startswith("train.") and split_file(path.parent, "valid") is None


def held_out(rows: int) -> int:
    return min(HELD_OUT, rows // 10)


def _part(problem: Problem, split: str) -> Problem:
    end = len(problem) - held_out(len(problem))
    return problem[:end] if split == "train" else problem[end:]


@cache
def file_identity(path: Path) -> dict[str, Any]:
    """Name a file by name, hash and, where they are told at a glance, rows."""
    raw = path.read_bytes()
    found: dict[str, Any] = {"file": path.name, "sha256": hashlib.sha256(raw).hexdigest()}
    if file_kind(path) == "csv":
        text = gzip.decompress(raw) if path.suffix == ".gz" else raw
        found["rows"] = text.count(b"\n") - text.endswith(b"\n")  # the header is no row
    if file_kind(path) == "npz" and zipfile.is_zipfile(path):
        found["rows"] = npz_meta(path).get("count")
    return found


def clue_counts(given: np.ndarray) -> dict[str, Any]:
    """Count the rows, and how many have how many clues."""
    clues, rows = np.unique(given.sum(axis=1), return_counts=True)
    return {"rows": len(given), "clues": dict(zip(clues.tolist(), rows.tolist(), strict=True))}
