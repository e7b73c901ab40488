"""Estimates: a measured number with its n and a 95% interval. No percentage without its n."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from letgo.errors import LetgoError

Z95 = NormalDist().inv_cdf(0.975)


class Estimate(ABC):
    """A number with its uncertainty. Nothing measured is value 0 with n = 0, never NaN."""

    @property
    @abstractmethod
    def value(self) -> float: ...

    @property
    @abstractmethod
    def n(self) -> int: ...

    @property
    @abstractmethod
    def interval95(self) -> tuple[float, float]: ...

    def as_dict(self) -> dict[str, float | int | None]:
        """For JSON, which has no NaN: a bound that is not known is null, and so is all of a sampler that diverged."""
        value, low, high = (x if math.isfinite(x) else None for x in (self.value, *self.interval95))
        known = value is not None
        return {"value": value, "low": low if known else None, "high": high if known else None, "n": self.n}


@dataclass(frozen=True)
class Rate(Estimate):
    """A share of yes-or-no trials, with Wilson's interval, which is honest near 0 and 1 too."""

    successes: int
    trials: int

    def __post_init__(self) -> None:
        if not 0 <= self.successes <= self.trials:
            raise LetgoError(f"{self.successes} successes of {self.trials} trials: need 0 <= successes <= trials")

    @staticmethod
    def of(outcomes: Bool[Tensor, "trials"]) -> Rate:
        return Rate(int(outcomes.sum()), len(outcomes))

    @property
    def value(self) -> float:
        return self.successes / self.trials if self.trials else 0.0

    @property
    def n(self) -> int:
        return self.trials

    @property
    def interval95(self) -> tuple[float, float]:
        if not self.trials:
            return 0.0, 1.0
        p, share = self.value, Z95**2 / self.trials
        middle = (p + share / 2) / (1 + share)
        reach = math.sqrt(p * (1 - p) * share + share**2 / 4) / (1 + share)
        low = middle - reach if self.successes else 0.0  # exact, where rounding would leave 1e-19
        high = middle + reach if self.successes < self.trials else 1.0
        return low, high


@dataclass(frozen=True, eq=False)  # == of tensors is no bool
class Mean(Estimate):
    """The mean of one number per board, with the normal interval mean +- 1.96 s / sqrt(n), cut to what can be.

    It is too sure of itself where all boards give the same number.
    """

    values: Float[Tensor, "boards"]
    most: float = math.inf  # the least is 0

    @property
    def value(self) -> float:
        return float(self.values.cpu().double().mean()) if self.n else 0.0

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def interval95(self) -> tuple[float, float]:
        if self.n < 2:  # one board has no spread to judge by
            return -math.inf, math.inf
        reach = Z95 * float(self.values.cpu().double().std()) / math.sqrt(self.n)
        return max(0.0, self.value - reach), min(self.most, self.value + reach)


@dataclass(frozen=True, eq=False)  # == of tensors is no bool
class Pooled(Estimate):
    """A function of counts summed over boards, with a percentile bootstrap over whole boards (seeded)."""

    counts: Float[Tensor, "boards columns"]
    score: Callable[[Float[Tensor, "draws columns"]], Float[Tensor, "draws"]]
    draws: int = 2000

    @property
    def value(self) -> float:
        return float(self.score(self.counts.cpu().double().sum(0, keepdim=True))) if self.n else 0.0

    @property
    def n(self) -> int:
        return len(self.counts)

    @property
    def interval95(self) -> tuple[float, float]:
        if self.n < 2:
            return -math.inf, math.inf
        rng, counts = torch.Generator().manual_seed(0), self.counts.cpu().double()
        picks = (torch.randint(self.n, (self.n,), generator=rng) for _ in range(self.draws))
        sums = torch.stack([counts[pick].sum(0) for pick in picks])
        low, high = self.score(sums).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
        return low, high
