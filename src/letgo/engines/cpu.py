"""The engine for a CPU packs weights once for oneDNN and fuses products with GELU and residual sums."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from jaxtyping import Int
from torch import Tensor, nn
from torch.nn import functional as F

from letgo.engines.plain import Engine
from letgo.models.denoiser import split_output
from letgo.models.looped import LoopedTransformer, clue_cells
from letgo.models.transformer import Block, Transformer
from letgo.paths import Path
from letgo.rng import Noise, NoiseAhead
from letgo.sampling import Denoise
from letgo.shapes import State, Time

CELLS = 1296  # of a batch: beyond 16 boards of 81 cells a core gains nothing


def available() -> bool:
    """Say whether this build of torch has oneDNN with fused products."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def has_bf16() -> bool:
    """Say whether this CPU multiplies bf16 natively (AVX512-BF16 or AMX), as torch knows; elsewhere it is slow.

    oneDNN has its own say: it may be held to an older CPU (ONEDNN_MAX_CPU_ISA).
    """
    tests = (getattr(torch.cpu, f"_is_{kind}_supported", None) for kind in ("avx512_bf16", "amx_tile"))
    ours = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return any(test is not None and test() for test in tests) and (ours is None or ours())


class PackedBlock:
    """A packed block has no dropout. In bf16 only its four products are: norms, softmax and residual sums stay fp32."""

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
    """It computes f(x_t, t) as the network itself does, up to rounding; forward only, on a copy of the weights."""

    def __init__(self, network: Transformer, kind: torch.dtype = torch.float32):
        self.network = network
        with torch.no_grad():
            tables = zip(network.tables, network.positions, strict=True)
            self.place = torch.stack([table(row) for table, row in tables]).sum(0)
        self.blocks = [PackedBlock(block, kind) for block in network.blocks if isinstance(block, Block)]

    def __call__(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        network = self.network
        entered = network.embed(x_t) + (self.place + self.when(t))
        if not isinstance(network, LoopedTransformer):
            return network.answer(x_t, t, network.read(self.through_blocks(entered)))
        entered = entered + clue_cells(x_t) * network.mark
        x = self.through_blocks(entered)
        for _ in range(network.turns - 1):
            x = self.through_blocks(entered + network.again(x))
        return network.answer(x_t, t, network.read(x))

    def when(self, t: Time) -> Tensor:
        """Return the embeddings of times, each computed alone: their bits must not hang on how many there are."""
        times, place = distinct(t)
        return torch.cat([self.network.time(time) for time in times])[place]

    def through_blocks(self, x: Tensor) -> Tensor:
        batch, x = len(x), x.flatten(0, 1)
        for block in self.blocks:
            x = block(x, batch)
        return x.unflatten(0, (batch, -1))


def distinct(t: Time) -> tuple[list[Time], Int[Tensor, "rows"]]:
    """Return the times that differ, and which of them each row has."""
    if len(t) == 1:
        return [t], torch.zeros(1, dtype=torch.long)
    times, place = t.flatten().unique(return_inverse=True)
    return list(times.view(-1, 1, 1, 1)), place


def packs(network: nn.Module) -> bool:
    """Say whether the engine can pack this network; others it calls as they are."""
    return isinstance(network, Transformer) and available()


def asked_once(denoise: Denoise) -> Denoise:
    """Ask a network that is told no time about the boards alone that have changed since its last answer.

    Most steps of masked diffusion open no cell of most boards. A board has the same bits in any company.
    """
    last: list[Tensor] = []  # the states of the last call, and the answers to them

    def denoise_changed(x_t: State, t: Time) -> State:
        if not last or last[0].shape != x_t.shape:
            x0_hat, _ = split_output(denoise(x_t, t[:1]))
        else:
            changed, x0_hat = (x_t != last[0]).flatten(1).any(1), last[1]
            if bool(changed.any()):
                x0_hat = x0_hat.clone()
                x0_hat[changed] = split_output(denoise(x_t[changed], t[:1]))[0]
        last[:] = x_t, x0_hat
        return x0_hat

    return denoise_changed


class Cpu(Engine):
    """The CPU engine takes batches of any size with one row of t for all boards at the same time.

    Then no product's shape depends on the batch but by whole boards, and a board has the same bits in any company.
    Boards at different times share a call where the network is packed; others are called once for each time.
    """

    pads = False

    def __init__(self, network: nn.Module, path: Path, device: torch.device, precision: str):
        super().__init__(network, path, device, precision)
        half, self.packed = precision == "bf16", packs(network)
        self.cast = torch.autocast("cpu", torch.bfloat16) if half and not self.packed else nullcontext()
        self.forward = network
        if isinstance(network, Transformer) and self.packed:
            self.forward = PackedTransformer(network, torch.bfloat16 if half else torch.float32)

    def denoise(self, context: Tensor | None) -> Denoise:
        def denoise(x_t: State, t: Time, *memory: Tensor) -> State | tuple[State, Tensor]:
            with self.cast:
                if self.packed or len(t) == 1:
                    return self.forward(x_t, t, context, *memory)
                times, place = distinct(t)
                rows = [(place == i).nonzero().flatten() for i in range(len(times))]
                order = torch.cat(rows).argsort()
                asked = (
                    self.forward(x_t[own], time, None if context is None else context[own], *(m[own] for m in memory))
                    for own, time in zip(rows, times, strict=True)
                )
                states, memories = zip(*map(split_output, asked), strict=True)
                x0_hat = torch.cat(states)[order]
                return x0_hat if memories[0] is None else (x0_hat, torch.cat(memories)[order])

        timeless = self.packed and getattr(self.network, "timeless", False)
        return asked_once(denoise) if timeless else denoise

    def draws(self, noise: Noise) -> Noise:
        return NoiseAhead.of(noise)

    def batch(self, cells: int) -> int:
        return max(1, CELLS // cells)

    def size(self, batch: int, boards: int) -> int:
        return min(batch, boards)

    def smaller(self, whole: int, size: int, left: int, cells: int) -> int:
        return left
