"""Absorbing-state (masked) diffusion, the paper's discrete reference (App. F.1), through the same loop.

A state has a channel for each symbol and one for the mask; x0_hat holds probabilities of the symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from letgo.kernels import Draw, Transition
from letgo.models import NETWORKS
from letgo.objectives import Batch, Network
from letgo.paths import Path
from letgo.registry import choose
from letgo.rng import DRAW, KERNEL, uniform_times
from letgo.shapes import State, Symbols, Time

LEAST = 1e-9  # the probability that is left to every symbol
SWEEPS, SWEEP_TIME, SWEEP_SHARE = 4, 0.05, 0.2  # of `remask`: the last fifth of the time, a fifth of the open cells

Cells = Bool[Tensor, "batch cells"]


def uniform(noise: Tensor) -> Tensor:
    """Standard normal noise as numbers between 0 and 1."""
    return torch.special.ndtr(noise)


class Masked:
    """One-hot vectors of K symbols, with one more channel for the mask."""

    one_hot: ClassVar[bool] = False  # of K + 1 channels, so nothing that reads K probabilities fits
    family: ClassVar[str] = "absorbing"

    def __init__(self, symbols: int):
        self.dim = symbols + 1

    def encode(self, symbols: Symbols) -> State:
        return F.one_hot(symbols.long(), self.dim).float()

    def decode(self, x: State) -> Symbols:
        return x[..., :-1].argmax(-1)


class Absorbing:
    """A cell keeps its symbol with probability alpha(t) = 1 - t and is masked otherwise."""

    family: ClassVar[str] = "absorbing"

    def alpha(self, t: Time) -> Time:
        return 1 - t

    def start(self, like: State, draw: Draw) -> State:
        return torch.cat([torch.zeros_like(like[..., :-1]), torch.ones_like(like[..., -1:])], -1)

    def sample(self, x0: State, t: Time, noise: State) -> State:
        return torch.where(uniform(noise[..., :1]) <= self.alpha(t), x0, self.start(x0, lambda purpose: noise))


Order = Callable[[Transition, Draw, Cells, Time], Cells]  # which masked cells open, where a share of them should


@dataclass(frozen=True)
class Unmask:
    """Some masked cells take symbols that are drawn from x0_hat; open cells stay, or are `hidden` first."""

    step: Transition
    order: Order
    share: Time  # of the masked cells, to be opened
    hidden: Cells | None = None

    def sample(self, draw: Draw) -> State:
        step, x_t = self.step, self.step.x_t
        if self.hidden is not None:
            x_t = torch.where(self.hidden[..., None], step.path.start(x_t, draw), x_t)
        gumbel = -(-torch.special.log_ndtr(draw(DRAW))).log()
        symbol = (step.x0_hat.clamp(min=LEAST).log() + gumbel)[..., :-1].argmax(-1)
        masked = x_t[..., -1] > 0.5
        opens = masked & self.order(step, draw, masked, self.share)
        return torch.where(opens[..., None], F.one_hot(symbol, x_t.shape[-1]).to(x_t.dtype), x_t)

    def spread(self, factor: float | Time) -> Unmask:
        return self  # it has no scale, and `Sampler` refuses a variance


def by_chance(step: Transition, draw: Draw, masked: Cells, share: Time) -> Cells:
    return uniform(draw(KERNEL))[..., 0] <= share[..., 0]  # rounded, the largest is 1


def by_confidence(step: Transition, draw: Draw, masked: Cells, share: Time) -> Cells:
    """The cells whose likeliest symbol is likeliest, as many as the share asks for."""
    sure = step.x0_hat[..., :-1].amax(-1).masked_fill(~masked, -1)
    count = (masked.sum(1, keepdim=True) * share[..., 0]).ceil()
    return _rank(-sure) < count


def _rank(score: Float[Tensor, "batch cells"]) -> Tensor:
    return score.argsort(dim=1, stable=True).argsort(dim=1)


def ancestral(step: Transition) -> Unmask:
    """Each masked cell opens with probability (t - s) / t, as the posterior has it."""
    return Unmask(step, by_chance, step.h / step.t)


def confidence(step: Transition) -> Unmask:
    """As many cells as ancestral sampling opens on average, the surest first."""
    return Unmask(step, by_confidence, step.h / step.t)


def remask(step: Transition) -> Unmask:
    """Confidence decoding until t = SWEEPS * SWEEP_TIME, then sweeps that hide the least sure open cells again.

    The first step of a sweep hides, the others open. A grid with fewer than two steps a sweep has no sweeps.
    """
    until = SWEEPS * SWEEP_TIME
    sweep, before = ((time / SWEEP_TIME - 1e-4).ceil() for time in (step.t, step.t + step.h))
    end = torch.where(step.t > until + 1e-6, until, (sweep - 1) * SWEEP_TIME)
    begins = (step.t <= until + 1e-6) & (sweep < before) & (step.s > end + 1e-6)
    share = torch.where(begins, 0.0, (step.h / (step.t - end).clamp(min=1e-6)).clamp(max=1))
    held = (step.x0_hat * step.x_t)[..., :-1].sum(-1)  # the probability of each open cell's own symbol
    open_cells = step.x_t[..., -1] < 0.5
    least = _rank(held.masked_fill(~open_cells, 2.0)) < (SWEEP_SHARE * open_cells.sum(1, keepdim=True)).floor()
    return Unmask(step, by_confidence, share, begins[..., 0] & least)


class Categorical(nn.Module):
    """A network whose outputs become probabilities of the symbols; the mask's own is 0."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network

    def forward(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        logits = self.network(x_t, t, context)[..., :-1].float()
        return F.pad(logits.softmax(-1), (0, 1))


def categorical(dim: int, task: Any, network: str = "transformer", **options: Any) -> Categorical:
    """Any network of the package as one of the reference's."""
    return Categorical(choose("network", NETWORKS, network)(dim, task, **options))


@dataclass(frozen=True)
class MaskedCrossEntropy:
    """The cross-entropy of the clean symbols at masked cells; the masking rate of a board is uniform."""

    @property
    def weights(self) -> dict[str, float]:
        return {"loss": 1.0}

    def __call__(self, network: Network, path: Path, batch: Batch) -> dict[str, Tensor]:
        t = uniform_times(batch.x0)
        x_t = batch.clues.pin(path.sample(batch.x0, t, torch.randn_like(batch.x0)))
        likely = (network(x_t, t, batch.context) * batch.x0).sum(-1).clamp(min=LEAST)
        masked = x_t[..., -1] > 0.5
        return {"loss": -(likely.log() * masked).sum(1) / masked.sum(1).clamp(min=1)}


def masked_cross_entropy(simple_weight: float, full: bool) -> MaskedCrossEntropy:
    """The objective of a configuration; the weights of self-correction mean nothing to it."""
    return MaskedCrossEntropy()


class ExactUnmasker:
    """P(symbol of a cell | open cells) over a finite set of equally likely boards: no network, no error."""

    def __init__(self, boards: Symbols, symbols: int):
        self.boards, self.states = boards, Masked(symbols).encode(boards)

    def __call__(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        masked, boards = x_t[..., -1] > 0.5, self.boards.to(x_t.device)
        agrees = ((x_t.argmax(-1)[:, None] == boards) | masked[:, None]).all(-1).float()
        weights = agrees / agrees.sum(1, keepdim=True).clamp(min=1)  # all 0 where no board agrees any more
        return torch.einsum("bn,ncd->bcd", weights, self.states.to(x_t))
