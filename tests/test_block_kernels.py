"""The kernels of blocks.cu and weights.cu against their twin in float64, on a CPU by emulator.h and on a card."""

from __future__ import annotations

import pytest
import torch
from emulator import emulated, hopper
from torch import Tensor
from torch.nn.functional import gelu, layer_norm

from letgo.engines.attention import SCALE, padded
from letgo.engines.blocks import WIDTH, Shape, _layers, arranged, blocks, blocks_backward, layer_backward, layer_forward
from letgo.engines.reference import cores, linear, normed, uncored

pytestmark = pytest.mark.emulator

HEADS, DEPTH = 8, 2


def distance(a: Tensor, b: Tensor) -> float:
    return float((a.cpu().double() - b).norm() / b.norm())


def drawn_weights(shape: Shape) -> Tensor:
    """Of all models and layers: matrices that bf16 holds exactly, gains, shifts and biases that matter."""
    matrices, vectors = [s for s in shape.shapes if len(s) == 2], [s for s in shape.shapes if len(s) == 1]
    rows = []
    for _ in range(shape.models * shape.depth):
        parts = [(torch.randn(size) / size[1] ** 0.5).bfloat16().float() for size in matrices]
        parts += [torch.randn(size) * 0.3 for size in vectors]
        parts[8] += 1  # the norms' gains
        parts[10] += 1
        rows.append(torch.cat([part.flatten() for part in parts]))
    return torch.stack(rows).view(shape.models, -1)


# Models, boards, hidden features, multiprocessors. With one multiprocessor, 13 boards of 14 cells make blocks of twelve
# warps, and 20 boards make blocks that go on to other cells.
CASES = [(1, 2, 256, 132), (2, 5, 128, 132), (1, 13, 256, 1), (1, 20, 128, 1)]


@pytest.mark.parametrize("on", [emulated, hopper], indirect=True)
@pytest.mark.parametrize(("models", "boards", "hidden", "multiprocessors"), CASES)
def test_blocks_and_their_gradients(on: str, models: int, boards: int, hidden: int, multiprocessors: int):
    shape = Shape(models, boards, 14, HEADS, hidden, DEPTH, 0.0, multiprocessors)
    torch.manual_seed(boards)
    weights, seed = drawn_weights(shape), torch.zeros(1, dtype=torch.int64)
    x, dy = torch.randn(2, models, shape.tokens, WIDTH)
    numbers = (boards, shape.cells, HEADS, hidden, DEPTH)
    true = blocks(cores(x.double()), weights.double(), seed, *numbers, 0.0, True)
    true_dx, true_grads = blocks_backward(
        cores(dy.double()), cores(x.double()), true[1:], weights.double(), seed, *numbers, 0.0
    )
    flat, seed = weights.to(on), seed.to(on)
    half, grads, inputs, saved = arranged(shape, flat), torch.zeros_like(flat), [cores(x).to(on)], []
    for layer in range(DEPTH):
        y, mine = layer_forward(shape, layer, inputs[-1], flat, half, seed, save=True)
        inputs.append(y)
        saved.append(mine)
    dx = cores(dy).to(on)
    for layer in reversed(range(DEPTH)):
        dx = layer_backward(shape, layer, dx, inputs[layer], saved[layer], flat, half, seed, grads)
    assert distance(uncored(inputs[-1], shape.tokens), uncored(true[0], shape.tokens)) < 4e-3
    assert distance(uncored(dx, shape.tokens), uncored(true_dx, shape.tokens)) < 7e-3
    parts = zip(grads.split(shape.sizes * DEPTH, 1), true_grads.split(shape.sizes * DEPTH, 1), shape.names, strict=True)
    for mine, expected, name in parts:
        assert distance(mine, expected) < 1e-2, name


