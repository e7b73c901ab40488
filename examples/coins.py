"""Coins: a row of heads and tails with exactly two heads, for instance `HTTH`."""

import numpy as np
import torch

from letgo.errors import LetgoError
from letgo.tasks import Look, Problem, Task, random_masks


class Coins(Task):
    name, cells, symbols, regimes = "coins", 4, 2, ("gen", "train")

    def solved(self, count, rng: np.random.Generator):
        return torch.from_numpy(rng.permuted(np.tile([0, 0, 1, 1], (count, 1)), axis=1)), None

    def masks(self, boards, regime, rng):
        return random_masks(len(boards), 4, 0, 3 if regime == "train" else 0, rng)

    def broken(self, boards, problem):
        wrong = boards.sum(1, keepdim=True) != 2
        return wrong.expand_as(boards)

    def parse(self, text):
        if len(text) != 4 or set(text) - set("HT."):
            raise LetgoError(f"expected 4 characters of H, T and '.', got {text!r}")
        board = torch.tensor([[1 if c == "T" else 0 for c in text]])
        return Problem(board, torch.tensor([[c != "." for c in text]]))

    def format(self, boards, problem):
        return ["".join("HT"[s] for s in board) for board in boards.tolist()]

    @property
    def look(self):  # on the page; without it four cells would be drawn as a square
        return Look("Coins", rows=1, columns=4, letters="HT")
