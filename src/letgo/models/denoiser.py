"""What a network is to a sampler: it always predicts x0."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from letgo.paths import GaussianPath
from letgo.pinning import Clues
from letgo.shapes import State, Time


@runtime_checkable
class Denoiser(Protocol):
    """f(x_t, t) = x0_hat; with its context bound it is a Transition's `denoise`.

    A network with `remembers = True` takes a fourth argument, what it returned beside x0_hat at the step before; None
    means zeros.
    """

    def __call__(self, x_t: State, t: Time, context: Tensor | None = None) -> State: ...


def _with_context(network: Callable[..., State], x_t: State, t: Time, context: Tensor | None) -> State:
    """A network without a context need not take one."""
    return network(x_t, t) if context is None else network(x_t, t, context)


class VelocityDenoiser(nn.Module):
    """How a foreign velocity network (rectified flow) enters: converted once, at the door."""

    def __init__(self, network: Callable[..., State], path: GaussianPath):
        super().__init__()
        self.network, self.path = network, path

    def forward(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        return self.path.x0_from_velocity(x_t, _with_context(self.network, x_t, t, context), t)


class NoiseDenoiser(nn.Module):
    """How a foreign noise network (eps-prediction) enters."""

    def __init__(self, network: Callable[..., State], path: GaussianPath):
        super().__init__()
        self.network, self.path = network, path

    def forward(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        return self.path.x0_from_eps(x_t, _with_context(self.network, x_t, t, context), t)


class ExactDenoiser:
    """E[x0 | x_t] over a finite set of equally likely clean states: no network, no error.

    With `clues` only the states that agree with them count, which is the true posterior of the puzzle. Without,
    the clues act through x_t alone, as they do for a trained network.
    """

    def __init__(self, states: State, path: GaussianPath, clues: Clues | None = None):
        self.states, self.path, self.clues = states, path, clues

    def log_weights(self, x_t: State, t: Time) -> Tensor:
        """log q(x_t | x0) of every state up to a term that all states share; -inf where a clue is contradicted."""
        states = self.states.to(x_t)
        beta = self.path.beta(t).clamp(min=1e-6)  # at t = 0 the nearest state takes all
        alpha = self.path.alpha(t).flatten(1)
        squares = alpha**2 * states.flatten(1).square().sum(1) - 2 * alpha * (x_t.flatten(1) @ states.flatten(1).T)
        weights = -squares / (2 * beta.flatten(1) ** 2)
        return weights if self.clues is None else weights.masked_fill(self.contradicts.to(x_t.device), -torch.inf)

    @cached_property
    def contradicts(self) -> Bool[Tensor, "batch states"]:
        """Which states break which puzzle's clues; the same at every step, so found once."""
        assert self.clues is not None, "without clues nothing is contradicted"
        differs = (self.states[None] - self.clues.values[:, None]).abs().amax(-1) > 1e-4
        return (differs & self.clues.given[:, None]).any(-1)

    def __call__(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        posterior = self.log_weights(x_t, t).softmax(1)
        return (posterior @ self.states.to(x_t).flatten(1)).view_as(x_t)
