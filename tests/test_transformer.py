"""The paper's Transformer: its published size, what it is fed, and what it must not depend on."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from letgo import tasks
from letgo.models.transformer import Block, FourierTime, Transformer, by_products
from letgo.presets import PRESETS
from letgo.tasks.sudoku import Sudoku

pytestmark = pytest.mark.fast


def small(dropout: float = 0.0, cells: int = 5, dim: int = 3) -> Transformer:
    torch.manual_seed(0)
    return Transformer(dim, torch.arange(cells)[None], width=16, depth=2, heads=4, hidden=32, dropout=dropout)


def states(batch: int, cells: int = 5, dim: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch.Generator().manual_seed(1)
    return torch.randn(batch, cells, dim, generator=rng), torch.rand(batch, 1, 1, generator=rng)


@pytest.mark.parametrize(("dim", "parameters"), [(9, 824_073), (4, 822_788), (64, 838_208)])
def test_it_has_the_published_number_of_parameters(dim: int, parameters: int) -> None:
    """Table 11: one-hot digits, analog bits, 8x8 images."""
    network = Transformer(dim, Sudoku().positions())
    assert sum(p.numel() for p in network.parameters()) == parameters


@pytest.mark.parametrize(("preset", "dim"), [("sudoku", 9), ("sudoku-bits", 4), ("sudoku-embedding", 9)])
def test_presets_build_the_published_network(preset: str, dim: int) -> None:
    network = PRESETS[preset].build_model()
    published = Transformer(dim, Sudoku().positions())
    assert {n: p.shape for n, p in network.named_parameters()} == {n: p.shape for n, p in published.named_parameters()}


def test_sudoku_has_row_column_and_box_tables_and_other_tasks_one() -> None:
    sudoku, latin = PRESETS["sudoku"].build_model(), PRESETS["latin"].build_model()
    assert isinstance(sudoku, Transformer)
    assert isinstance(latin, Transformer)
    assert [tuple(table.weight.shape) for table in sudoku.tables] == [(9, 128)] * 3
    assert [tuple(table.weight.shape) for table in latin.tables] == [(tasks.get("latin").cells, 128)]


def test_positions_are_drawn_from_the_standard_normal() -> None:
    """10,368 draws: each bound is five standard errors away, so a new seed fails with odds below 1e-5."""
    torch.manual_seed(0)
    network = Transformer(4, torch.arange(81)[None])
    table = torch.cat([table.weight.flatten() for table in network.tables]).detach()
    assert abs(float(table.mean())) < 5 / math.sqrt(len(table))
    assert abs(float(table.std()) - 1) < 5 / math.sqrt(2 * len(table))
    assert abs(float((table.abs() < 1).float().mean()) - 0.6827) < 5 * math.sqrt(0.6827 * 0.3173 / len(table))


def test_time_features_are_sines_and_cosines_at_frequencies_from_1_to_100() -> None:
    time = FourierTime(64, 16)
    assert len(time.frequencies) == 32
    assert_close(time.frequencies, torch.tensor([100 ** (k / 31) for k in range(32)]))
    seen: list[torch.Tensor] = []
    time.mlp.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    time(torch.tensor([0.0, 0.3, 1.0])[:, None, None])
    for row, t in enumerate((0.0, 0.3, 1.0)):
        angles = [2 * math.pi * t * 100 ** (k / 31) for k in range(32)]
        expected = [math.sin(a) for a in angles] + [math.cos(a) for a in angles]
        assert_close(seen[0][row, 0], torch.tensor(expected), atol=1e-4, rtol=0)  # 628 rad in float32


def test_time_goes_through_two_layers_with_silu() -> None:
    time = FourierTime(8, 16)
    first, _, second = time.mlp
    t = torch.tensor([[[0.4]]])
    angle = 2 * math.pi * t * time.frequencies
    features = torch.cat([angle.sin(), angle.cos()], -1)
    assert_close(time(t), second(F.silu(first(features))))


def test_dropout_acts_only_in_training() -> None:
    """Two passes agree by accident only if a 0.5 dropout of 64 numbers repeats: odds below 2^-64."""
    network, (x, t) = small(dropout=0.5), states(2)
    network.eval()
    assert torch.equal(network(x, t), network(x, t))
    network.train()
    assert not torch.equal(network(x, t), network(x, t))


def test_dropout_follows_each_sublayer_and_sits_on_the_attention_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []

    def recorded(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float) -> torch.Tensor:
        asked.append(dropout_p)
        return v

    monkeypatch.setattr("torch.nn.functional.scaled_dot_product_attention", recorded)
    block = Block(16, 4, 32, dropout=0.25)
    dropped: list[torch.Tensor] = []
    block.dropout.register_forward_pre_hook(lambda _, inputs: dropped.append(inputs[0]))
    x = torch.randn(2, 5, 16)
    block.train()(x)
    block.eval()(x)
    assert asked == [0.25, 0.0]
    assert len(dropped) == 4  # after attention and after the MLP, twice
    assert block.dropout.p == 0.25


@pytest.mark.parametrize("cells", [5, 16, 49])
def test_attention_by_products_in_bf16_is_torchs_own_up_to_rounding(cells: int) -> None:
    rng = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(3, 2, cells, 16, generator=rng, requires_grad=True) for _ in range(3))
    outputs, gradients = [], []
    for attend, kind in ((by_products, torch.bfloat16), (F.scaled_dot_product_attention, torch.float32)):
        outputs.append(attend(q.to(kind), k.to(kind), v.to(kind), dropout_p=0.0).float())
        gradients.append(torch.autograd.grad(outputs[-1].square().sum(), (q, k, v)))
    assert_close(outputs[0], outputs[1], atol=0.02, rtol=0.02)
    for mine, theirs in zip(*gradients, strict=True):
        assert_close(mine, theirs, atol=0.02 * float(theirs.abs().max()), rtol=0.02)
    exact = [part.detach().double() for part in (q, k, v)]
    assert_close(by_products(*exact, dropout_p=0.0), F.scaled_dot_product_attention(*exact), atol=1e-6, rtol=1e-6)


def test_attention_by_products_drops_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(F, "dropout", lambda x, p, *rest: (seen.append((x.shape, p)), x)[1])
    network = small(0.4).train().bfloat16()
    x, t = states(2)
    network(x.bfloat16(), t.bfloat16())
    assert seen.count(((2, 4, 5 + 11, 5 + 11), 0.4)) == 2
    seen.clear()
    network.eval()(x.bfloat16(), t.bfloat16())
    assert {p for shape, p in seen if len(shape) == 4} == {0.0}


def test_a_block_is_pre_norm_with_two_residuals() -> None:
    block = Block(16, 4, 32, dropout=0.0)
    x = torch.randn(2, 5, 16)
    middle = x + block.attention(F.layer_norm(x, (16,)))
    first, activation, second = block.mlp
    assert isinstance(activation, nn.GELU)
    assert_close(block(x), middle + second(F.gelu(first(F.layer_norm(middle, (16,))))))


def test_without_positions_cells_would_be_interchangeable_and_with_them_they_are_not() -> None:
    network, (x, t) = small().eval(), states(2)
    order = torch.tensor([3, 0, 4, 1, 2])
    assert not torch.allclose(network(x[:, order], t), network(x, t)[:, order], atol=1e-3)
    for table in network.tables:
        nn.init.zeros_(table.weight)
    assert_close(network(x[:, order], t), network(x, t)[:, order])


def test_one_time_for_all_boards_is_the_same_as_one_each() -> None:
    network, (x, _) = small().eval(), states(3)
    assert_close(network(x, torch.full((1, 1, 1), 0.3)), network(x, torch.full((3, 1, 1), 0.3)))
