"""What a network is to a sampler: it always predicts x0."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from letgo.errors import LetgoError
from letgo.paths import GaussianPath, checked_path
from letgo.pinning import Clues
from letgo.shapes import AnyState, AnyTime, State, Time


@runtime_checkable
class Denoiser(Protocol):
    """f(x_t, t) = x0_hat; with its context bound it is a Transition's `denoise`.

    A network with `remembers = True` takes a fourth argument, what it returned beside x0_hat at the step before; None
    means zeros.
    """

    def __call__(self, x_t: State, t: Time, context: Tensor | None = None) -> State: ...


Clip = Sequence[float | int]  # the least and the largest number that clean states hold


def checked_clip(clip: Any) -> tuple[float, float] | None:
    """Return the pair of numbers that it should be, or None."""
    if clip is None:
        return None
    try:
        low, high = (float(bound) for bound in clip)
    except (TypeError, ValueError):
        low = high = math.nan
    if not low < high:
        raise LetgoError(f"clip must be the least and the largest value of your data, such as (-1, 1); got {clip!r}")
    return low, high


def clipped(x0_hat: AnyState, clip: tuple[float, float] | None) -> AnyState:
    """Keep x0_hat within the data's range: where alpha(t) is small, the conversion from eps multiplies its errors."""
    return x0_hat if clip is None else x0_hat.clamp(*clip)


def split_output(out: Any) -> tuple[Tensor, Tensor | None]:
    """Return prediction and memory of a network's tensor, (tensor, memory), or what diffusers' networks return."""
    out = getattr(out, "sample", out) if not isinstance(out, Tensor) else out
    prediction, *memory = out if isinstance(out, tuple) and len(out) in (1, 2) else (out,)
    if not isinstance(prediction, Tensor):
        raise LetgoError(
            f"the network returned {type(prediction).__name__}; expected a tensor, (tensor, memory), or an output of "
            "diffusers with .sample"
        )
    return prediction, memory[0] if memory else None


def check_network(name: str, network: Any) -> Any:
    """Return what can be called; anything else is refused."""
    if inspect.isclass(network):
        raise LetgoError(f"{name} is the class {network.__name__}; give an object of it, with its weights")
    if not callable(network):
        raise LetgoError(f"{name} must be called as {name}(x_t, t); got {type(network).__name__}")
    return network


class Foreign(nn.Module, ABC):
    """A network that predicts something else than x0 enters here: converted once, at the door.

    `network(x_t, t)` is called with states of any shape and may return an output of diffusers; `clip` is the range of
    your data, to which x0_hat is held.
    """

    def __init__(self, network: Callable[..., Any], path: GaussianPath, clip: Clip | None = None):
        super().__init__()
        self.network, self.path = check_network("network", network), checked_path(path)
        self.clip = checked_clip(clip)

    @abstractmethod
    def x0_hat(self, x_t: AnyState, prediction: AnyState, t: AnyTime) -> AnyState: ...

    def forward(self, x_t: AnyState, t: AnyTime, context: Tensor | None = None) -> AnyState:
        # A network without a context need not take one.
        out = self.network(x_t, t) if context is None else self.network(x_t, t, context)
        return clipped(self.x0_hat(x_t, split_output(out)[0], t), self.clip)


class NoiseDenoiser(Foreign):
    """The network predicts eps. Give it a clip: x_t - beta eps is divided by alpha(t), which is nearly 0 at t = 1."""

    def x0_hat(self, x_t: AnyState, prediction: AnyState, t: AnyTime) -> AnyState:
        return self.path.x0_from_eps(x_t, prediction, t)


class VelocityDenoiser(Foreign):
    """The network predicts the velocity dx/dt (rectified flow)."""

    def x0_hat(self, x_t: AnyState, prediction: AnyState, t: AnyTime) -> AnyState:
        return self.path.x0_from_velocity(x_t, prediction, t)


class VPredictionDenoiser(Foreign):
    """The network predicts v = alpha eps - beta x0, the v_prediction of diffusers."""

    def x0_hat(self, x_t: AnyState, prediction: AnyState, t: AnyTime) -> AnyState:
        return self.path.x0_from_v(x_t, prediction, t)


class ExactDenoiser:
    """It gives E[x0 | x_t] over a finite set of equally likely clean states: no network, no error.

    With `clues` only the states that agree with them count, which is the true posterior of the puzzle. Without,
    the clues act through x_t alone, as they do for a trained network.
    """

    def __init__(self, states: State, path: GaussianPath, clues: Clues | None = None):
        self.states, self.path, self.clues = states, path, clues

    def log_weights(self, x_t: State, t: Time) -> Tensor:
        """Return log q(x_t | x0) of every state up to a shared term; -inf where a clue is contradicted."""
        states = self.states.to(x_t)
        beta = self.path.beta(t).clamp(min=1e-6)  # at t = 0 the nearest state takes all
        alpha = self.path.alpha(t).flatten(1)
        squares = alpha**2 * states.flatten(1).square().sum(1) - 2 * alpha * (x_t.flatten(1) @ states.flatten(1).T)
        weights = -squares / (2 * beta.flatten(1) ** 2)
        return weights if self.clues is None else weights.masked_fill(self.contradicts.to(x_t.device), -torch.inf)

    @cached_property
    def contradicts(self) -> Bool[Tensor, "batch states"]:
        """Say which states break which puzzle's clues; the same at every step, so found once."""
        assert self.clues is not None, "without clues nothing is contradicted"
        differs = (self.states[None] - self.clues.values[:, None]).abs().amax(-1) > 1e-4
        return (differs & self.clues.given[:, None]).any(-1)

    def __call__(self, x_t: State, t: Time, context: Tensor | None = None) -> State:
        posterior = self.log_weights(x_t, t).softmax(1)
        return (posterior @ self.states.to(x_t).flatten(1)).view_as(x_t)
