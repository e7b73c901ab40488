"""Gaussian paths from data (t = 0) to noise (t = 1), and every conversion between predictions (Eq. 17)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor

from letgo.shapes import State, Time


def _divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """0 where the denominator is 0: there the quantity cannot be told from x_t, and 0 is its mean."""
    zero = denominator == 0
    return torch.where(zero, 0.0, numerator / torch.where(zero, 1.0, denominator))


class GaussianPath(ABC):
    """q(x_t | x0) = N(alpha(t) x0, beta(t)^2 I); t = 0 is data, t = 1 is noise (Eq. 1)."""

    @abstractmethod
    def alpha(self, t: Time) -> Time: ...

    @abstractmethod
    def beta(self, t: Time) -> Time: ...

    @abstractmethod
    def dalpha(self, t: Time) -> Time: ...

    @abstractmethod
    def dbeta(self, t: Time) -> Time: ...

    def sample(self, x0: State, t: Time, noise: State) -> State:
        """x_t ~ q(x_t | x0) (Eq. 1)."""
        return self.alpha(t) * x0 + self.beta(t) * noise

    # A clean estimate gives all the rest (Eq. 17). Only beta divides, so t = 1 is safe.
    def eps(self, x_t: State, x0: State, t: Time) -> State:
        return _divide(x_t - self.alpha(t) * x0, self.beta(t))

    def score(self, x_t: State, x0: State, t: Time) -> State:
        return _divide(-self.eps(x_t, x0, t), self.beta(t))

    def velocity(self, x_t: State, x0: State, t: Time) -> State:
        return self.dalpha(t) * x0 + self.dbeta(t) * self.eps(x_t, x0, t)

    # The way back, for foreign networks. Only alpha divides, so t = 0 is safe.
    def x0_from_eps(self, x_t: State, eps: State, t: Time) -> State:
        return _divide(x_t - self.beta(t) * eps, self.alpha(t))

    def x0_from_score(self, x_t: State, score: State, t: Time) -> State:
        """Tweedie's formula (Eq. 5)."""
        return _divide(x_t + self.beta(t) ** 2 * score, self.alpha(t))

    def x0_from_velocity(self, x_t: State, velocity: State, t: Time) -> State:
        """Eq. 19 solved for x0; the determinant is a positive constant on both paths."""
        determinant = self.alpha(t) * self.dbeta(t) - self.beta(t) * self.dalpha(t)
        return (self.dbeta(t) * x_t - self.beta(t) * velocity) / determinant


class CosinePath(GaussianPath):
    """The variance-preserving path: alpha = cos(pi t / 2), beta = sin(pi t / 2)."""

    def alpha(self, t: Time) -> Time:
        return torch.sin(math.pi / 2 * (1 - t))  # the cosine, but exactly 0 at t = 1

    def beta(self, t: Time) -> Time:
        return torch.sin(math.pi / 2 * t)

    def dalpha(self, t: Time) -> Time:
        return -math.pi / 2 * self.beta(t)

    def dbeta(self, t: Time) -> Time:
        return math.pi / 2 * self.alpha(t)


class LinearPath(GaussianPath):
    """Rectified flow: x_t = (1 - t) x0 + t eps (App. B.1)."""

    def alpha(self, t: Time) -> Time:
        return 1 - t

    def beta(self, t: Time) -> Time:
        return t

    def dalpha(self, t: Time) -> Time:
        return -torch.ones_like(t)

    def dbeta(self, t: Time) -> Time:
        return torch.ones_like(t)


PATHS: dict[str, type[GaussianPath]] = {"cosine": CosinePath, "linear": LinearPath}
