"""The Transformer forward on a CPU: weights packed once for oneDNN, products fused with GELU and residual sums."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from letgo.models.transformer import Block, Transformer
from letgo.shapes import State, Time


def available() -> bool:
    """Whether this build of torch has oneDNN with fused products."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def has_bf16() -> bool:
    """Whether this CPU multiplies bf16 natively (AVX512-BF16 or AMX), as far as torch knows; elsewhere it is slow."""
    tests = (getattr(torch.cpu, f"_is_{kind}_supported", None) for kind in ("avx512_bf16", "amx_tile"))
    return any(test is not None and test() for test in tests)


class PackedBlock:
    """A Block without dropout. In bf16 only the four products are: norms, softmax and residual sums stay fp32."""

    def __init__(self, block: Block, kind: torch.dtype):
        self.block, self.kind, self.heads = block, kind, block.attention.heads
        up, down = block.mlp[0], block.mlp[2]
        assert isinstance(up, nn.Linear)
        assert isinstance(down, nn.Linear)
        layers = (block.attention.qkv, block.attention.out, up, down)
        self.qkv, self.out, self.up, self.down = (self.packed(layer) for layer in layers)

    def packed(self, layer: nn.Linear) -> tuple[Tensor, Tensor]:
        weight, bias = layer.weight.detach().to(self.kind), layer.bias.detach().to(self.kind)
        return torch.ops.mkldnn._reorder_linear_weight(weight), bias

    def linear(self, x: Tensor, layer: tuple[Tensor, Tensor], then: str = "none") -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x.to(self.kind), *layer, then, [], "none")

    def added(self, x: Tensor, layer: tuple[Tensor, Tensor], rest: Tensor) -> Tensor:
        if self.kind is torch.float32:
            return torch.ops.mkldnn._linear_pointwise.binary(x, rest, *layer, "add")
        return rest + self.linear(x, layer)

    def __call__(self, x: Tensor, batch: int) -> Tensor:
        q, k, v = (
            self.linear(self.block.norm1(x), self.qkv)
            .float()
            .unflatten(1, (3, self.heads, -1))
            .unflatten(0, (batch, -1))
            .permute(2, 0, 3, 1, 4)
        )
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = self.added(mixed, self.out, x)
        return self.added(self.linear(self.block.norm2(x), self.up, "gelu"), self.down, x)


class PackedTransformer:
    """f(x_t, t) as the network itself computes it, up to rounding; forward only. It copies the weights as they are."""

    def __init__(self, network: Transformer, kind: torch.dtype = torch.float32):
        self.network = network
        with torch.no_grad():
            tables = zip(network.tables, network.positions, strict=True)
            self.place = torch.stack([table(row) for table, row in tables]).sum(0)
        self.blocks = [PackedBlock(block, kind) for block in network.blocks if isinstance(block, Block)]

    def __call__(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        x = (self.network.embed(x_t) + (self.place + self.network.time(t))).flatten(0, 1)
        for block in self.blocks:
            x = block(x, len(x_t))
        return self.network.read(x.unflatten(0, (len(x_t), -1)))
