"""The weights of another model that a run starts from."""

from __future__ import annotations

import torch
from torch import Tensor

from letgo.codecs import Codec, encoded
from letgo.config import Config
from letgo.models.transformer import Transformer
from letgo.runs import load_model
from letgo.shapes import Symbols

BOARDS = 64  # random ones, by whose states one codec is told in the other's


def weights_from(init: str, config: Config, codec: Codec) -> dict[str, Tensor]:
    """Return the weights of another model, as the network of this configuration takes them.

    A network of another kind may do, and so may the same network with another codec.
    """
    theirs, network, folder = load_model(init)
    mine = config.build_model()
    if (grown_from := getattr(mine, "grown_from", None)) is not None:
        return grown_from(network)
    weights: dict[str, Tensor] = dict(network.named_parameters())
    task, plain = config.build_task(), type(mine) is type(network) is Transformer
    if theirs.codec != config.codec and plain and theirs.build_task().symbols == task.symbols:
        boards = torch.randint(task.symbols, (BOARDS, task.cells), generator=torch.Generator().manual_seed(0))
        weights |= translated(weights, *(_states(c, boards) for c in (theirs.build_codec(folder, "valid"), codec)))
    return weights


def _states(codec: Codec, boards: Symbols) -> Tensor:
    return encoded(codec, boards, lambda: torch.arange(len(boards))).flatten(0, 1).double()


def translated(weights: dict[str, Tensor], theirs: Tensor, ours: Tensor) -> dict[str, Tensor]:
    """Return the network's two ends for our states of symbols instead of their states of the same.

    Each end passes through the best linear map between the two: on the way in that from a state under unit noise,
    on the way out that from their symbol to our mean of it.
    """
    inward = torch.linalg.solve(ours.T @ ours + len(ours) * torch.eye(ours.shape[1]).to(ours), ours.T @ theirs)
    outward = torch.linalg.lstsq(theirs, ours).solution
    embed, head, bias = (weights[name].double() for name in ("embed.weight", "head.weight", "head.bias"))
    ends = {
        "embed.weight": embed @ inward.T,
        "head.weight": outward.T @ head,
        "head.bias": outward.T @ bias,
    }
    return {name: value.to(weights[name].dtype) for name, value in ends.items()}
