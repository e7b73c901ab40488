"""Paths from data (t = 0) to noise (t = 1); on Gaussian ones every conversion between predictions (Eq. 17)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from letgo.errors import LetgoError
from letgo.registry import Entry, choose
from letgo.rng import START
from letgo.shapes import AnyState as State
from letgo.shapes import AnyTime as Time


def _divide(numerator: Tensor, denominator: Tensor) -> Tensor:
    """Divide, with 0 where the denominator is 0: there the quantity cannot be told from x_t, and 0 is its mean."""
    zero = denominator == 0
    return torch.where(zero, 0.0, numerator / torch.where(zero, 1.0, denominator))


def nearest_step(t: Time | float, steps: int) -> Int[Tensor, "rows"]:
    """Return the training step whose time is nearest, where step i of so many is t = (i + 1) / steps."""
    return (torch.as_tensor(t).flatten() * steps).round().long().clamp(1, steps) - 1


@runtime_checkable
class Path(Protocol):
    """A Path says how data becomes noise. A rule fits the paths of its own family."""

    family: ClassVar[str]

    def start(self, like: State, draw: Callable[[int], State]) -> State:
        """Draw x_1, of the shape of `like`."""
        ...

    def sample(self, x0: State, t: Time, noise: State) -> State:
        """Draw x_t ~ q(x_t | x0), made of standard normal noise."""
        ...


class GaussianPath(ABC):
    """q(x_t | x0) = N(alpha(t) x0, beta(t)^2 I); t = 0 is data, t = 1 is noise (Eq. 1)."""

    family: ClassVar[str] = "gaussian"

    @abstractmethod
    def alpha(self, t: Time) -> Time: ...

    @abstractmethod
    def beta(self, t: Time) -> Time: ...

    @abstractmethod
    def dalpha(self, t: Time) -> Time: ...

    @abstractmethod
    def dbeta(self, t: Time) -> Time: ...

    def start(self, like: State, draw: Callable[[int], State]) -> State:
        """Draw x_1 ~ N(0, I)."""
        return draw(START)

    def sample(self, x0: State, t: Time, noise: State) -> State:
        """Draw x_t ~ q(x_t | x0) (Eq. 1)."""
        return self.alpha(t) * x0 + self.beta(t) * noise

    def timestep(self, t: Time | float) -> Float[Tensor, "rows"] | Int[Tensor, "rows"]:
        """Return what a diffusers network takes for each row's time t: the nearest of 1,000 steps."""
        return nearest_step(t, 1000)

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
        """Tweedie's formula gives x0 (Eq. 5)."""
        return _divide(x_t + self.beta(t) ** 2 * score, self.alpha(t))

    def x0_from_velocity(self, x_t: State, velocity: State, t: Time) -> State:
        """Solve Eq. 19 for x0; the determinant is positive on both paths."""
        determinant = self.alpha(t) * self.dbeta(t) - self.beta(t) * self.dalpha(t)
        return (self.dbeta(t) * x_t - self.beta(t) * velocity) / determinant

    def x0_from_v(self, x_t: State, v: State, t: Time) -> State:
        """Return x0 of v = alpha eps - beta x0, diffusers' v_prediction; no divisor can be 0."""
        alpha, beta = self.alpha(t), self.beta(t)
        return (alpha * x_t - beta * v) / (alpha**2 + beta**2)


def checked_shift(shift: float) -> float:
    """Return what beta / alpha is multiplied by: more of the time is then spent in much noise (Esser et al. 2024).

    States of many numbers, such as images, are decided there: each number tells a little of the whole.
    """
    if not 0 < shift < math.inf:
        raise LetgoError(f"shift: expected a number above 0, got {shift!r}; 1 shifts nothing")
    return float(shift)


class CosinePath(GaussianPath):
    """The path preserves the variance: alpha = cos(pi t / 2), beta = sin(pi t / 2).

    With a `shift` s, beta is s times as large beside alpha, and both are divided by their root sum of squares.
    """

    def __init__(self, shift: float = 1.0):
        self.shift = checked_shift(shift)

    def _norm(self, t: Time) -> Time | float:
        if self.shift == 1:
            return 1.0
        return ((self.shift * torch.sin(math.pi / 2 * t)) ** 2 + torch.sin(math.pi / 2 * (1 - t)) ** 2).sqrt()

    def alpha(self, t: Time) -> Time:
        return torch.sin(math.pi / 2 * (1 - t)) / self._norm(t)  # the cosine, but exactly 0 at t = 1

    def beta(self, t: Time) -> Time:
        return self.shift * torch.sin(math.pi / 2 * t) / self._norm(t)

    def dalpha(self, t: Time) -> Time:
        return -math.pi / 2 * self.beta(t) * self.shift / self._norm(t) ** 2

    def dbeta(self, t: Time) -> Time:
        return math.pi / 2 * self.alpha(t) * self.shift / self._norm(t) ** 2


