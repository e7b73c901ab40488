"""The Neural Logic Machine against its rules spelled out with loops, and its symmetries."""

from __future__ import annotations

import math
from itertools import permutations, product

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from letgo.errors import LetgoError
from letgo.models.nlm import ORDERS, Layer, NeuralLogicMachine, exists_forall
from letgo.presets import PRESETS

pytestmark = pytest.mark.fast

Relation = dict[tuple[int, ...], Tensor]  # one feature vector per tuple of nodes


def machine(width: int = 4, dim: int = 2, depth: int = 2) -> NeuralLogicMachine:
    """Weights four times their usual size: freshly drawn, its sigmoids hardly leave 1/2 and would hide a fault."""
    torch.manual_seed(0)
    network = NeuralLogicMachine(dim, width, 8, depth)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(4)
    return network


def inputs(batch: int, n: int, dim: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(n)
    edges = (torch.rand(batch, n, n, generator=rng) < 0.4).triu(1)
    adjacency = (edges | edges.mT).float()
    return torch.randn(batch, n * n, dim, generator=rng), torch.rand(batch, 1, 1, generator=rng), adjacency


def reduced(relation: Relation, n: int, index: tuple[int, ...]) -> list[Tensor]:
    """Exists and forall over a new last node, interleaved per channel; repeated nodes count as 0 and as 1."""
    channels = len(next(iter(relation.values())))
    columns = []
    for c in range(channels):
        entries = [(relation[(*index, k)][c], len({*index, k}) == len(index) + 1) for k in range(n)]
        columns.append(torch.stack([value if distinct else torch.tensor(0.0) for value, distinct in entries]).max())
        columns.append(torch.stack([value if distinct else torch.tensor(1.0) for value, distinct in entries]).min())
    return columns


def layer(arity: int, state: dict[int, Relation], n: int, weight: Tensor, bias: Tensor) -> Relation:
    """One arity of one layer: expand below, itself, reduce above; all orders of the nodes; linear; sigmoid."""
    features: Relation = {}
    for index in product(range(n), repeat=arity):
        parts: list[Tensor] = []
        if arity - 1 in state:
            parts.append(state[arity - 1][index[:-1]])
        if arity in state:
            parts.append(state[arity][index])
        if arity + 1 in state:
            parts.append(torch.stack(reduced(state[arity + 1], n, index)))
        features[index] = torch.cat(parts)
    result: Relation = {}
    for index in product(range(n), repeat=arity):
        ordered = [features[tuple(index[axis] for axis in order)] for order in permutations(range(arity))]
        result[index] = torch.sigmoid(weight @ torch.cat(ordered) + bias)
    return result


def interleaved(channels: int) -> list[int]:
    """Where the network, which keeps all maxima before all minima, holds (e_1, f_1, e_2, f_2, ..)."""
    return [c + half * channels for c in range(channels) for half in (0, 1)]


def by_permutations(triples: Tensor) -> Tensor:
    """The six blocks of a map of triples, in the order of `permutations`."""
    order = [ORDERS.index("".join("ijk"[axis] for axis in axes)) for axes in permutations(range(3))]
    return triples.unflatten(1, (6, -1))[:, order].flatten(1)


def literal(network: NeuralLogicMachine, x_t: Tensor, t: Tensor, adjacency: Tensor) -> Tensor:
    """One board (batch of 1) by sections 4 and 5 of the layer rules, with the network's own weights."""
    n, dim = adjacency.shape[1], x_t.shape[2]
    width, half = network.width, 4
    angles = [100 * float(t) * math.exp(-math.log(10_000) * k / (half - 1)) for k in range(half)]
    time = network.time.mlp(torch.tensor([math.sin(a) for a in angles] + [math.cos(a) for a in angles]))
    board = x_t[0].view(n, n, dim)
    pairs = {
        (i, j): torch.cat([2 * adjacency[0, i, j, None] - 1, board[i, j], time]) for i, j in product(range(n), repeat=2)
    }
    channels = dim + 1 + width
    state = {
        1: layer(1, {2: pairs}, n, network.nodes.weight[:, interleaved(channels)], network.nodes.bias),
        2: layer(2, {2: pairs}, n, network.pairs.weight, network.pairs.bias),
        3: layer(3, {2: pairs}, n, by_permutations(network.triples.weight), network.triples.bias),
    }
    reduction = [c + width for c in interleaved(width)]
    one = [*range(2 * width), *(c + width for c in reduction)]
    both = [*one, *(4 * width + c for c in one)]
    for middle in network.middle:
        assert isinstance(middle, Layer)
        state = {
            1: layer(1, state, n, middle.nodes.weight[:, [*range(width), *reduction]], middle.nodes.bias),
            2: layer(2, state, n, middle.pairs.weight[:, both], middle.pairs.bias),
            3: layer(3, state, n, by_permutations(middle.triples.weight), middle.triples.bias),
        }
    hidden = layer(2, state, n, network.pairs2.weight[:, both], network.pairs2.bias)
    return torch.stack([network.head(hidden[index]) for index in product(range(n), repeat=2)])[None]


@torch.no_grad()
@pytest.mark.parametrize("n", [2, 3, 5, 8])
@pytest.mark.parametrize("depth", [2, 3, 4])
def test_it_follows_the_layer_rules_to_the_letter(depth: int, n: int) -> None:
    """Two nodes leave no triple of distinct ones: the reductions are then (0, 1)."""
    network, (x, t, adjacency) = machine(depth=depth), inputs(1, n)
    assert_close(network(x, t, adjacency), literal(network, x, t, adjacency))


@torch.no_grad()
@pytest.mark.parametrize("n", [3, 12, 18])
def test_depth_2_is_the_shipped_network_bit_for_bit(n: int) -> None:
    """Its two layers in one piece, as the shipped weights were trained."""
    network, (x_t, t, adjacency) = machine(32), inputs(3, n)
    time = network.time(t)[:, :, None].expand(3, n, n, -1)
    x = torch.cat([adjacency[..., None] * 2 - 1, x_t.view(3, n, n, 2), time], -1)
    nodes = network.nodes(exists_forall(x, 2)).sigmoid()
    pairs = network.pairs(torch.cat([x, x.transpose(1, 2)], -1)).sigmoid()
    maps = network.triples.weight.unflatten(1, (6, -1)).transpose(0, 1).flatten(0, 1)
    ij, ji, ik, ki, jk, kj = nn.functional.linear(x, maps).split(32, -1)
    first = (ij + ji.transpose(1, 2) + network.triples.bias)[:, :, :, None]
    second, third = (ik + ki.transpose(1, 2))[:, :, None, :], (jk + kj.transpose(1, 2))[:, None, :, :]
    triples = (first + second + third).sigmoid()
    z = torch.cat([nodes[:, :, None].expand(-1, -1, n, -1), pairs, exists_forall(triples, 3)], -1)
    hidden = network.pairs2(torch.cat([z, z.transpose(1, 2)], -1)).sigmoid()
    assert torch.equal(network(x_t, t, adjacency), network.head(hidden).view(3, n * n, 2))
    layers = ("time.mlp.0", "time.mlp.2", "nodes", "pairs", "triples", "pairs2", "head")
    assert list(network.state_dict()) == [f"{one}.{kind}" for one in layers for kind in ("weight", "bias")]


@torch.no_grad()
@pytest.mark.parametrize(("depth", "longest"), [(2, 2), (3, 2), (4, 4), (5, 4), (6, 8)])
def test_weights_exist_that_join_what_few_enough_edges_join(depth: int, longest: int) -> None:
    """Channel 0: T(i, j, k) = P(i, k) and P(k, j), then P(i, j) = P(i, j) or exists k: T(i, j, k); 20 is crisp."""
    width, n = 4, 11
    network = NeuralLogicMachine(2, width, 8, depth)
    for parameter in network.parameters():
        parameter.zero_()
    ik, kj = ORDERS.index("ikj"), ORDERS.index("kji")
    network.pairs.weight[0, 0] = 20  # an edge is +1, none is -1
    network.triples.weight.view(width, 6, -1)[0, [ik, kj], 0] = 20
    network.triples.bias[0] = -20
    for middle in network.middle:
        assert isinstance(middle, Layer)
        middle.triples.weight.view(width, 6, -1)[0, [ik, kj], 0] = 20
        middle.triples.bias[0] = -30
    for linear in (*(middle.pairs for middle in network.middle), network.pairs2):
        assert isinstance(linear, nn.Linear)
        linear.weight[0, [width, 2 * width]] = 20  # after the nodes: the pair itself, exists
        linear.bias[0] = -10
    network.head.weight[0, 0] = 1
    apart = (torch.arange(n)[:, None] - torch.arange(n)).abs()  # a path: 0 - 1 - .. - 10
    x, t, _ = inputs(1, n)
    joined = network(x, t, (apart == 1)[None].float())[0, :, 0].view(n, n)
    assert_close(joined, ((apart > 0) & (apart <= longest)).float(), atol=1e-3, rtol=0)


def test_no_network_has_fewer_than_two_layers() -> None:
    with pytest.raises(LetgoError, match="at least 2 layers, got depth 1"):
        NeuralLogicMachine(depth=1)


def test_the_first_layers_have_the_sizes_of_the_published_network() -> None:
    """Of the 52,482 parameters with a one-hot state, those of the second layer's arities 1 and 3 reach no output."""
    network = NeuralLogicMachine()
    unread = 96 * 32 + 32 + 384 * 32 + 32
    assert sum(p.numel() for p in network.parameters()) == 52_482 - unread
    assert network.triples.in_features == 6 * 35
    bound = (6 * 35) ** -0.5  # a map of six orderings starts as small as one linear layer of that size
    assert 0.9 * bound < float(network.triples.weight.detach().abs().max()) <= bound


def test_a_deeper_network_adds_the_published_second_layer_whole() -> None:
    """23,648 parameters each: 96, 256 and 384 inputs to 32 outputs."""
    deep = PRESETS["connectivity"].build_model()
    assert sum(p.numel() for p in deep.parameters()) == 37_058 + 2 * 23_648


@torch.no_grad()
@pytest.mark.parametrize("depth", [2, 4])
def test_renaming_the_nodes_renames_the_answer(depth: int) -> None:
    network, (x, t, adjacency) = machine(depth=depth), inputs(3, 6)
    order = torch.tensor([4, 1, 5, 0, 3, 2])
    renamed = x.view(3, 6, 6, 2)[:, order][:, :, order].reshape(3, 36, 2)
    answer = network(x, t, adjacency).view(3, 6, 6, 2)[:, order][:, :, order].reshape(3, 36, 2)
    assert_close(network(renamed, t, adjacency[:, order][:, :, order]), answer)
    assert float((network(x, t, adjacency) - answer).abs().max()) > 0.01


@torch.no_grad()
@pytest.mark.parametrize("preset", ["connectivity", "connectivity-ired"])
def test_the_same_weights_run_on_graphs_of_any_size(preset: str) -> None:
    network = PRESETS[preset].build_model()
    for n in (2, 12, 18):
        x, t, adjacency = inputs(2, n)
        assert network(x, t, adjacency).shape == (2, n * n, 2)


def test_repeated_nodes_are_left_out_of_exists_and_forall() -> None:
    pairs = torch.full((1, 3, 3, 1), 0.5)
    pairs[0, range(3), range(3)] = torch.tensor([9.0, -9.0, 9.0])[:, None]  # only the diagonal is extreme
    assert_close(exists_forall(pairs, 2), torch.full((1, 3, 2), 0.5))
    triples = torch.full((1, 3, 3, 3, 1), 0.5)
    for i, j, k in product(range(3), repeat=3):
        if len({i, j, k}) < 3:
            triples[0, i, j, k] = 9.0 * (-1) ** (i + j + k)
    got = exists_forall(triples, 3)
    different = ~torch.eye(3, dtype=torch.bool)
    assert_close(got[0][different], torch.full((6, 2), 0.5))
    assert_close(got[0][~different], torch.tensor([[0.0, 1.0]] * 3))  # nothing left: (0, 1)


def test_what_is_left_out_counts_as_zero_and_as_one_even_outside_of_the_unit_interval() -> None:
    low, high = torch.full((1, 3, 3, 1), -2.0), torch.full((1, 3, 3, 1), 3.0)
    assert_close(exists_forall(low, 2), torch.tensor([0.0, -2.0]).expand(1, 3, 2))
    assert_close(exists_forall(high, 2), torch.tensor([3.0, 1.0]).expand(1, 3, 2))
