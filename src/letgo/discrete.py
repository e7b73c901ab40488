"""Absorbing-state (masked) diffusion, the paper's discrete reference (App. F.1), through the same loop.

A state has a channel for each symbol and one for the mask; x0_hat holds probabilities of the symbols.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from letgo.errors import LetgoError
from letgo.kernels import Draw, Transition
from letgo.models import positions_of
from letgo.models.nlm import NeuralLogicMachine
from letgo.models.transformer import Transformer
from letgo.objectives import Batch, Network
from letgo.paths import Path
from letgo.pinning import Clues
from letgo.registry import choose
from letgo.rng import DRAW, KERNEL, START, Noise, uniform_times
from letgo.sampling import BELIEF_TIMES, Denoise, cell_likelihood, propose
from letgo.shapes import State, Symbols, Time

LEAST = 1e-9  # the probability that is left to every symbol
SWEEPS, SWEEP_TIME, SWEEP_SHARE = 4, 0.05, 0.2  # of `remask`: the last fifth of the time, a fifth of the cells
TEMPERATURE = 0.5  # of the symbols that `confidence` and `remask` draw
REMASK_RATE = 8.0  # of `remdm`, per unit of time: ReMDM-cap's .008 a step at its 1024 steps

Cells = Bool[Tensor, "batch cells"]


def uniform(noise: Tensor) -> Tensor:
    """Return standard normal noise as numbers between 0 and 1."""
    return torch.special.ndtr(noise)


class Masked:
    """It writes one-hot vectors of K symbols, with one more channel for the mask."""

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


@torch.no_grad()
def masked_belief(
    denoise: Denoise, path: Path, clues: Clues, board: State, noise: Noise
) -> Float[Tensor, "batch cells"]:
    """Return what each cell has in the network's self-likelihood of a finished board: the log-probability of its symbol
    while it is hidden with a few others, every open cell once. A clue has nothing."""
    calls, total = len(BELIEF_TIMES), torch.zeros(board.shape[:2], device=board.device)
    turn = (calls * uniform(noise.normal(1, START, *board.shape[1:])[..., 0])).floor().clamp(max=calls - 1)
    time, nothing = torch.full((1, 1, 1), 1 / calls, device=board.device), torch.zeros_like(board)
    nothing[..., -1] = 1
    for call in range(calls):
        hidden = turn == call
        x_t = clues.pin(torch.where(hidden[..., None], nothing, board))
        x0_hat = propose(denoise, x_t, time, None)[0]
        total += cell_likelihood(x0_hat, board, clues.given | ~hidden)
    return total


Choice = Callable[[Draw], Cells]


@dataclass(frozen=True)
class Unmask:
    """Masked cells that `opens` names take symbols of x0_hat; open cells that `hides` names are masked again."""

    step: Transition
    opens: Choice
    hides: Choice | None = None
    temperature: float = 1.0  # the symbols are drawn from x0_hat^(1 / temperature); at 0 they are the likeliest ones

    def sample(self, draw: Draw) -> State:
        step, x_t, masked = self.step, self.step.x_t, masked_cells(self.step.x_t)
        scores = step.x0_hat.clamp(min=LEAST).log()
        scores = scores + self.temperature * gumbel(draw(DRAW)) if self.temperature else scores
        symbols = scores[..., :-1].argmax(-1)
        opens = (masked & self.opens(draw))[..., None]
        x_s = torch.where(opens, F.one_hot(symbols, x_t.shape[-1]).to(x_t.dtype), x_t)
        if self.hides is None:
            return x_s
        return torch.where((~masked & self.hides(draw))[..., None], step.path.start(x_t, draw), x_s)

    def spread(self, factor: float | Time) -> Unmask:
        return self  # it has no scale, and `Sampler` refuses a variance


def masked_cells(x: State) -> Cells:
    return x[..., -1] > 0.5


def chance(draw: Draw) -> Float[Tensor, "batch cells"]:
    """Return a number between 0 and 1 for each cell; rounded, the largest is 1."""
    return uniform(draw(KERNEL))[..., 0]


def gumbel(noise: Tensor) -> Tensor:
    """Return standard normal noise as Gumbel noise: the largest of log p + noise is a draw from p."""
    return -(-torch.special.log_ndtr(noise)).log()


def ancestral(step: Transition) -> Unmask:
    """Each masked cell opens with probability (t - s) / t, as the posterior has it."""
    return Unmask(step, lambda draw: chance(draw) <= (step.h / step.t)[..., 0])


def remdm(step: Transition) -> Unmask:
    """ReMDM's posterior (Wang et al. 2025): an open cell is masked again with probability sigma, and so many more
    masked ones open that the share of masked cells is s all the same. With sigma = 0 it is ancestral sampling.

    sigma is capped, as in ReMDM-cap; but the cap is a rate in time, so that smaller steps come nearer to the exact law.
    """
    sigma = torch.minimum(REMASK_RATE * step.h, step.s / (1 - step.t).clamp(min=1e-6)).clamp(max=1)
    share = (step.h + sigma * (1 - step.t)) / step.t
    return Unmask(step, lambda draw: chance(draw) <= share[..., 0], lambda draw: chance(draw) < sigma[..., 0])


@dataclass(frozen=True)
class Confidence:
    """The surest cells open first, as many as leave the share s of all that are no clues masked.

    Symbols are drawn from x0_hat^(1 / temperature): where the network is nearly sure it is taken at its word, where
    several symbols are alike any of them is. With `order_noise` the likeliest symbols are taken instead, and chance is
    in the order: the logarithm of a cell's largest probability has Gumbel noise of scale order_noise * t (Ye et al.
    2024 have .5). With 0 of either nothing is left to chance.
    """

    order_noise: float | None = None
    temperature: float | None = None  # None is TEMPERATURE, or 0 with order_noise

    def __post_init__(self) -> None:
        for name in ("order_noise", "temperature"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < math.inf:
                raise LetgoError(f"{name} must be >= 0, got {value}")
        if self.order_noise is not None and self.temperature:
            raise LetgoError("with order_noise the likeliest symbols are taken; leave temperature out, or order_noise")

    def __call__(self, step: Transition) -> Unmask:
        return self.until(step, _whole(_open_to_all(step).sum(1, keepdim=True) * step.s[..., 0]))

    def until(self, step: Transition, left: Tensor, hides: Choice | None = None) -> Unmask:
        """Open the surest cells until `left` ones are masked."""
        masked, noise = masked_cells(step.x_t), self.order_noise or 0.0

        def opens(draw: Draw) -> Cells:
            sure = step.x0_hat[..., :-1].amax(-1).clamp(min=LEAST).log()
            sure = sure + noise * step.t[..., 0] * gumbel(draw(KERNEL)[..., 0]) if noise else sure
            return _rank(-sure.masked_fill(~masked, -torch.inf)) < masked.sum(1, keepdim=True) - left

        usual = TEMPERATURE if self.order_noise is None else 0.0
        return Unmask(step, opens, hides, usual if self.temperature is None else self.temperature)


@dataclass(frozen=True)
class Remask(Confidence):
    """Confidence decoding until t = SWEEPS * SWEEP_TIME, then sweeps that hide the least sure open cells again.

    The first step of a sweep hides, the others open. A grid with fewer than two steps a sweep has no sweeps.
    """

    def __call__(self, step: Transition) -> Unmask:
        until, count = SWEEPS * SWEEP_TIME, _open_to_all(step).sum(1, keepdim=True)
        sweep, before = ((time / SWEEP_TIME - 1e-4).ceil() for time in (step.t, step.t + step.h))
        sweeping, end = step.t <= until + 1e-6, (sweep - 1) * SWEEP_TIME
        begins = (sweeping & (sweep < before) & (step.s > end + 1e-6))[..., 0]
        masked = masked_cells(step.x_t).sum(1, keepdim=True)
        first = _whole(count * ((step.s - until) / (1 - until))[..., 0].clamp(min=0))
        later = _whole(masked * ((step.s - end) / (step.t - end).clamp(min=1e-6))[..., 0].clamp(min=0))
        left = torch.where(sweeping[..., 0], torch.where(begins, masked, later), first)
        held = (step.x0_hat * step.x_t)[..., :-1].sum(-1)  # the probability of each open cell's own symbol
        others = masked_cells(step.x_t) | ~_open_to_all(step)
        least = _rank(held.masked_fill(others, 2.0)) < _whole(SWEEP_SHARE * count)
        return self.until(step, left, lambda draw: begins & ~others & least)


def _open_to_all(step: Transition) -> Cells:
    """Return the cells that are no clues."""
    return torch.ones_like(step.x_t[..., 0], dtype=torch.bool) if step.given is None else ~step.given


def _whole(count: Tensor) -> Tensor:
    return (count + 1e-4).floor()  # a product that rounding left a little below a whole number


def _rank(score: Float[Tensor, "batch cells"]) -> Tensor:
    """Return how many cells of the same board come before each one; equal scores keep the cells' order.

    Comparing all pairs is what two stable sorts give, and the compiler of a captured step needs 20 s for it, not 100.
    """
    mine, others = score[:, :, None], score[:, None, :]
    place = torch.arange(score.shape[1], device=score.device)
    return ((others < mine) | ((others == mine) & (place < place[:, None]))).sum(2)


class Categorical:
    """It turns a network's outputs into probabilities of the symbols; the mask's own is 0.

    What a masked cell is, given the open ones, does not depend on the time: its frequencies are 0, and a decoder may
    open cells at a pace of its own.
    """

    timeless: ClassVar[bool] = True
    time: Any

    def __init__(self, *sizes: Any, **options: Any):
        super().__init__(*sizes, **options)
        self.time.frequencies.zero_()

    def answer(self, x_t: State, t: Time, raw: State) -> State:
        return F.pad(raw[..., :-1].float().softmax(-1), (0, 1))


class CategoricalTransformer(Categorical, Transformer):
    """It is the paper's Transformer as the reference's."""


class CategoricalMachine(Categorical, NeuralLogicMachine):
    """It is the Neural Logic Machine as the reference's: a pair's 0, 1 or mask takes the place of its noisy state."""


BODIES: dict[str, Callable[..., nn.Module]] = {
    "transformer": lambda dim, task, **options: CategoricalTransformer(dim, positions_of(task), **options),
    "nlm": lambda dim, task, **options: CategoricalMachine(dim, **options),
}


def categorical(dim: int, task: Any, network: str = "transformer", **options: Any) -> nn.Module:
    """Return a network of the package as one of the reference's."""
    return choose("network of masked diffusion", BODIES, network)(dim, task, **options)


