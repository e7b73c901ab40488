"""Clues and how they are held in place (Algorithm 1)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from letgo.paths import Path
from letgo.shapes import CellMask, State, Time


@dataclass(frozen=True)
class Clues:
    """Known cells are pinned: softly while t >= soft_until (the paper's t*), hard below; by default always hard."""

    values: State
    given: CellMask
    soft_until: float = math.inf

    @staticmethod
    def none(like: State) -> Clues:
        return Clues(torch.zeros_like(like), torch.zeros(like.shape[:2], dtype=torch.bool, device=like.device))

    @property
    def may_be_soft(self) -> bool:
        return self.soft_until <= 1

    def __getitem__(self, index: slice | Tensor) -> Clues:
        return Clues(self.values[index], self.given[index], self.soft_until)

    def to(self, device: torch.device) -> Clues:
        return Clues(self.values.to(device), self.given.to(device), self.soft_until)

    def pin(self, x: State) -> State:
        """Pin hard: x[m] = c[m]."""
        return torch.where(self.given[..., None], self.values, x)

    def pin_at(self, x_s: State, s: Time, path: Path, noise: State | None) -> State:
        """Pin hard below t*; at and above it the clues are noised to time s (soft pinning)."""
        if not self.may_be_soft:
            return self.pin(x_s)
        assert noise is not None, "soft pinning draws noise"
        values = torch.where(s >= self.soft_until, path.sample(self.values, s, noise), self.values)
        return torch.where(self.given[..., None], values, x_s)
