"""The paper's denoiser: a pre-norm Transformer over cells (App. E.1, Table 3)."""

from __future__ import annotations

import math
from typing import Annotated, TypedDict

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from letgo.errors import LetgoError
from letgo.shapes import State, Time
from letgo.typed import Between, Share, check

Hidden = Float[Tensor, "batch cells width"]


class Sizes(TypedDict):
    """Sizes are the options of a Transformer; more is no network but a mistake."""

    width: Annotated[int, Between(1, 65_536)]
    depth: Annotated[int, Between(1, 1_000)]
    heads: Annotated[int, Between(1, 65_536)]
    hidden: Annotated[int, Between(1, 1_000_000)]
    time_features: Annotated[int, Between(2, 65_536)]
    dropout: Share


class FourierTime(nn.Module):
    """It puts [sin(2 pi w_k t), cos(2 pi w_k t)], w_k log-spaced in 1..100, through a two-layer MLP (App. E.1)."""

    frequencies: Tensor

    def __init__(self, features: int, width: int):
        super().__init__()
        frequencies = torch.logspace(0, 2, features // 2, dtype=torch.float64).float()
        self.register_buffer("frequencies", frequencies, persistent=False)
        self.mlp = nn.Sequential(nn.Linear(features, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, t: Time) -> Float[Tensor, "batch 1 width"]:
        angle = 2 * math.pi * t * self.frequencies
        return self.mlp(torch.cat([angle.sin(), angle.cos()], -1))


def by_products(q: Tensor, k: Tensor, v: Tensor, dropout_p: float) -> Tensor:
    """Attend by two products: torch's own attention is several times slower in bf16 on a CPU (docs/performance.md).

    Keys are filled up to a multiple of 16, which such products are fast with.
    """
    cells, more = k.shape[-2], -k.shape[-2] % 16
    q, k, v = (F.pad(part, (0, 0, 0, more)) for part in (q, k, v))
    logits = (q * q.shape[-1] ** -0.5) @ k.mT
    logits[..., cells:] = -math.inf
    weights = F.dropout(logits.float().softmax(-1), dropout_p)
    return (weights.to(v.dtype) @ v)[..., :cells, :]


class Attention(nn.Module):
    """Every cell attends to all by several heads, with dropout on the weights."""

    def __init__(self, width: int, heads: int, dropout: float):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Hidden) -> Hidden:
        batch, cells, width = x.shape
        q, k, v = self.qkv(x).view(batch, cells, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        attend = by_products if q.dtype == torch.bfloat16 and not q.is_cuda else F.scaled_dot_product_attention
        mixed = attend(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        return self.out(mixed.transpose(1, 2).reshape(batch, cells, width))


class Block(nn.Module):
    """Attention and MLP follow a norm each, with dropout and a residual connection."""

    def __init__(self, width: int, heads: int, hidden: int, dropout: float):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout)
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Hidden) -> Hidden:
        x = x + self.dropout(self.attention(self.norm1(x)))
        return x + self.dropout(self.mlp(self.norm2(x)))


class Transformer(nn.Module):
    """x0_hat = f(x_t, t). Clues reach it only through their pinned values; positions are drawn N(0, 1)."""

    positions: Tensor
    sees_context = False

    def __init__(
        self,
        dim: int,
        positions: Int[Tensor, "tables cells"],
        width: int = 128,
        depth: int = 4,
        heads: int = 8,
        hidden: int = 512,
        time_features: int = 64,
        dropout: float = 0.01,
    ):
        super().__init__()
        given = {"width": width, "depth": depth, "heads": heads, "hidden": hidden, "time_features": time_features}
        check({**given, "dropout": dropout}, Sizes, "a Transformer")
        if width % heads or time_features % 2:
            raise LetgoError(f"heads {heads} must divide width {width}, and time_features {time_features} be even")
        self.width, self.depth, self.heads, self.hidden, self.dropout = width, depth, heads, hidden, dropout
        self.register_buffer("positions", positions.clone(), persistent=False)
        self.embed = nn.Linear(dim, width)
        # nn.Embedding draws N(0, 1). With a small scale (0.02) training stalls before boxes are learned.
        self.tables = nn.ModuleList(nn.Embedding(int(row.max()) + 1, width) for row in positions)
        self.time = FourierTime(time_features, width)
        self.blocks = nn.ModuleList(Block(width, heads, hidden, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, dim)

    def embedded(self, x_t: State, t: Time) -> Hidden:
        place = sum(table(row) for table, row in zip(self.tables, self.positions, strict=True))
        return self.embed(x_t) + place + self.time(t)

    def read(self, x: Hidden) -> State:
        return self.head(self.norm(x))

    def answer(self, x_t: State, t: Time, raw: State) -> State:
        """Return x0_hat from what the head says: here it is that."""
        return raw

    def forward(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        x = self.embedded(x_t, t)
        for block in self.blocks:
            x = block(x)
        return self.answer(x_t, t, self.read(x)).to(x_t.dtype)