@dataclass(frozen=True)
class MaskedCrossEntropy:
    """The loss is the cross-entropy of the clean symbols at masked cells; the masking rate of a board is uniform."""

    @property
    def weights(self) -> dict[str, float]:
        return {"loss": 1.0}

    def __call__(self, network: Network, path: Path, batch: Batch) -> dict[str, Tensor]:
        t = uniform_times(batch.x0)
        x_t = batch.clues.pin(path.sample(batch.x0, t, torch.randn_like(batch.x0)))
        likely = (network(x_t, t, batch.context) * batch.x0).sum(-1).clamp(min=LEAST)
        masked = masked_cells(x_t)
        return {"loss": -(likely.log() * masked).sum(1) / masked.sum(1).clamp(min=1)}


def masked_cross_entropy(simple_weight: float, full: bool) -> MaskedCrossEntropy:
    """Build the objective of a configuration; the weights of self-correction mean nothing to it."""
    return MaskedCrossEntropy()


class ExactUnmasker:
    """It gives P(symbol of a cell | open cells) over a finite set of equally likely boards: no network, no error."""

    def __init__(self, boards: Symbols, symbols: int):
        self.states = Masked(symbols).encode(boards)

    def __call__(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        states, count = self.states.to(x_t).flatten(1), (~masked_cells(x_t)).sum(1, keepdim=True)
        agrees = (x_t.flatten(1) @ states.T == count).to(x_t)  # in all open cells; no board has a masked one
        weights = agrees / agrees.sum(1, keepdim=True).clamp(min=1)  # all 0 where no board agrees any more
        return (weights @ states).view_as(x_t)
