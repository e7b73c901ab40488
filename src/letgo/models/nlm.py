"""A Neural Logic Machine denoiser for graphs: breadth 3, permutation-equivariant, any number of nodes.

State: one tensor per arity r, (batch, n, .., n, channels). Each layer lets arity r see r - 1 (expanded along a new
last axis), itself, and r + 1 (reduced over its last axis by max and min), in every order of the node axes.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional as F

from letgo.errors import LetgoError
from letgo.shapes import State, Time

Inputs = Float[Tensor, "batch n n channels"]
Nodes = Float[Tensor, "batch n width"]
Pairs = Float[Tensor, "batch n n width"]
Triples = Float[Tensor, "batch n n n width"]

ORDERS = ("ijk", "jik", "ikj", "kij", "jki", "kji")  # of the six blocks in the weights of triples


class SinusoidTime(nn.Module):
    """It takes IRED's time features (frequencies 1 .. 1e-4), fed 100 t, through a two-layer MLP."""

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
    """Return a mask that is True where all indices differ: exclude_self of the original layers."""
    different = ~torch.eye(n, dtype=torch.bool, device=device)
    if arity == 2:
        return different
    return different[:, :, None] & different[:, None, :] & different[None, :, :]


def exists_forall(x: Tensor, arity: int) -> Tensor:
    """Return max and min over the last node axis, entries with a repeated node left out (filled by 0 and 1)."""
    keep = distinct(x.shape[-2], arity, x.device)[..., None]
    return torch.cat([x.where(keep, 0.0).amax(-2), x.where(keep, 1.0).amin(-2)], -1)


def of_pairs(pairs: Inputs, maps: Float[Tensor, "width 6 channels"], bias: Tensor) -> Triples:
    """A linear map of the six orderings of (i, j, k) is a sum of six maps of pairs: n^2 work, not n^3."""
    ij, ji, ik, ki, jk, kj = F.linear(pairs, maps.transpose(0, 1).flatten(0, 1)).chunk(6, -1)
    first = (ij + ji.transpose(1, 2) + bias)[:, :, :, None]
    second = (ik + ki.transpose(1, 2))[:, :, None, :]
    third = (jk + kj.transpose(1, 2))[:, None, :, :]
    return first + second + third


def next_pairs(linear: nn.Linear, nodes: Nodes, pairs: Pairs, triples: Triples) -> Pairs:
    z = torch.cat([nodes[:, :, None].expand_as(pairs), pairs, exists_forall(triples, 3)], -1)
    return linear(torch.cat([z, z.transpose(1, 2)], -1)).sigmoid()


class Layer(nn.Module):
    """It is a layer between the first, which sees pairs alone, and the last, of which pairs alone are read."""

    def __init__(self, width: int):
        super().__init__()
        self.nodes = nn.Linear(width + 2 * width, width)
        self.pairs = nn.Linear(2 * (width + width + 2 * width), width)
        self.triples = nn.Linear(6 * (width + width), width)

    def forward(self, nodes: Nodes, pairs: Pairs, triples: Triples) -> tuple[Nodes, Pairs, Triples]:
        nodes2 = self.nodes(torch.cat([nodes, exists_forall(pairs, 2)], -1)).sigmoid()
        return nodes2, next_pairs(self.pairs, nodes, pairs, triples), self.next_triples(pairs, triples)

    def next_triples(self, pairs: Pairs, triples: Triples) -> Triples:
        below, itself = self.triples.weight.unflatten(1, (6, 2, -1)).unbind(2)
        total = of_pairs(pairs, below, self.triples.bias)
        for order, block in zip(ORDERS, itself.unbind(1), strict=True):  # results are turned, not inputs: no copies
            total = total + torch.einsum(f"b{order}c->bijkc", F.linear(triples, block))
        return total.sigmoid()


class NeuralLogicMachine(nn.Module):
    """It gives x0_hat of an n x n relation, with the adjacency as context. Only what reaches the output is built.

    A triple joins two pairs, the next layer asks whether one exists: paths of up to 2^(depth // 2) edges in one pass.
    """

    def __init__(self, dim: int = 2, width: int = 32, time_features: int = 512, depth: int = 2):
        super().__init__()
        if not 2 <= depth <= 1_000:
            raise LetgoError(f"a Neural Logic Machine has at least 2 layers, got depth {depth} (and at most 1,000)")
        if width < 1 or time_features < 2 or time_features % 2:
            raise LetgoError(f"expected width from 1, time_features even from 2; got {width} and {time_features}")
        self.time = SinusoidTime(time_features, width)
        channels = dim + 1 + width
        self.nodes = nn.Linear(2 * channels, width)
        self.pairs = nn.Linear(2 * channels, width)
        self.triples = nn.Linear(6 * channels, width)
        self.middle = nn.ModuleList(Layer(width) for _ in range(depth - 2))
        self.pairs2 = nn.Linear(2 * (width + width + 2 * width), width)
        self.head = nn.Linear(width, dim)
        self.width = width

    def layer1(self, x: Inputs) -> tuple[Nodes, Pairs, Triples]:
        nodes = self.nodes(exists_forall(x, 2)).sigmoid()
        pairs = self.pairs(torch.cat([x, x.transpose(1, 2)], -1)).sigmoid()
        triples = of_pairs(x, self.triples.weight.unflatten(1, (6, -1)), self.triples.bias).sigmoid()
        return nodes, pairs, triples

    def entered(self, x_t: State, t: Time, context: Tensor | None) -> Inputs:
        """Return what the first layer sees of each pair of nodes: edge, state and time."""
        assert context is not None, "the graph's adjacency is the context"
        batch, cells, dim = x_t.shape
        n = math.isqrt(cells)
        time = self.time(t)[:, :, None].expand(batch, n, n, -1)
        return torch.cat([context.to(x_t)[..., None] * 2 - 1, x_t.view(batch, n, n, dim), time.to(x_t)], -1)

    def hidden(self, x: Inputs) -> Pairs:
        state = self.layer1(x)
        for layer in self.middle:
            state = layer(*state)
        return next_pairs(self.pairs2, *state)

    def forward(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        raw = self.head(self.hidden(self.entered(x_t, t, context))).flatten(1, 2)
        return self.answer(x_t, t, raw).to(x_t.dtype)

    def answer(self, x_t: State, t: Time, raw: State) -> State:
        """Return x0_hat from what the head says: here it is that."""
        return raw
