"""Noise is seeded: a board's noise is a pure function of (seed, instance, try, step), whatever its batch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from letgo.shapes import State

START, KERNEL, PIN, DRAW = range(4)  # what noise is for: x_T, the kernel, soft pinning, symbols that a rule draws
_WORD = 0xFFFFFFFF


def data_rng(seed: int, purpose: str) -> np.random.Generator:
    """Return the stream of instances of one purpose ('train', 'valid', 'test'): the splits never share draws."""
    return np.random.default_rng([seed, *purpose.encode()])


def as_int64(seed: int | Int[Tensor, "*rows"]) -> Int[Tensor, "*rows"]:
    """Return a seed of any size, or seeds, as a tensor: the low 64 bits, the ones that the key holds."""
    return seed if isinstance(seed, Tensor) else torch.tensor(((seed & (2**64 - 1)) ^ 2**63) - 2**63)


def philox(counter: list[Tensor], key: tuple[int | Tensor, int | Tensor]) -> list[Tensor]:
    """Return four 32-bit words per counter, held in int64 tensors, by Philox4x32-10 (Salmon et al. 2011)."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        # A 32x32-bit product wraps in int64 but keeps its bits, so shift and mask recover both halves.
        p0, p1 = c0 * 0xD2511F53, c2 * 0xCD9E8D57
        c0, c1, c2, c3 = (p1 >> 32 & _WORD) ^ c1 ^ k0, p1 & _WORD, (p0 >> 32 & _WORD) ^ c3 ^ k1, p0 & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return [c0, c1, c2, c3]


def box_muller(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Turn two 32-bit words into two standard normals; the half keeps the logarithm finite."""
    radius = ((first.float() + 0.5) * 2.0**-32).log().mul(-2).sqrt()
    angle = second.float() * (2 * math.pi * 2.0**-32)
    return radius * angle.cos(), radius * angle.sin()


@dataclass(frozen=True)
class Noise:
    """Noise gives standard normal states to boards by (instance, attempt), with one seed or one for each board."""

    seed: int | Int[Tensor, "*rows"]
    instance: Int[Tensor, "batch"]
    attempt: Int[Tensor, "batch"]
    count: Int[Tensor, "many"] | None = None  # 0, 1, 2, ... where a compiler must not see a range and narrow it

    @staticmethod
    def first(seed: int, count: int, device: str | torch.device = "cpu") -> Noise:
        """Return the noise of instances 0 .. count-1, first try."""
        index = torch.arange(count, device=device)
        return Noise(seed, index, torch.zeros_like(index))

    def __len__(self) -> int:
        return len(self.instance)

    def __getitem__(self, index: slice | Tensor) -> Noise:
        seed = self.seed[index] if isinstance(self.seed, Tensor) and self.seed.dim() else self.seed
        return Noise(seed, self.instance[index], self.attempt[index])

    def repeat(self, times: int) -> Noise:
        """Return the noise of the same boards, again and again."""
        seed = self.seed.repeat(times) if isinstance(self.seed, Tensor) and self.seed.dim() else self.seed
        return Noise(seed, self.instance.repeat(times), self.attempt.repeat(times))

    def normal(self, step: int | Int[Tensor, "*rows"], purpose: int, cells: int, dim: int) -> State:
        """Return the noise of a step, which is one for all boards, or one for each."""
        blocks = -(-cells * dim // 4)
        block = torch.arange(blocks, device=self.instance.device) if self.count is None else self.count[:blocks]
        block = block.expand(len(self.instance), blocks)
        when = torch.as_tensor(step * 4 + purpose, device=block.device)
        when = (when[:, None] if when.dim() else when).expand_as(block)
        counter = [block, when, self.instance[:, None].expand_as(block), self.attempt[:, None].expand_as(block)]
        seed = self.seed[:, None] if isinstance(self.seed, Tensor) and self.seed.dim() else self.seed
        a, b, c, d = philox(counter, (seed & _WORD, seed >> 32 & _WORD))
        values = torch.stack([*box_muller(a, b), *box_muller(c, d)], dim=-1)
        return values.flatten(1)[:, : cells * dim].unflatten(1, (cells, dim))


AHEAD = 64  # states that are drawn at once: for one board many are as quick as one
MOST_AHEAD = 16  # steps, since a board that is solved needs no more


@dataclass(frozen=True)
class NoiseAhead(Noise):
    """It gives the same noise, but draws several steps' when the first of them is due. Memory is flat in the steps.

    Boards that have steps of their own go on together, one step at a time.
    """

    source: Noise | None = None
    drawn: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict, compare=False, repr=False)  # by purpose

    @staticmethod
    def of(noise: Noise) -> NoiseAhead:
        return NoiseAhead(noise.seed, noise.instance, noise.attempt, source=noise)

    def normal(self, step: int | Int[Tensor, "*rows"], purpose: int, cells: int, dim: int) -> State:
        assert self.source is not None
        if purpose == START:  # drawn once
            return self.source.normal(step, purpose, cells, dim)
        boards = len(self.instance)
        steps = torch.as_tensor(step, device=self.instance.device).expand(boards)
        first, values = self.drawn.get(purpose, (steps, None))
        behind = steps - first
        place = int(behind[0])
        if values is None or not 0 <= place < len(values) or not bool((behind == place).all()):
            first, place, ahead = steps, 0, max(1, min(MOST_AHEAD, AHEAD // boards))
            later = (torch.arange(ahead, device=steps.device)[:, None] + steps).flatten()
            values = self.source.repeat(ahead).normal(later, purpose, cells, dim).unflatten(0, (ahead, boards))
            self.drawn[purpose] = first, values
        return values[place]


def uniform_times(x: State) -> Float[Tensor, "batch 1 1"]:
    """Draw one training time in [0, 1) per board, from torch's global generator."""
    return torch.rand(len(x), 1, 1, device=x.device)
