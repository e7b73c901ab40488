"""A denoiser that is shown its previous prediction as further channels: self-conditioning (App. L.2, Analog Bits)."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from letgo.models.transformer import Transformer
from letgo.shapes import State, Time


class SelfConditioned(nn.Module):
    """x0_hat = f(cat([x_t, previous x0_hat]), t); before the first step the previous one is zeros.

    It holds a Transformer and is none: engines that pack or fuse one know a single state as its input.
    """

    remembers = True  # a sampler hands back what it returned beside x0_hat

    def __init__(self, dim: int, positions: Int[Tensor, "tables cells"], **options: Any):
        super().__init__()
        self.inner = Transformer(dim, positions, **options)
        self.inner.embed = nn.Linear(2 * dim, self.inner.width)

    def forward(
        self, x_t: State, t: Time, context: Tensor | None = None, memory: Tensor | None = None
    ) -> tuple[State, State]:
        previous = torch.zeros_like(x_t) if memory is None else memory
        x = self.inner.embedded(torch.cat([x_t, previous], -1), t)
        for block in self.inner.blocks:
            x = block(x)
        x0_hat = self.inner.read(x).to(x_t.dtype)
        return x0_hat, x0_hat