class LinearPath(GaussianPath):
    """The path is that of rectified flow: x_t = (1 - u) x0 + u eps (App. B.1), where u is t.

    With a `shift` s, u = s t / (1 + (s - 1) t).
    """

    def __init__(self, shift: float = 1.0):
        self.shift = checked_shift(shift)

    def _norm(self, t: Time) -> Time:
        return 1 + (self.shift - 1) * t

    def alpha(self, t: Time) -> Time:
        return (1 - t) / self._norm(t)

    def beta(self, t: Time) -> Time:
        return self.shift * t / self._norm(t)

    def dalpha(self, t: Time) -> Time:
        return -self.dbeta(t)

    def dbeta(self, t: Time) -> Time:
        return self.shift / self._norm(t) ** 2

    def timestep(self, t: Time | float) -> Float[Tensor, "rows"]:
        """Return what diffusers' flow-matching networks take for the time t: 1000 u, one for each row."""
        return 1000 * self.beta(torch.as_tensor(t).flatten())


ALL_NOISE = 1e-30  # an alpha^2 below which single precision has no lower one, or nearly none


class TablePath(GaussianPath):
    """The schedule is one that a network of your own was trained with, as its T values of alphas_cumprod (diffusers'
    name).

    Training step i is t = (i + 1) / T, where alpha^2 = alphas_cumprod[i]; between them alpha is linear. beta^2 is
    1 - alpha^2.
    """

    def __init__(self, alphas_cumprod: Any):
        """`alphas_cumprod` is a tensor, an array or a list."""
        try:
            squares = torch.as_tensor(alphas_cumprod).detach().double().cpu()
        except (TypeError, ValueError, RuntimeError):  # what torch says to things that are no numbers
            kind = type(alphas_cumprod).__name__
            raise LetgoError(f"{kind} is no row of numbers; of a scheduler give its .alphas_cumprod") from None
        stays = (squares.diff() == 0) & (squares[1:] < ALL_NOISE) if squares.ndim == 1 else torch.tensor(False)
        falls = squares.ndim == 1 and len(squares) > 0 and bool((stays | (squares.diff() < 0)).all())
        if not falls or not 0 <= float(squares[-1]) <= float(squares[0]) < 1:
            raise LetgoError("alphas_cumprod must be one row of numbers that fall from below 1 to 0 or more")
        squares = torch.cat([squares.new_ones(1), squares.abs()])  # without the sign of -0
        self.table, self.noise = squares.sqrt(), 1 - squares  # alpha, and beta^2: apart, as both lie near 1 or 0

    def timestep(self, t: Time | float) -> Int[Tensor, "rows"]:
        """Return what a diffusers network takes for each row's time t: the number of the nearest training step."""
        return nearest_step(t, len(self.table) - 1)

    def _part(self, t: Time) -> tuple[Tensor, Tensor]:
        """Return the part of the table that t lies in, and how far."""
        last = len(self.table) - 1
        start = (t * last).floor().clamp(0, last - 1).long()
        return start, t * last - start

    def alpha(self, t: Time) -> Time:
        (start, along), table = self._part(t), self.table.to(t)
        return torch.lerp(table[start], table[start + 1], along)

    def beta(self, t: Time) -> Time:
        (start, along), table = self._part(t), self.table.to(t)
        fallen = along * (table[start] - table[start + 1])
        return (self.noise.to(t)[start] + fallen * (2 * table[start] - fallen)).sqrt()  # 1 - alpha^2, without rounding

    def dalpha(self, t: Time) -> Time:
        (start, _), table = self._part(t), self.table.to(t)
        return (len(self.table) - 1) * (table[start + 1] - table[start])

    def dbeta(self, t: Time) -> Time:
        return _divide(-self.alpha(t) * self.dalpha(t), self.beta(t))

    def x0_from_velocity(self, x_t: State, velocity: State, t: Time) -> State:
        """Return the same with alpha^2 + beta^2 = 1, where t = 0 divides nothing by 0."""
        return self.alpha(t) * x_t + _divide(self.beta(t) ** 2 * velocity, self.dalpha(t))


PATHS: dict[str, Entry] = {"cosine": CosinePath, "linear": LinearPath, "absorbing": "letgo.discrete:Absorbing"}


def checked_path(path: Any) -> Any:
    """Return a path, also by name; a class, a scheduler or a table in its place is refused by what to write."""
    if isinstance(path, str):
        return choose("path", PATHS, path)()
    if isinstance(path, type):
        raise LetgoError(f"path is the class {path.__name__}; give an object of it, such as {path.__name__}(...)")
    if isinstance(path, Path):
        return path
    instead = "CosinePath(), LinearPath() or TablePath(...)"
    if hasattr(path, "alphas_cumprod"):
        instead = "TablePath(scheduler.alphas_cumprod)"
    elif hasattr(path, "__len__"):
        instead = "TablePath(alphas_cumprod)"
    raise LetgoError(f"{type(path).__name__} is no path of letgo.paths; give {instead}")
