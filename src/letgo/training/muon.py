"""Muon (Jordan et al., 2024) for the matrices of a Transformer's blocks, Adam for all its other weights.

A matrix moves along its averaged gradient made orthogonal, so that every direction in it moves alike. Models are rows
of weights (see `letgo.training.trainer`); the state is Adam's, whose first moment serves as Muon's average.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from letgo.errors import LetgoError

RATE = 20.0  # a matrix moves by 20 times Adam's learning rate, in spectral norm
MOMENTUM = 0.95
BETA1, BETA2, EPS = 0.9, 0.999, 1e-8  # torch's defaults
QUINTIC = (3.4445, -4.7750, 2.0315)  # x -> a x + b x^3 + c x^5 takes singular values from (0, 1] to about 1
ROUNDS = 5


def wide(matrices: Tensor) -> Tensor:
    """Return each matrix, or its transpose, with no more rows than columns."""
    return matrices if matrices.shape[-2] <= matrices.shape[-1] else matrices.mT


def orthogonal(matrices: Tensor) -> Tensor:
    """Return about U V^T of each wide matrix U S V^T: singular values end near 1. By Newton-Schulz, products alone."""
    x = matrices / (matrices.norm(dim=(-2, -1), keepdim=True) + 1e-12)
    if x.is_cuda:
        x = x.bfloat16()
    a, b, c = QUINTIC
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.to(matrices.dtype)


@dataclass(frozen=True)
class Piece:
    """A Piece is weights that lie together in a row: a matrix of `shape`, or (no shape) anything else."""

    start: int
    size: int
    shape: tuple[int, int] | None = None

    def of(self, rows: Tensor) -> Tensor:
        part = rows[:, self.start : self.start + self.size]
        return part if self.shape is None else part.unflatten(1, self.shape)


def pieces(shapes: Mapping[str, torch.Size]) -> list[Piece]:
    """Return the pieces; queries, keys and values are three matrices: each is made orthogonal by itself."""
    row, start = [], 0
    for name, shape in shapes.items():
        size = shape.numel()
        if name.startswith("blocks.") and len(shape) == 2:
            parts = 3 if "qkv" in name else 1
            matrix = (shape[0] // parts, shape[1])
            row += [Piece(start + i * size // parts, size // parts, matrix) for i in range(parts)]
        elif row and row[-1].shape is None:
            row[-1] = Piece(row[-1].start, row[-1].size + size)
        else:
            row.append(Piece(start, size))
        start += size
    if not any(piece.shape for piece in row):
        raise LetgoError("muon is for Transformers, and this network has no blocks; leave --optimizer out")
    return row


class Muon(torch.optim.Optimizer):
    def __init__(self, flat: Tensor, lr: Tensor, shapes: Mapping[str, torch.Size], compiled: bool = False):
        super().__init__([flat], {"lr": lr})
        self.flat, self.pieces = flat, pieces(shapes)
        self.first = torch.full((1, flat.shape[1]), BETA1, device=flat.device)
        kinds: dict[tuple[int, ...], list[int]] = {}
        for i, piece in enumerate(self.pieces):
            if piece.shape:
                piece.of(self.first).fill_(MOMENTUM)
                kinds.setdefault(tuple(sorted(piece.shape)), []).append(i)
        # Matrices of one shape, or transposed of one shape, are made orthogonal together.
        self.alike = [places for _, places in sorted(kinds.items())]
        self.move: Callable[..., None] = torch.compile(self._move, dynamic=False) if compiled else self._move

    def step(self, closure: None = None) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        assert closure is None
        assert self.flat.grad is not None
        state = self.state[self.flat]
        moments = state["step"], state["exp_avg"], state["exp_avg_sq"]
        self.move(self.flat.detach(), self.flat.grad, *moments, self.param_groups[0]["lr"])

    @torch.no_grad()
    def _move(self, flat: Tensor, grad: Tensor, step: Tensor, mean: Tensor, square: Tensor, rate: Tensor) -> None:
        step += 1
        mean.lerp_(grad, 1 - self.first)
        square.lerp_(grad * grad, 1 - BETA2)
        adam = mean / (1 - BETA1**step) / ((square / (1 - BETA2**step)).sqrt() + EPS)
        ahead = torch.lerp(grad, mean, MOMENTUM)
        moves = [piece.of(adam).flatten(1) for piece in self.pieces]
        for places in self.alike:
            directions = orthogonal(torch.cat([wide(self.pieces[i].of(ahead)) for i in places])).split(len(flat))
            for i, matrix in zip(places, directions, strict=True):
                rows, columns = self.pieces[i].shape or (1, 1)
                matrix = matrix if rows <= columns else matrix.mT
                moves[i] = matrix.flatten(1) * (RATE * max(1.0, rows / columns) ** 0.5)
        flat.sub_(torch.cat(moves, 1) * rate)
