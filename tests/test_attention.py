"""Attention: plain against the formula, and the fused Triton kernel against plain, in Triton's own interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from letgo.models import attention
from letgo.models.attention import attend, plain

SOURCE = Path(__file__).parents[1] / "src"


def packed(batch: int, cells: int, heads: int, size: int) -> Tensor:
    return torch.randn(batch, cells, 3, heads, size, generator=torch.Generator().manual_seed(0))


def by_hand(qkv: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(size)) v, one board, head and query at a time."""
    batch, cells, _, heads, size = qkv.shape
    out = torch.zeros(batch, cells, heads, size)
    for b in range(batch):
        for h in range(heads):
            for i in range(cells):
                q, k, v = qkv[b, i, 0, h], qkv[b, :, 1, h], qkv[b, :, 2, h]
                score = torch.stack([(q * k[j]).sum() for j in range(cells)]) / size**0.5
                weight = score.exp() / score.exp().sum()
                out[b, i, h] = sum(weight[j] * v[j] for j in range(cells))
    return out


def test_plain_attention_is_the_softmax_formula() -> None:
    qkv = packed(2, 7, 3, 4)
    assert_close(plain(qkv, 0.0), by_hand(qkv))


def test_attention_on_the_cpu_is_the_plain_one() -> None:
    qkv = packed(2, 6, 2, 16)
    assert torch.equal(attend(qkv, 0.0), plain(qkv, 0.0))


def test_dropout_keeps_the_mean_of_the_weights() -> None:
    """Values of one: an output is the sum of its kept weights over 0.75; 3,200 outputs, odds of failing 1e-6."""
    qkv = packed(2, 40, 10, 4)
    qkv[:, :, 2] = 1
    torch.manual_seed(0)
    sums = torch.stack([plain(qkv, 0.25).mean() for _ in range(20)])
    assert abs(float(sums.mean()) - 1) < 5 * float(sums.std()) / 20**0.5
    assert float(sums.std()) > 0


def run_python(code: str, *paths: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(str(p) for p in (*paths, SOURCE))
    env = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=300)


def test_nothing_breaks_where_triton_is_missing(tmp_path: Path) -> None:
    (tmp_path / "triton.py").write_text("raise ImportError('no triton here')")
    code = """
import torch
from letgo.models import attention
from letgo.presets import PRESETS
assert not attention.has_triton()
network = PRESETS["sudoku-mini"].build_model().eval()
print(tuple(network(torch.randn(2, 16, 4), torch.rand(2, 1, 1)).shape))
"""
    done = run_python(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(2, 16, 4)"


def test_the_cpu_never_imports_the_fused_kernel() -> None:
    attend(packed(1, 16, 4, 16), 0.0)
    assert "letgo.models.triton_attention" not in sys.modules


@pytest.mark.parametrize("found", [None, ModuleType("triton")])
def test_triton_is_used_only_where_it_can_be_imported(
    found: ModuleType | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "triton", found)  # None makes the import fail
    attention.has_triton.cache_clear()
    try:
        assert attention.has_triton() == (found is not None)
    finally:
        attention.has_triton.cache_clear()


# The kernel's own arithmetic is checked without a GPU: Triton's interpreter runs the same source on the CPU. It must
# be chosen before triton is imported, hence a process of its own.
INTERPRETED = """
import torch
from torch.testing import assert_close
from letgo.models.attention import plain
from letgo.models.triton_attention import attention, attention_backward, fused

MASK = 0xFFFFFFFF

def kept(seed, programs, cells, dropout):
    # The documented hash, in Python's own integers: Murmur3's finaliser of a counter.
    keep = torch.zeros(programs, cells, cells, dtype=torch.bool)
    for program in range(programs):
        for row in range(cells):
            for column in range(cells):
                x = ((program * 16384 + row * 128 + column) * 0x9E3779B1 + seed) & MASK
                x = ((x ^ (x >> 16)) * 0x85EBCA6B) & MASK
                x = ((x ^ (x >> 13)) * 0xC2B2AE35) & MASK
                keep[program, row, column] = (x ^ (x >> 16)) >= int(dropout * 2**32)
    return keep

def masked(qkv, keep, dropout):
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    weights = (q @ k.mT * qkv.shape[-1] ** -0.5).softmax(-1)
    return ((weights * keep.view_as(weights) / (1 - dropout)) @ v).transpose(1, 2)

def gradient(function, qkv, dout):
    leaf = qkv.clone().requires_grad_()
    out = function(leaf)
    out.backward(dout)
    return out.detach(), leaf.grad

torch.manual_seed(0)
for batch, cells, heads, size in [(2, 16, 2, 16), (1, 9, 3, 16), (1, 81, 1, 16), (1, 33, 2, 32)]:
    qkv, dout = torch.randn(batch, cells, 3, heads, size), torch.randn(batch, cells, heads, size)
    expected, got = gradient(lambda x: plain(x, 0.0), qkv, dout), gradient(lambda x: fused(x, 0.0), qkv, dout)
    for a, b in zip(expected, got):
        assert_close(a, b, atol=2e-5, rtol=1e-4)
    shuffled = qkv.transpose(0, 1).contiguous().transpose(0, 1)  # a view that is not packed in memory
    assert_close(fused(shuffled, 0.0), expected[0], atol=2e-5, rtol=1e-4)

dropout, seeds = 0.3, torch.tensor([123456789])
batch, cells, heads, size = 2, 11, 3, 16
qkv, dout = torch.randn(batch, cells, 3, heads, size), torch.randn(batch, cells, heads, size)
keep = kept(123456789, batch * heads, cells, dropout)
share = keep.float().mean()
assert abs(share - 0.7) < 5 * (0.3 * 0.7 / keep.numel()) ** 0.5, share  # one fixed seed, five standard errors
assert not torch.equal(keep[0], keep[1]), "each head has a mask of its own"
expected = gradient(lambda x: masked(x, keep, dropout), qkv, dout)
got = gradient(lambda x: attention(x, seeds, dropout), qkv, dout)
for a, b in zip(expected, got):
    assert_close(a, b, atol=2e-5, rtol=1e-4)
assert_close(attention_backward(qkv, dout, seeds, dropout), expected[1], atol=2e-5, rtol=1e-4)
torch.manual_seed(1)
first = fused(qkv, dropout)
second = fused(qkv, dropout)
torch.manual_seed(1)
assert not torch.equal(first, second), "every call draws a new seed"
assert torch.equal(first, fused(qkv, dropout)), "the seed comes from torch's generator"
print("same")
"""


def test_the_fused_kernel_equals_plain_attention_forward_backward_and_with_dropout() -> None:
    pytest.importorskip("triton")
    done = run_python(INTERPRETED, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "same"
