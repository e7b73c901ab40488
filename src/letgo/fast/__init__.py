"""Hand-written kernels behind the interface of the plain network, used only where the machine has what they need."""

from __future__ import annotations

from torch import nn

from letgo.models.transformer import Transformer


def supported(network: nn.Module) -> bool:
    """The paper's Transformer (width 128, heads of size 16) on a Hopper card."""
    from letgo.fast import attention, cuda

    if not isinstance(network, Transformer) or not cuda.available():
        return False
    fits = network.width == 128 and network.hidden % 128 == 0 and network.heads * attention.SIZE == network.width
    return fits and network.positions.shape[1] <= attention.MOST_CELLS and network.dropout <= attention.MOST_DROPOUT


__all__ = ["supported"]
