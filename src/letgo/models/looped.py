"""A denoiser that thinks in turns: the same blocks, several times in one call. Not in the paper."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from letgo.errors import LetgoError
from letgo.models.transformer import Hidden, Transformer
from letgo.shapes import State, Time

Logits = Float[Tensor, "batch turns cells dim"]
SHARPEN = 10.0  # logits for each unit of a plain network's answer


def clue_cells(x_t: State) -> Bool[Tensor, "batch cells 1"]:
    """Say whether a cell is pinned: noise never leaves an exact one-hot vector, so the state itself tells its clues."""
    return ((x_t == 0) | (x_t == 1)).all(-1, keepdim=True)


class LoopedTransformer(Transformer):
    """x0_hat = softmax of the last turn's logits, for one-hot states.

    e = embedding + mark on clues; h_1 = blocks(e), h_r = blocks(e + LayerNorm(h_(r-1))), logits_r = head(h_r). Nothing
    is carried from call to call: to a sampler it is an ordinary f(x_t, t).
    """

    one_hot = True  # its answers are probabilities of symbols

    def __init__(self, dim: int, positions: Int[Tensor, "tables cells"], turns: int = 4, **options: Any):
        super().__init__(dim, positions, **{"dropout": 0.0, **options})
        if not 1 <= turns <= 1_000:
            raise LetgoError(f"a looped network takes 1 to 1,000 turns, got {turns}")
        self.turns = turns
        self.mark = nn.Parameter(torch.randn(self.width))
        self.again = nn.LayerNorm(self.width)

    def embedded(self, x_t: State, t: Time) -> Hidden:
        return super().embedded(x_t, t) + clue_cells(x_t) * self.mark

    def logits(self, x_t: State, t: Time) -> Logits:
        """Return what the network answers after each turn."""
        entered, answers = self.embedded(x_t, t), []
        x = entered
        for _ in range(self.turns):
            for block in self.blocks:
                x = block(x)
            answers.append(self.read(x))
            x = entered + self.again(x)
        return torch.stack(answers, 1)

    def forward(self, x_t: State, t: Time, context: Tensor | None = None, every_turn: bool = False) -> State | Logits:
        """Return x0_hat or, for the loss, the logits of every turn."""
        logits = self.logits(x_t, t)
        return logits if every_turn else self.answer(x_t, t, logits[:, -1]).to(x_t.dtype)

    def grown_from(self, network: nn.Module) -> dict[str, Tensor]:
        """Return the weights of another network to start from; those of a plain one are answered with at every turn.

        Its x0_hat is a probability of symbols, so SHARPEN times that are logits of nearly the same one.
        """
        weights = dict(network.named_parameters())
        if type(network) is Transformer:
            for part in ("weight", "bias"):
                weights[f"head.{part}"] = SHARPEN * weights[f"head.{part}"]
                weights[f"again.{part}"] = torch.zeros(self.width)
            weights["mark"] = torch.zeros(self.width)
        return weights

    def answer(self, x_t: State, t: Time, raw: State) -> State:
        return raw.float().softmax(-1)
