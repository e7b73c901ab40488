"""Hand-written GPU kernels behind the interface of the plain network, used only where the machine has what they need."""

from __future__ import annotations

from torch import nn

from letgo.models.transformer import Transformer


def supported(network: nn.Module) -> bool:
    """The paper's Transformer (width 128, heads of size 16) on a Hopper card."""
    from letgo.fast import attention, cuda

    if not isinstance(network, Transformer) or not cuda.available():
        return False
    first = network.blocks[0]
    width, hidden, heads = first.mlp[0].in_features, first.mlp[0].out_features, first.attention.heads
    cells = network.positions.shape[1]
    return width == 128 and hidden % 128 == 0 and heads * attention.SIZE == width and cells <= attention.MOST_CELLS


__all__ = ["supported"]
