"""SRM's data layout: a folder with `sudokus.npy`, complete boards (n, 9, 9) of the digits 1 to 9."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from letgo.data.files import FilePath, place, regular_file
from letgo.data.source import HELD_OUT, Source, file_identity
from letgo.errors import LetgoError
from letgo.tasks.task import Problem

BOARDS = "sudokus.npy"
TEST = 10_000  # boards at the end of the file, but at most a tenth of them


class MnistSudokus(Source):
    """Sudokus have random clues; those of SRM's file are cut as SRM cuts them, the last boards for tests."""

    def split(self, split: str) -> Problem:
        """Return a part: the last boards are for tests, those before them for validation, the others for training."""
        path = self._boards()
        if path is None:
            return super().split(split)
        rows = self.read_boards(path)
        test = min(TEST, len(rows) // 10)
        valid = min(HELD_OUT, len(rows) // 10)
        parts = {"train": rows[: -test - valid], "valid": rows[-test - valid : -test], "test": rows[-test:]}
        if not test:
            raise LetgoError(f"{place(path)}: {len(rows)} boards are too few to cut in three; expected 10 at least")
        return parts[split]

    def identity(self, split: str) -> dict[str, Any] | str:
        path = self._boards()
        return super().identity(split) if path is None else file_identity(path)

    def read(self, path: FilePath, solved: bool = False) -> Problem:
        return self.read_boards(Path(path)) if Path(path).suffix == ".npy" else super().read(path, solved)

    def read_boards(self, path: Path) -> Problem:
        """Return all boards of the file, each of them valid."""
        regular_file(path)
        try:
            boards = np.load(path, mmap_mode="r", allow_pickle=False)
        except Exception as error:  # numpy raises many kinds for a foreign or damaged file
            raise LetgoError(f"{place(path)}: not an array of numpy ({str(error)[:80]}); copy it again") from None
        side = self.task.symbols
        if boards.ndim != 3 or boards.shape[1:] != (side, side) or boards.dtype.kind not in "iu" or not len(boards):
            shape = f"an array {boards.shape} of {boards.dtype}"
            raise LetgoError(f"{place(path)}: {shape}; expected boards (n, {side}, {side}) of the digits 1 to {side}")
        symbols = torch.from_numpy(np.asarray(boards).reshape(len(boards), -1).astype(np.int64)) - 1
        problem = Problem(symbols, torch.zeros_like(symbols, dtype=torch.bool))
        wrong = ~self.task.validate(symbols, problem)
        if wrong.any():
            raise LetgoError(f"{place(path)}: board {int(wrong.nonzero()[0]) + 1} breaks a rule; copy the file again")
        return problem

    def _boards(self) -> Path | None:
        """Return SRM's file, where the data are that or its folder."""
        path = Path(str(self.data)) if self.data is not None else Path()
        path = path / BOARDS if path.is_dir() and self.data is not None else path
        return path if path.suffix == ".npy" and path.is_file() else None
