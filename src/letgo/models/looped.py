"""Denoisers that think in turns: the same layers, several times in one call. Not in the paper."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from letgo.errors import LetgoError
from letgo.models.nlm import NeuralLogicMachine
from letgo.models.transformer import Hidden, Transformer
from letgo.shapes import State, Time

Logits = Float[Tensor, "batch turns cells dim"]
SHARPEN = 10.0  # logits for each unit of a plain network's answer


def clue_cells(x_t: State) -> Bool[Tensor, "batch cells 1"]:
    """Say whether a cell is pinned: noise never leaves an exact one-hot vector, so the state itself tells its clues."""
    return ((x_t == 0) | (x_t == 1)).all(-1, keepdim=True)


class Looped(nn.Module, ABC):
    """A Looped network answers after each of its turns; x0_hat = softmax of the last one's logits, for one-hot states.

    Nothing is carried from call to call: to a sampler it is an ordinary f(x_t, t).
    """

    one_hot = True  # its answers are probabilities of symbols
    plain: ClassVar[type[nn.Module]]  # the network of one turn, answering x0_hat itself

    def __init__(self, *args: Any, turns: int = 4, **options: Any):
        super().__init__(*args, **options)
        if not 1 <= turns <= 1_000:
            raise LetgoError(f"a looped network takes 1 to 1,000 turns, got {turns}")
        self.turns = turns

    @abstractmethod
    def logits(self, x_t: State, t: Time, context: Tensor | None = None) -> Logits:
        """Return what the network answers after each turn."""

    def forward(self, x_t: State, t: Time, context: Tensor | None = None, every_turn: bool = False) -> State | Logits:
        """Return x0_hat or, for the loss, the logits of every turn."""
        logits = self.logits(x_t, t, context)
        return logits if every_turn else self.answer(x_t, t, logits[:, -1]).to(x_t.dtype)

    def answer(self, x_t: State, t: Time, raw: State) -> State:
        return raw.float().softmax(-1)

    def grown_from(self, network: nn.Module) -> dict[str, Tensor]:
        """Return the weights of another network to start from; those of a plain one are answered with at every turn.

        Its x0_hat is a probability of symbols, so SHARPEN times that are logits of nearly the same one.
        """
        weights: dict[str, Tensor] = dict(network.named_parameters())
        if type(network) is self.plain:
            head = {name: SHARPEN * weights[name] for name in ("head.weight", "head.bias")}
            weights |= head | self.deaf(weights)
        return weights

    @abstractmethod
    def deaf(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return what a plain network's weights lack, so that a turn does not hear what the one before found."""


class LoopedTransformer(Looped, Transformer):
    """e = embedding + mark on clues; h_1 = blocks(e), h_r = blocks(e + LayerNorm(h_(r-1))), logits_r = head(h_r)."""

    plain = Transformer

    def __init__(self, dim: int, positions: Int[Tensor, "tables cells"], **options: Any):
        super().__init__(dim, positions, **{"dropout": 0.0, **options})
        self.mark = nn.Parameter(torch.randn(self.width))
        self.again = nn.LayerNorm(self.width)

    def embedded(self, x_t: State, t: Time) -> Hidden:
        return super().embedded(x_t, t) + clue_cells(x_t) * self.mark

    def logits(self, x_t: State, t: Time, context: Tensor | None = None) -> Logits:
        entered, answers = self.embedded(x_t, t), []
        x = entered
        for _ in range(self.turns):
            for block in self.blocks:
                x = block(x)
            answers.append(self.read(x))
            x = entered + self.again(x)
        return torch.stack(answers, 1)

    def deaf(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {name: torch.zeros(self.width) for name in ("again.weight", "again.bias", "mark")}


class LoopedNLM(Looped, NeuralLogicMachine):
    """e = graph, state and time; h_r = NLM(e, h_(r-1)) from h_0 = 0, logits_r = head(h_r).

    A turn of two layers joins paths once, so R of them reach 2^R edges. Nothing is marked, as no cell of
    an answer is given: what is known is the graph, which enters every turn.
    """

    plain = NeuralLogicMachine

    def __init__(self, dim: int = 2, width: int = 32, **options: Any):
        super().__init__(dim + width, width, **options)
        self.head = nn.Linear(width, dim)

    def logits(self, x_t: State, t: Time, context: Tensor | None = None) -> Logits:
        entered, answers = self.entered(x_t, t, context), []
        pairs = entered.new_zeros(*entered.shape[:3], self.width)
        for _ in range(self.turns):
            pairs = self.hidden(torch.cat([entered, pairs], -1))
            answers.append(self.head(pairs).flatten(1, 2))
        return torch.stack(answers, 1)

    def deaf(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the first layer's maps with zeros for h: of max and min, of a pair's two and a triple's six orders."""
        maps = {"nodes.weight": 2, "pairs.weight": 2, "triples.weight": 6}
        return {
            name: F.pad(weights[name].unflatten(1, (parts, -1)), (0, self.width)).flatten(1)
            for name, parts in maps.items()
        }
