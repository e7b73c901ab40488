"""Improved consistency training (Song and Dhariwal 2024) on the cosine path (App. L.4).

A consistency model answers every point of a trajectory of the probability flow with the trajectory's beginning. It is
trained on pairs of neighbouring points that share clean board and noise; their number of levels grows. Its multistep
sampling, noising f(x_t, t) to the next time, is Tweedie reprojection.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from letgo.codecs import OnDevices
from letgo.errors import LetgoError
from letgo.models import positions_of
from letgo.models.transformer import Transformer
from letgo.objectives import Batch, Network
from letgo.paths import CosinePath, Path
from letgo.shapes import State, Time

SIGMA_MIN, SIGMA_MAX, RHO = 0.002, 80.0, 7.0  # noise levels beta / alpha, spaced as Karras et al. have them
FEWEST, MOST = 10, 1280  # intervals between levels at the beginning and at the end of training
STAGES = int(math.log2(MOST / FEWEST)) + 1  # they double from one to the next, all equally long
LOG_MEAN, LOG_STD = -1.1, 2.0  # of the noise level that is drawn
HUBER = 0.00054  # c of the pseudo-Huber distance, times the root of a board's numbers

COSINE = CosinePath()


def time_of(sigma: Tensor) -> Tensor:
    """Return the time at which beta / alpha is sigma, on the cosine path."""
    return 2 / math.pi * torch.atan(sigma)


EARLIEST = float(time_of(torch.tensor(SIGMA_MIN, dtype=torch.float64)))  # eps: there f(x, eps) = x


def intervals(stage: int) -> int:
    """Return N - 1 = s0 2^stage, at most s1."""
    return min(FEWEST * 2**stage, MOST)


def stage_of(progress: Float[Tensor, ""]) -> Int[Tensor, ""]:
    """Return the stage of a run that is a share of its steps old."""
    return (progress * STAGES).floor().clamp(0, STAGES - 1).long()


def noise_levels(stage: int) -> Float[Tensor, "levels"]:
    """Return sigma_1 < ... < sigma_N."""
    share = torch.linspace(0, 1, intervals(stage) + 1, dtype=torch.float64)
    low, high = SIGMA_MIN ** (1 / RHO), SIGMA_MAX ** (1 / RHO)
    return (low + share * (high - low)) ** RHO


def interval_chances(stage: int) -> Float[Tensor, "intervals"]:
    """Return how often each pair of neighbours is drawn: a lognormal, cut at the levels."""
    below = torch.erf((noise_levels(stage).log() - LOG_MEAN) / (math.sqrt(2) * LOG_STD)).diff()
    return below / below.sum()


def padded_rows(rows: list[Tensor], fill: float) -> Float[Tensor, "rows most"]:
    """Return rows of different lengths as one table."""
    most = max(map(len, rows))
    return torch.stack([torch.nn.functional.pad(row, (0, most - len(row)), value=fill) for row in rows]).float()


def pseudo_huber(difference: State) -> Float[Tensor, "batch"]:
    """Return sqrt(|d|^2 + c^2) - c of each board."""
    d = difference.float().flatten(1)
    c = HUBER * math.sqrt(d.shape[1])
    return (d.square().sum(1) + c**2).sqrt() - c


class ConsistencyTraining:
    """The loss is the pseudo-Huber distance between f at two neighbouring levels, weighted by 1 / (sigma_n+1 -
    sigma_n).

    The answer at the lower level is the target; it is the same weights', without gradient and without an average.
    """

    weights: Mapping[str, float] = {"loss": 1.0}

    def __init__(self) -> None:
        stages = range(STAGES)
        self.sigmas = OnDevices(padded_rows([noise_levels(stage) for stage in stages], SIGMA_MAX))
        self.reached = OnDevices(padded_rows([interval_chances(stage).cumsum(0) for stage in stages], 2.0))

    def __call__(self, network: Network, path: Path, batch: Batch) -> dict[str, Tensor]:
        if not isinstance(path, CosinePath) or path.shift != 1:
            raise LetgoError("consistency training is for the cosine path, not shifted; leave the path as it is")
        x0, clues, device = batch.x0, batch.clues, batch.x0.device
        progress = torch.zeros((), device=device) if batch.progress is None else batch.progress
        stage = stage_of(progress).view(1)
        reached = self.reached.on(device).index_select(0, stage)
        index = (torch.rand(len(x0), 1, device=device) >= reached).sum(1)
        levels = self.sigmas.on(device).index_select(0, stage)[0]
        low, high = levels[index], levels[index + 1]
        noise = torch.randn_like(x0)

        def answer(sigma: Tensor) -> State:
            t = time_of(sigma).view(-1, 1, 1)
            return clues.pin(network(clues.pin(path.sample(x0, t, noise)), t, batch.context))

        with torch.no_grad():
            target = answer(low)
        return {"loss": pseudo_huber(answer(high) - target) / (high - low)}


@dataclass(frozen=True)
class Boundary:
    """f(x, t) = skip(t) x + out(t) F(x, t) with f(x, eps) = x: the preconditioning of EDM for x0 + sigma z = x / alpha.

    Written with alpha and beta it divides by nothing that can be 0, so t = 1 is safe. Before eps, f is the identity.
    """

    data_scale: float  # the root mean square of the data's numbers

    def __call__(self, x_t: State, t: Time, raw: State) -> State:
        t = t.clamp(min=EARLIEST)
        alpha, beta, first = COSINE.alpha(t), COSINE.beta(t), math.cos(math.pi / 2 * EARLIEST)
        rest = (beta - SIGMA_MIN * alpha).clamp(min=0)
        skip = first * alpha * self.data_scale**2 / (rest**2 + (self.data_scale * alpha) ** 2)
        out = self.data_scale * rest / (beta**2 + (self.data_scale * alpha) ** 2).sqrt()
        return skip * x_t + out * raw


class ConsistencyTransformer(Transformer):
    """It is the paper's Transformer as a consistency model of one-hot states."""

    def __init__(self, dim: int, positions: Int[Tensor, "tables cells"], **options: Any):
        super().__init__(dim, positions, **{"dropout": 0.0, **options})
        self.boundary = Boundary(dim**-0.5)

    def answer(self, x_t: State, t: Time, raw: State) -> State:
        return self.boundary(x_t, t, raw)


def consistency_transformer(dim: int, task: Any, **options: Any) -> ConsistencyTransformer:
    return ConsistencyTransformer(dim, positions_of(task), **options)


def consistency_training(simple_weight: float, full: bool) -> ConsistencyTraining:
    """Build the objective of a configuration; the weights of self-correction mean nothing to it."""
    return ConsistencyTraining()
