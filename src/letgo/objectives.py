"""Training losses: the simple loss (Eq. 4) and self-correction (Eq. 9, Algorithm 2).

Several models can be trained on one batch: board i then belongs to model i % models, and every loss is one number per
model. Minimising their sum gives each model the gradient that it would have alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from letgo.paths import GaussianPath
from letgo.pinning import Clues
from letgo.rng import uniform_times
from letgo.shapes import State, Time

Network = Callable[[State, Time, Tensor | None], State]


@runtime_checkable
class Objective(Protocol):
    def __call__(
        self, model: Network, path: GaussianPath, x0: State, clues: Clues, context: Tensor | None, models: int = 1
    ) -> dict[str, Tensor]: ...


def mean_squares(x0_hat: State, x0: State, models: int) -> Tensor:
    """Each model's mean squared error; a scalar where there is one model."""
    return (x0_hat - x0).square().unflatten(0, (-1, models)).mean((0, 2, 3)).squeeze(0)


def simple_rows(weight: float, batch: int) -> int:
    """floor(lambda B) rows of L_simple (App. C), and at least one unless lambda is 0."""
    rows = math.floor(weight * batch + 1e-9)  # .29 * 100 is a little less than 29
    return max(rows, 1) if weight > 0 else 0


@dataclass(frozen=True)
class Simple:
    """L_simple (Eq. 4); pinned cells count as exact."""

    def __call__(
        self, model: Network, path: GaussianPath, x0: State, clues: Clues, context: Tensor | None, models: int = 1
    ) -> dict[str, Tensor]:
        t = uniform_times(x0)
        x_t = clues.pin(path.sample(x0, t, torch.randn_like(x0)))
        return {"loss": mean_squares(clues.pin(model(x_t, t, context)), x0, models)}


@dataclass(frozen=True)
class SelfCorrection:
    """L_rec + lambda_simple L_simple (Eq. 9).

    `full` is Algorithm 2 to the letter: the proposal carries gradient through L_simple. Otherwise the proposal is
    gradient-free and L_simple sees `simple_rows`, all in one gradient pass: App. C's 1.43x form.
    """

    simple_weight: float = 0.1
    full: bool = False

    def __call__(
        self, model: Network, path: GaussianPath, x0: State, clues: Clues, context: Tensor | None, models: int = 1
    ) -> dict[str, Tensor]:
        t1 = uniform_times(x0)
        t2 = t1 * uniform_times(x0)
        x_t1 = clues.pin(path.sample(x0, t1, torch.randn_like(x0)))
        with torch.set_grad_enabled(self.full and torch.is_grad_enabled()):
            proposal = clues.pin(model(x_t1, t1, context))
        x_t2 = clues.pin(path.sample(proposal.detach(), t2, torch.randn_like(x0)))
        rows = simple_rows(self.simple_weight, len(x0) // models) * models
        if self.full:
            recovery = mean_squares(clues.pin(model(x_t2, t2, context)), x0, models)
            simple = mean_squares(proposal, x0, models)
        else:
            both = torch.cat([x_t2, x_t1[:rows]]), torch.cat([t2, t1[:rows]])
            again = None if context is None else torch.cat([context, context[:rows]])
            x0_hat = model(*both, again)
            recovery = mean_squares(clues.pin(x0_hat[: len(x0)]), x0, models)
            simple = torch.zeros_like(recovery)
            if rows:
                simple = mean_squares(clues[:rows].pin(x0_hat[len(x0) :]), x0[:rows], models)
        return {"loss": recovery + self.simple_weight * simple, "recovery": recovery, "simple": simple}
