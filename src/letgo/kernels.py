"""Update rules. Each says how the next state is distributed; only the loop draws noise."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
import torch.nn.functional as F

from letgo.errors import LetgoError
from letgo.rng import DRAW, KERNEL
from letgo.shapes import CellMask, State, Time

LEAST = 1e-6  # the probability that `resample` leaves to every symbol

Draw = Callable[[int], State]  # a standard normal state for one of the purposes of rng.py


@runtime_checkable
class Kernel(Protocol):
    """A Kernel is how x_s is distributed, given all that a rule knows."""

    def sample(self, draw: Draw) -> State: ...

    def spread(self, factor: float | Time) -> Kernel:
        """Return the same distribution with its scale multiplied."""
        ...


@dataclass(frozen=True)
class Gaussian:
    """x_s ~ N(center, scale^2 I)."""

    center: State
    scale: Time

    def sample(self, draw: Draw) -> State:
        return self.center + self.scale * draw(KERNEL)

    def spread(self, factor: float | Time) -> Gaussian:
        return Gaussian(self.center, self.scale * factor)


@dataclass(frozen=True)
class Transition:
    """A Transition has all that a rule may look at on the way from t to s < t."""

    path: Any  # a Path; the rules of this file ask more of it, as a GaussianPath has it
    denoise: Callable[[State, Time], State]
    x_t: State
    x0_hat: State
    t: Time
    s: Time
    given: CellMask | None = None  # the clues, where a rule counts cells

    @property
    def h(self) -> Time:
        return self.t - self.s

    @property
    def alpha_t(self) -> Time:
        return self.path.alpha(self.t)

    @property
    def beta_t(self) -> Time:
        return self.path.beta(self.t)

    @property
    def alpha_s(self) -> Time:
        return self.path.alpha(self.s)

    @property
    def beta_s(self) -> Time:
        return self.path.beta(self.s)

    @property
    def eps_hat(self) -> State:
        return self.path.eps(self.x_t, self.x0_hat, self.t)

    @property
    def score_hat(self) -> State:
        return self.path.score(self.x_t, self.x0_hat, self.t)

    @property
    def velocity_hat(self) -> State:
        return self.path.velocity(self.x_t, self.x0_hat, self.t)


Rule = Callable[[Transition], Kernel]


def generalized_ddim(step: Transition, kappa: Time) -> Gaussian:
    """Eq. 25: kappa = 0 is DDIM, the posterior scale is DDPM, beta(s) is Tweedie reprojection."""
    anchor = (step.beta_s**2 - kappa**2).clamp(min=0).sqrt()  # rounding can go below zero
    return Gaussian(step.alpha_s * step.x0_hat + anchor * step.eps_hat, kappa)


def ddpm(step: Transition) -> Gaussian:
    """kappa^2 is the posterior variance (Eq. 15)."""
    delta = (step.alpha_t / step.alpha_s) ** 2
    return generalized_ddim(step, step.beta_s * (1 - delta * step.beta_s**2 / step.beta_t**2).clamp(min=0).sqrt())


def ddim(step: Transition) -> Gaussian:
    """kappa = 0: no fresh noise (App. B.1)."""
    return generalized_ddim(step, torch.zeros_like(step.s))


def tweedie(step: Transition) -> Gaussian:
    """Eq. 8: x_t matters only through x0_hat."""
    return Gaussian(step.alpha_s * step.x0_hat, step.beta_s)


@dataclass(frozen=True)
class Redrawn:
    """It is Eq. 8 around symbols drawn from x0_hat, read as probabilities; at s = 0 around x0_hat itself."""

    step: Transition
    scale: Time

    def sample(self, draw: Draw) -> State:
        step = self.step
        gumbel = -(-torch.special.log_ndtr(draw(DRAW))).log()
        symbols = (step.x0_hat.clamp(min=LEAST).log() + gumbel).argmax(-1)
        board = F.one_hot(symbols, step.x0_hat.shape[-1]).to(step.x0_hat.dtype)
        return step.alpha_s * torch.where(step.s > 0, board, step.x0_hat) + self.scale * draw(KERNEL)

    def spread(self, factor: float | Time) -> Redrawn:
        return Redrawn(self.step, self.scale * factor)


def resample(step: Transition) -> Redrawn:
    """This rule is not in the paper: it is Tweedie reprojection of drawn symbols instead of their mean, for one-hot
    states.

    Where cells are independent and x0_hat is exact, x_s is distributed as training's x_s.
    """
    return Redrawn(step, step.beta_s)


def euler(step: Transition) -> Gaussian:
    """The state follows its velocity (Eq. 26)."""
    return Gaussian(step.x_t - step.h * step.velocity_hat, torch.zeros_like(step.s))


def heun(step: Transition) -> Gaussian:
    """Euler's velocity is averaged with the one at its end point: second order. At s = 0 there is none: Euler."""
    velocity_t = step.velocity_hat
    x_s = step.x_t - step.h * velocity_t
    velocity_s = step.path.velocity(x_s, step.denoise(x_s, step.s), step.s)
    velocity = torch.where(step.s > 0, (velocity_t + velocity_s) / 2, velocity_t)
    return Gaussian(step.x_t - step.h * velocity, torch.zeros_like(step.s))


def euler_maruyama(step: Transition, sigma: Time) -> Gaussian:
    """The sigma of Eq. 28 is constant."""
    drift = -step.velocity_hat + sigma**2 / 2 * step.score_hat
    return Gaussian(step.x_t + step.h * drift, sigma * step.h.sqrt())


@dataclass(frozen=True)
class EulerMaruyama:
    """Eq. 28 with sigma constant; EM decay lowers sigma linearly to 0 from progress tau_start = 1 - t on.

    A step takes the sigma of its beginning, or with `sigma_ahead` that of so many steps later: with 1 that of its end,
    so that the last step adds no noise.
    """

    sigma: float
    tau_start: float | None = None
    sigma_ahead: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.sigma < math.inf or (self.tau_start is not None and not 0 <= self.tau_start <= 1):
            raise LetgoError(f"sigma must be >= 0 and tau_start in [0, 1], got {self.sigma} and {self.tau_start}")
        if self.sigma_ahead is not None and not 0 <= self.sigma_ahead < math.inf:
            raise LetgoError(f"sigma_ahead must be >= 0, got {self.sigma_ahead}")

    def sigma_at(self, t: Time, h: Time | float = 0.0) -> Time:
        """Return sigma of a step of length h from t."""
        t = (t - (self.sigma_ahead or 0.0) * h).clamp(min=0)
        if self.tau_start is None or self.tau_start >= 1:
            return torch.full_like(t, self.sigma)
        return self.sigma * (t / (1 - self.tau_start)).clamp(max=1)

    def __call__(self, step: Transition) -> Gaussian:
        return euler_maruyama(step, self.sigma_at(step.t, step.h))


@dataclass(frozen=True)
class Tempered:
    """It is any rule with its per-step variance multiplied (Figure 11)."""

    rule: Rule
    variance: float

    def __call__(self, step: Transition) -> Kernel:
        return self.rule(step).spread(self.variance**0.5)
