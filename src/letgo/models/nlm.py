"""A Neural Logic Machine denoiser for graphs: depth 2, breadth 3, permutation-equivariant, any number of nodes.

State: one tensor per arity r, (batch, n, .., n, channels). Each layer lets arity r see r - 1 (expanded along a new
last axis), itself, and r + 1 (reduced over its last axis by max and min), in every order of the node axes.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from letgo.shapes import State, Time

Inputs = Float[Tensor, "batch n n channels"]
Nodes = Float[Tensor, "batch n width"]
Pairs = Float[Tensor, "batch n n width"]
Triples = Float[Tensor, "batch n n n width"]


class SinusoidTime(nn.Module):
    """IRED's time features (frequencies 1 .. 1e-4), fed 100 t, then a two-layer MLP."""

    frequencies: Tensor

    def __init__(self, features: int, width: int):
        super().__init__()
        exponents = torch.linspace(0, 1, features // 2)
        self.register_buffer("frequencies", torch.exp(-math.log(10_000) * exponents), persistent=False)
        self.mlp = nn.Sequential(nn.Linear(features, width), nn.GELU(), nn.Linear(width, width))

    def forward(self, t: Time) -> Float[Tensor, "batch 1 width"]:
        angle = 100 * t * self.frequencies
        return self.mlp(torch.cat([angle.sin(), angle.cos()], -1))


def distinct(n: int, arity: int, device: torch.device) -> Tensor:
    """True where all indices differ: exclude_self of the original layers."""
    different = ~torch.eye(n, dtype=torch.bool, device=device)
    if arity == 2:
        return different
    return different[:, :, None] & different[:, None, :] & different[None, :, :]


def exists_forall(x: Tensor, arity: int) -> Tensor:
    """Max and min over the last node axis, entries with a repeated node left out (filled by 0 and 1)."""
    keep = distinct(x.shape[-2], arity, x.device)[..., None]
    return torch.cat([x.where(keep, 0.0).amax(-2), x.where(keep, 1.0).amin(-2)], -1)


class NeuralLogicMachine(nn.Module):
    """x0_hat of an n x n relation, given the adjacency as context. Only what reaches the output is built."""

    def __init__(self, dim: int = 2, width: int = 32, time_features: int = 512):
        super().__init__()
        self.time = SinusoidTime(time_features, width)
        channels = dim + 1 + width
        self.nodes = nn.Linear(2 * channels, width)
        self.pairs = nn.Linear(2 * channels, width)
        self.triples = nn.Linear(6 * channels, width)
        self.pairs2 = nn.Linear(2 * (width + width + 2 * width), width)
        self.head = nn.Linear(width, dim)
        self.width = width

    def layer1(self, x: Inputs) -> tuple[Nodes, Pairs, Triples]:
        nodes = self.nodes(exists_forall(x, 2)).sigmoid()
        pairs = self.pairs(torch.cat([x, x.transpose(1, 2)], -1)).sigmoid()
        # A linear map of the six orderings of (i, j, k) is a sum of six maps of pairs: n^2 work, not n^3.
        maps = self.triples.weight.unflatten(1, (6, -1)).transpose(0, 1).flatten(0, 1)
        ij, ji, ik, ki, jk, kj = F.linear(x, maps).split(self.width, -1)
        first = (ij + ji.transpose(1, 2) + self.triples.bias)[:, :, :, None]
        second = (ik + ki.transpose(1, 2))[:, :, None, :]
        third = (jk + kj.transpose(1, 2))[:, None, :, :]
        return nodes, pairs, (first + second + third).sigmoid()

    def forward(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        assert context is not None, "the graph's adjacency is the context"
        batch, cells, dim = x_t.shape
        n = math.isqrt(cells)
        time = self.time(t)[:, :, None].expand(batch, n, n, -1)
        x = torch.cat([context.to(x_t)[..., None] * 2 - 1, x_t.view(batch, n, n, dim), time.to(x_t)], -1)
        nodes, pairs, triples = self.layer1(x)
        z = torch.cat([nodes[:, :, None].expand(-1, -1, n, -1), pairs, exists_forall(triples, 3)], -1)
        hidden = self.pairs2(torch.cat([z, z.transpose(1, 2)], -1)).sigmoid()
        return self.head(hidden).view(batch, cells, dim).to(x_t.dtype)
