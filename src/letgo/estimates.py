"""An estimate is a measured number with its n and a 95% interval."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from letgo.errors import LetgoError

Z95 = NormalDist().inv_cdf(0.975)
Score = dict[str, float | int | None]  # an estimate as JSON has it


@dataclass(frozen=True)
class Estimate:
    """An estimate is a number with its uncertainty. Nothing measured is value 0 with n = 0, never NaN."""

    value: float
    interval95: tuple[float, float]
    n: int
    more: Score = field(default_factory=dict, kw_only=True)  # what some scores have beside: k, calls, median, p95

    def as_dict(self) -> Score:
        """Return it for JSON, which has no NaN: an unknown bound is null, and so is all of a sampler that diverged."""
        value, low, high = (x if math.isfinite(x) else None for x in (self.value, *self.interval95))
        known = value is not None
        ends = {"low": low if known else None, "high": high if known else None}
        return {"value": value, **ends, "n": self.n, **self.more}

    @staticmethod
    def from_dict(score: Score) -> Estimate:
        value, low, high = (number(score[key]) for key in ("value", "low", "high"))
        more = {key: score[key] for key in score if key not in ("value", "low", "high", "n")}
        return Estimate(value, (low, high), int(score["n"] or 0), more=more)


def number(value: float | None) -> float:
    """Return a score's value; NaN where a sampler diverged, never a perfect 0."""
    return math.nan if value is None else float(value)


def rate(successes: int, trials: int, **more: int) -> Estimate:
    """Return a share of yes-or-no trials, with Wilson's interval, which is honest near 0 and 1 too."""
    if not 0 <= successes <= trials:
        raise LetgoError(f"{successes} successes of {trials} trials: need 0 <= successes <= trials")
    if not trials:
        return Estimate(0.0, (0.0, 1.0), 0, more={**more})
    p, share = successes / trials, Z95**2 / trials
    middle = (p + share / 2) / (1 + share)
    reach = math.sqrt(p * (1 - p) * share + share**2 / 4) / (1 + share)
    low = middle - reach if successes else 0.0  # exact, where rounding would leave 1e-19
    high = middle + reach if successes < trials else 1.0
    return Estimate(p, (low, high), trials, more={**more})


def mean(values: Float[Tensor, "boards"], most: float = math.inf) -> Estimate:
    """Return the mean of one number per board, with the normal interval mean +- 1.96 s / sqrt(n), cut to 0 .. `most`.

    It is too sure of itself where all boards give the same number; one board has no spread to judge by.
    """
    values, n = values.cpu().double(), len(values)
    value = float(values.mean()) if n else 0.0
    if n < 2:
        return Estimate(value, (-math.inf, math.inf), n)
    reach = Z95 * float(values.std()) / math.sqrt(n)
    return Estimate(value, (max(0.0, value - reach), min(most, value + reach)), n)


def spread(values: Float[Tensor, "boards"]) -> Estimate:
    """Return a mean with the median and the 95th percentile beside it, for what has a long tail."""
    if not len(values):
        return mean(values)
    median, high = values.cpu().double().quantile(torch.tensor([0.5, 0.95], dtype=torch.float64)).tolist()
    return replace(mean(values), more={"median": median, "p95": high})


def bootstrap(
    counts: Float[Tensor, "boards columns"],
    score: Callable[[Float[Tensor, "draws columns"]], Float[Tensor, "draws"]],
    draws: int = 2000,
) -> Estimate:
    """Return a function of counts summed over boards, with a percentile bootstrap over whole boards (seeded)."""
    counts, n = counts.cpu().double(), len(counts)
    value = float(score(counts.sum(0, keepdim=True))) if n else 0.0
    if n < 2:
        return Estimate(value, (-math.inf, math.inf), n)
    rng = torch.Generator().manual_seed(0)
    picks = (torch.randint(n, (n,), generator=rng) for _ in range(draws))
    sums = torch.stack([counts[pick].sum(0) for pick in picks])
    low, high = score(sums).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Estimate(value, (low, high), n)


# A score's values, one row per instance, and how they become an estimate. Parts of a list are joined row by row, so
# the estimate of the whole is exact. NaN marks an instance with nothing to measure, infinity a sampler that diverged.

ESTIMATES: dict[str, Callable[[Tensor], Estimate]] = {
    "rate": lambda v: rate(int(v[:, 0].sum()), len(v)),
    "any": lambda v: rate(int(v.any(1).sum()), len(v), k=v.shape[1]),
    "chosen": lambda v: rate(int(v[:, 0].sum()), len(v), k=int(v[0, 1]), calls=int(v[:, 2].sum())),
    "mean": lambda v: mean(measured(v)),
    "share": lambda v: mean(measured(v), most=1.0),
    "spread": lambda v: spread(measured(v)),
    "distinct": lambda v: rate(len(v[v[:, 1] > 0, 0].unique()), int(v[:, 1].sum())),
    "balanced": lambda v: bootstrap(v, balanced),
}


def measured(values: Float[Tensor, "boards 1"]) -> Float[Tensor, "measured"]:
    rows = values[~values[:, 0].isnan(), 0]
    return rows.where(rows.isfinite(), math.nan)


@dataclass(frozen=True, eq=False)
class Column:
    """A column holds one score's values, a row for each instance, and the kind of estimate that they become."""

    kind: str
    values: Float[Tensor, "boards columns"]

    @staticmethod
    def of(kind: str, values: Tensor) -> Column:
        return Column(kind, (values[:, None] if values.dim() == 1 else values).cpu().double())

    def as_dict(self) -> dict[str, Any]:
        """Return rows for JSON, which has no NaN: null is nothing to measure, a string a sampler that diverged."""

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
    """Return the mean of hits / positives and rejections / negatives; a kind that does not occur is left out."""
    right, total = counts[:, [0, 2]], counts[:, [1, 3]]
    return (right / total.clamp(min=1)).sum(1) / (total > 0).sum(1).clamp(min=1)