@pytest.mark.parametrize("on", [emulated, hopper], indirect=True)
@pytest.mark.parametrize(("boards", "dim"), [(2, 9), (3, 2), (20, 16)])
def test_sampling_from_symbols_to_symbols(on: str, boards: int, dim: int):
    """Embedding, blocks that keep nothing and head, the residual stream in bf16."""
    shape = Shape(1, boards, 14, HEADS, 128, DEPTH, 0.0, 1, half=True)
    torch.manual_seed(dim)
    weights, seed = drawn_weights(shape), torch.zeros(1, dtype=torch.int64)
    symbols, base = torch.randn(shape.tokens, dim), torch.randn(shape.cells, WIDTH)
    embedding, gain, shift = torch.randn(WIDTH, dim), 1 + 0.3 * torch.randn(WIDTH), 0.3 * torch.randn(WIDTH)
    weight, bias = torch.randn(dim, WIDTH) / WIDTH**0.5, torch.randn(dim)
    x = symbols.double() @ embedding.double().T + base.double().repeat(boards, 1)
    numbers = (boards, shape.cells, HEADS, shape.hidden, DEPTH)
    y = uncored(blocks(cores(x[None]), weights.double(), seed, *numbers, 0.0, False)[0], shape.tokens)[0]
    true = layer_norm(y, (WIDTH,), gain.double(), shift.double()) @ weight.double().T + bias
    flat, seed = weights.to(on), seed.to(on)
    state, half = torch.empty(1, padded(shape.tokens), WIDTH, dtype=torch.bfloat16, device=on), arranged(shape, flat)
    shape.launch("embed", symbols.to(on), embedding.to(on), base.to(on), state, shape.tokens, shape.cells, dim)
    assert distance(uncored(state, shape.tokens)[0], x) < 4e-3
    for layer in range(DEPTH):
        state, _ = layer_forward(shape, layer, state, flat, half, seed, save=False)
    assert distance(uncored(state, shape.tokens)[0], y) < 7e-3
    out = torch.empty(shape.tokens, dim, device=on)
    shape.launch("head", state, *(v.to(on) for v in (gain, shift, weight, bias)), out, shape.tokens, dim)
    assert distance(out, true) < 7e-3


def keep(shape: Shape, seed: int, site: int, last: bool) -> Tensor:
    """`stream` and `dropped` of warp.cuh, as blocks.cu counts places: (models, cells, features)."""
    word = 0xFFFFFFFF
    x = (seed + ((site + 64 << 24) + torch.arange(shape.models)[:, None, None] + 1) * 0x85EBCA6B) & word
    x = ((x ^ (x >> 16)) * 0xC2B2AE35) & word
    dice = x ^ (x >> 15) ^ (0x5BD1E995 if last else 0)
    place = dice + torch.arange(shape.tokens)[:, None] * 0x9E3779B1 + torch.arange(WIDTH) * 0x85EBCA6B & word
    number = ((place ^ (place >> 15)) * 0xC2B2AE35) & word
    return number >= round(shape.dropout * SCALE) << 16


@pytest.mark.parametrize("on", [emulated, hopper], indirect=True)
def test_the_same_values_drop_out_both_ways(on: str):
    """One block from the mixed values on, against autograd. The dropout mask is repeated here."""
    shape, site, number = Shape(2, 3, 14, HEADS, 128, DEPTH, 0.25, 1), 1, 12345
    torch.manual_seed(0)
    weights, seed = drawn_weights(shape), torch.tensor([number], device=on)
    mixed, x, dy = torch.randn(3, 2, shape.tokens, WIDTH)
    mixed, flat = mixed.bfloat16(), weights.to(on)
    first, second = (keep(shape, number, site, last) / (1 - shape.dropout) for last in (False, True))
    assert abs(float((first * second > 0).double().mean()) - 0.75**2) < 0.02
    half, grads, where = arranged(shape, flat), torch.zeros_like(flat), (shape.tokens, flat.shape[1], shape.layer)
    mid, y, dmid = (torch.empty_like(cores(x), device=on) for _ in range(3))
    dmixed, n2, dstep1, dstep2 = (torch.empty_like(mid, dtype=torch.bfloat16) for _ in range(4))
    hidden, dhidden = (half.new_empty(shape.rows, shape.hidden) for _ in range(2))
    shape.launch("mlp_forward", cores(mixed).to(on), cores(x).to(on), half, flat, seed, mid, y, *where, site)
    outputs = (dmid, dmixed, hidden, dhidden, n2, dstep1, dstep2, grads)
    shape.launch("mlp_backward", cores(dy).to(on), mid, half, flat, seed, *outputs, *where, site)
    for model, layers in enumerate(_layers(shape, weights.double())):
        w = {name: value.requires_grad_() for name, value in layers[1].items()}
        given = mixed[model].double().requires_grad_()
        step1 = linear(given, w, "attention.out")
        middle = x[model] + step1 * first[model]
        step2 = linear(gelu(linear(normed(middle, w, "norm2"), w, "mlp.0")), w, "mlp.2")
        true = middle + step2 * second[model]
        inputs = (middle, given, step1, step2, w["norm2.weight"], w["norm2.bias"])
        *gradients, gain, shift = torch.autograd.grad(true, inputs, dy[model].double())
        pairs = zip((y, mid, dmid, dmixed, dstep1, dstep2), (true, middle, *gradients), strict=True)
        for mine, expected in pairs:
            assert distance(uncored(mine, shape.tokens)[model], expected.detach()) < 7e-3
        for mine, expected in zip(grads[model, -2 * WIDTH :].split(WIDTH), (gain, shift), strict=True):
            assert distance(mine, expected) < 7e-3
