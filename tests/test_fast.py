"""The fused network against the plain one: on the CPU the twin of the kernels, on a Hopper card the kernels."""

import pytest
import torch
from torch import Tensor

from letgo.engines import cuda, supported
from letgo.engines.network import FastTransformer
from letgo.engines.reference import cores, uncored
from letgo.models.transformer import Transformer

hopper = pytest.mark.skipif(not cuda.available(), reason="needs a Hopper GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=hopper)]


def networks(count: int, cells: int, device: str, dim: int = 9, hidden: int = 512) -> list[Transformer]:
    """Freshly drawn, with gains, shifts and biases that matter."""
    made = []
    for seed in range(count):
        torch.manual_seed(seed)
        places = torch.stack([torch.arange(cells) // 5, torch.arange(cells) % 5])
        network = Transformer(dim, places, depth=2, hidden=hidden, dropout=0.0)
        for name, p in network.named_parameters():
            if "norm" in name or name.endswith("bias"):
                torch.nn.init.normal_(p, 1.0 if "norm" in name and name.endswith("weight") else 0.0, 0.3)
        made.append(network.to(device))
    return made


def distance(a: Tensor, b: Tensor) -> float:
    a, b = a.detach().double(), b.detach().double()
    return float((a - b).norm() / b.norm())


def test_cores_are_where_the_kernels_look_for_them():
    x = torch.randn(2, 19, 24)
    kept = cores(x)
    assert kept.shape == (2, 24, 24)
    assert torch.equal(uncored(kept, 19), x)
    for cell, column in ((0, 0), (13, 9), (18, 23)):
        place = (cell >> 3) * 8 * 24 + (column >> 3) * 64 + (cell & 7) * 8 + (column & 7)  # warp.cuh
        assert kept[1].flatten()[place] == x[1, cell, column]


# Neither boards nor cells fill whole cores. From 265 tiles of 64 cells on, blocks have twelve warps.
SHAPES = [("cpu", 1, 3, 27, 512), ("cpu", 2, 40, 27, 128)]
LARGE = [(1, 256, 81, 512), (1, 256, 81, 128), (3, 256, 81, 512), (2, 700, 27, 512)]


@pytest.mark.parametrize(
    ("device", "models", "boards", "cells", "hidden"),
    [*SHAPES, *(pytest.param("cuda", *s, marks=hopper) for s in [s[1:] for s in SHAPES] + LARGE)],
)
def test_forward_and_gradients_are_the_plain_networks(device: str, models: int, boards: int, cells: int, hidden: int):
    plain = networks(models, cells, device, hidden=hidden)
    fast = FastTransformer(plain[0]).train()
    rows = [torch.cat([dict(n.named_parameters())[name].detach().flatten() for name in fast.names]) for n in plain]
    flat = torch.stack(rows).requires_grad_()
    x, t = torch.randn(boards * models, cells, 9, device=device), torch.rand(boards * models, 1, 1, device=device)
    weight = torch.randn_like(x)
    half = torch.autocast(device, torch.bfloat16, enabled=device == "cuda")
    with half:
        y = fast(flat, x, t)
    (y * weight).sum().backward()
    assert flat.grad is not None
    tolerance = 1e-5 if device == "cpu" else 1e-2
    for i, network in enumerate(plain):
        mine = slice(i, None, models)  # board i belongs to model i % models
        expected = network(x[mine], t[mine])
        assert distance(y[mine], expected) < tolerance
        (expected * weight[mine]).sum().backward()
        parts = flat.grad[i].split([fast.shapes[name].numel() for name in fast.names])
        for name, part in zip(fast.names, parts, strict=True):
            gradient = dict(network.named_parameters())[name].grad
            assert gradient is not None
            assert distance(part.view(gradient.shape), gradient) < tolerance, name


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("times", [4, 1])
def test_sampling_keeps_nothing_and_agrees(device: str, times: int):
    """With one time for all boards, as in sampling, the network's two ends are kernels too on a card."""
    (plain,) = networks(1, 27, device)
    fast = FastTransformer(plain).eval()
    flat = torch.cat([dict(plain.named_parameters())[name].detach().flatten() for name in fast.names])[None]
    x, t = torch.randn(4, 27, 9, device=device), torch.rand(times, 1, 1, device=device)
    with torch.no_grad():
        assert distance(fast(flat, x, t), plain(x, t.expand(4, 1, 1))) < 2e-2  # its residual stream is bf16


@hopper
@pytest.mark.parametrize("dim", [2, 7, 14, 16])
def test_the_two_ends_of_states_of_any_width(dim: int):
    (plain,) = networks(1, 14, "cuda", dim)
    fast = FastTransformer(plain).eval()
    flat = torch.cat([dict(plain.named_parameters())[name].detach().flatten() for name in fast.names])[None]
    x, t = torch.randn(5, 14, dim, device="cuda"), torch.rand(1, 1, 1, device="cuda")
    with torch.no_grad():
        assert distance(fast(flat, x, t), plain(x, t.expand(5, 1, 1))) < 2e-2


@hopper
def test_many_boards_are_as_right_as_few():
    """Blocks that go on to other cells, and the last ones with cells of their own or none."""
    (plain,) = networks(1, 81, "cuda")
    fast = FastTransformer(plain).eval()
    flat = torch.cat([dict(plain.named_parameters())[name].detach().flatten() for name in fast.names])[None]
    x, t = torch.randn(1000, 81, 9, device="cuda"), torch.rand(1, 1, 1, device="cuda")
    with torch.no_grad():
        ours, expected = fast(flat, x, t), plain(x, t.expand(1000, 1, 1))
    worst = max(distance(a, b) for a, b in zip(ours, expected, strict=True))
    assert worst < 3e-2


def test_other_networks_and_machines_keep_the_plain_path():
    assert not supported(Transformer(4, torch.arange(16)[None], width=48, depth=3, heads=3, hidden=96))
    if not cuda.available():
        assert not supported(Transformer(9, torch.arange(81)[None]))
