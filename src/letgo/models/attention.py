"""Multi-head attention over few cells: plain PyTorch, and a fused kernel that is used where the machine has it."""

from __future__ import annotations

from functools import cache

from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

Packed = Float[Tensor, "batch cells 3 heads size"]  # queries, keys and values as one linear map leaves them
Mixed = Float[Tensor, "batch cells heads size"]


def plain(qkv: Packed, dropout: float) -> Mixed:
    """The reference: softmax(q k^T / sqrt(size)) v, dropout on the weights."""
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout).transpose(1, 2)


@cache
def has_triton() -> bool:
    try:
        import triton  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ImportError:
        return False
    return True


def attend(qkv: Packed, dropout: float) -> Mixed:
    """Fused where a GPU, Triton and a small board allow it, else plain: the same function either way."""
    _, cells, _, _, size = qkv.shape
    if qkv.is_cuda and has_triton() and cells <= 128 and size in (16, 32, 64):
        from letgo.models.triton_attention import fused

        return fused(qkv, dropout)
    return plain(qkv, dropout)
