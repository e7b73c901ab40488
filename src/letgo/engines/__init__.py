"""Engines run the reverse loop on one kind of device; hand-written kernels serve where the machine can run them."""

from __future__ import annotations

import torch
from torch import nn

from letgo.engines.cpu import Cpu
from letgo.engines.plain import Engine, Plain
from letgo.models.transformer import Transformer
from letgo.paths import Path


def supported(network: nn.Module) -> bool:
    """Say whether the fused kernels fit: the paper's Transformer (width 128, heads of size 16) on a Hopper card."""
    from letgo.engines import attention, cuda

    if not isinstance(network, Transformer) or not cuda.available():
        return False
    fits = network.width == 128 and network.hidden % 128 == 0 and network.heads * attention.SIZE == network.width
    return fits and network.positions.shape[1] <= attention.MOST_CELLS and network.dropout <= attention.MOST_DROPOUT


def pick_engine(network: nn.Module, path: Path, device: torch.device, precision: str, fast: bool) -> Engine:
    """Return the fastest engine that this device and precision have; without `fast` the plain one."""
    if fast and device.type == "cpu":
        return Cpu(network, path, device, precision)
    if fast and device.type == "cuda" and precision == "bf16":
        from letgo.engines.graph import Graph

        return Graph(network, path, device, precision)
    return Plain(network, path, device, precision)


__all__ = ["Engine", "pick_engine", "supported"]
