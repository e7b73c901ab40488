"""Estimates: a measured number with its n and a 95% interval. No percentage without its n."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from letgo.errors import LetgoError

Z95 = NormalDist().inv_cdf(0.975)
Score = dict[str, float | int | None]  # an estimate as JSON has it


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

    def as_dict(self) -> Score:
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


class Spread(Mean):
    """A mean with the median and the 95th percentile beside it, for what has a long tail."""

    def as_dict(self) -> Score:
        if not self.n:
            return super().as_dict()
        median, high = self.values.cpu().double().quantile(torch.tensor([0.5, 0.95], dtype=torch.float64)).tolist()
        return {**super().as_dict(), "median": median, "p95": high}


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


def number(value: float | None) -> float:
    """A score's value; NaN where a sampler diverged, never a perfect 0."""
    return math.nan if value is None else float(value)


@dataclass(frozen=True)
class Known(Estimate):
    """A number as a file has it, without what it was counted from."""

    score: Score

    @property
    def value(self) -> float:
        return number(self.score["value"])

    @property
    def n(self) -> int:
        return int(self.score["n"] or 0)

    @property
    def interval95(self) -> tuple[float, float]:
        return number(self.score["low"]), number(self.score["high"])

    def as_dict(self) -> Score:
        return self.score


@dataclass(frozen=True)
class AtK(Rate):
    """The share of instances that one of k tries solves; of the network's own choice among them, with its calls."""

    k: int = 1
    calls: int | None = None

    def as_dict(self) -> Score:
        return {"k": self.k, **super().as_dict(), **({} if self.calls is None else {"calls": self.calls})}


# A score's values, one row per instance, and how they become an estimate. Parts of a list are joined row by row, so
# the estimate of the whole is exact. NaN marks an instance with nothing to measure, infinity a sampler that diverged.

ESTIMATES: dict[str, Callable[[Tensor], Estimate]] = {
    "rate": lambda values: Rate.of(values[:, 0].bool()),
    "any": lambda values: AtK(int(values.any(1).sum()), len(values), values.shape[1]),
    "chosen": lambda values: AtK(int(values[:, 0].sum()), len(values), int(values[0, 1]), int(values[:, 2].sum())),
    "mean": lambda values: Mean(measured(values)),
    "share": lambda values: Mean(measured(values), most=1.0),
    "spread": lambda values: Spread(measured(values)),
    "distinct": lambda values: Rate(len(values[values[:, 1] > 0, 0].unique()), int(values[:, 1].sum())),
    "balanced": lambda values: Pooled(values, balanced),
}


def measured(values: Float[Tensor, "boards 1"]) -> Float[Tensor, "measured"]:
    rows = values[~values[:, 0].isnan(), 0]
    return rows.where(rows.isfinite(), math.nan)


@dataclass(frozen=True, eq=False)
class Column:
    """One score's values: a row for each instance, and the kind of estimate that they become."""

    kind: str
    values: Float[Tensor, "boards columns"]

    @staticmethod
    def of(kind: str, values: Tensor) -> Column:
        return Column(kind, (values[:, None] if values.dim() == 1 else values).cpu().double())

    def as_dict(self) -> dict[str, Any]:
        """Rows for JSON, which has no NaN: null is nothing to measure, a string a sampler that diverged."""

        def plain(value: float) -> float | int | str | None:
            if math.isnan(value):
                return None
            return "diverged" if math.isinf(value) else int(value) if value == int(value) else value

        return {"kind": self.kind, "values": [[plain(v) for v in row] for row in self.values.tolist()]}

    @staticmethod
    def from_dict(column: dict[str, Any]) -> Column:
        special = {None: math.nan, "diverged": math.inf}
        rows = [[special[v] if v is None or isinstance(v, str) else float(v) for v in row] for row in column["values"]]
        return Column(column["kind"], torch.tensor(rows, dtype=torch.float64).view(len(rows), -1))


def balanced(counts: Float[Tensor, "draws 4"]) -> Float[Tensor, "draws"]:
    """The mean of hits / positives and rejections / negatives; a kind that does not occur is left out."""
    right, total = counts[:, [0, 2]], counts[:, [1, 3]]
    return (right / total.clamp(min=1)).sum(1) / (total > 0).sum(1).clamp(min=1)
