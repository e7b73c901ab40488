"""Scores (section 4, App. O), each with its n and a 95% interval. No percentage without its n."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from letgo.codecs import Codec
from letgo.errors import LetgoError
from letgo.shapes import CellMask, PerBoard, State, Symbols
from letgo.tasks.problem import Problem, Task

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


def validity(boards: Symbols, problem: Problem, task: Task) -> Rate:
    """Every rule holds and every clue is kept (Table 1)."""
    return Rate.of(task.validate(boards, problem))


def pass_at_k(valid: Bool[Tensor, "instances tries"]) -> Rate:
    """At least one of an instance's k tries is valid."""
    return Rate.of(valid.any(1))


def pass_at_k_unbiased(valid: Bool[Tensor, "instances tries"], k: int) -> Mean:
    """pass@k from more tries than k: 1 - C(tries - c, k) / C(tries, k), c of them valid, averaged over instances."""
    tries = valid.shape[1]
    if not 1 <= k <= tries:
        raise LetgoError(f"pass@{k} from {tries} tries: k must be from 1 to {tries}")
    missed = [math.comb(tries - c, k) / math.comb(tries, k) for c in range(tries + 1)]
    return Mean(1 - torch.tensor(missed, dtype=torch.float64)[valid.sum(1).cpu()], most=1.0)


def violation_rate(boards: Symbols, problem: Problem, task: Task) -> Mean:
    """Per board the fraction of predicted cells that take part in a broken rule (App. O.1, Table 13)."""
    return Mean(_measured(violation_shares(boards, problem, task)[:, None]), most=1.0)


def violation_shares(boards: Symbols, problem: Problem, task: Task) -> Float[Tensor, "boards"]:
    """Each board's share of broken predicted cells; NaN where no cell is predicted."""
    return _mean_over_predicted(task.violations(boards, problem).float(), problem.given)


def codeword_distance(x: State, given: CellMask, codec: Codec) -> Mean:
    """Per board the RMSE to the nearest codeword over predicted cells, x 100 (Table 12).

    Digit images are no code: with them it is the distance to some image of the decoded digit.
    """
    return Mean(_measured(codeword_distances(x, given, codec)[:, None]))


def codeword_distances(x: State, given: CellMask, codec: Codec) -> Float[Tensor, "boards"]:
    """Each board's distance; NaN where no cell is predicted, infinity where the sampler diverged."""
    squares = (x - codec.encode(codec.decode(x))).square().mean(-1)
    squares = squares.where(squares.isfinite(), math.inf)
    return 100 * _mean_over_predicted(squares, given).sqrt()


def _mean_over_predicted(per_cell: Float[Tensor, "batch cells"], given: CellMask) -> Float[Tensor, "boards"]:
    per_cell, open_cells = per_cell.cpu().double(), ~given.cpu()  # not every device has double precision
    return per_cell.masked_fill(~open_cells, 0.0).sum(1) / open_cells.sum(1)


def valid_uniqueness(boards: Symbols, valid: PerBoard) -> Rate:
    """Distinct valid boards among the valid ones (Table 14). The interval takes 'new' as an independent trial."""
    return Rate(len(torch.unique(boards[valid], dim=0)), int(valid.sum()))


@dataclass(frozen=True)
class Coverage:
    """Distinct valid boards found, as shares of all solutions, of the training set and of the rest (Table 15).

    The intervals take each solution as an independent trial, found or not, which is a little too wide: what one
    sample finds, the others do not.
    """

    total: Rate
    inside: Rate
    outside: Rate

    def as_dict(self) -> dict[str, Score]:
        return {"total": self.total.as_dict(), "inside": self.inside.as_dict(), "outside": self.outside.as_dict()}


def coverage(boards: Symbols, valid: PerBoard, training: Int[Tensor, "training cells"], solutions: int) -> Coverage:
    """Of `solutions` boards that exist; the training set may repeat boards but holds only valid ones."""
    training = torch.unique(training, dim=0)
    found = torch.unique(boards[valid], dim=0).to(training)
    _, times = torch.unique(torch.cat([training, found]), dim=0, return_counts=True)
    inside = int((times > 1).sum())  # both lists hold a board once, so twice means in both
    rest = solutions - len(training)
    if len(found) - inside > rest:
        raise LetgoError(f"{len(found) - inside} boards found outside the training set, but only {rest} exist there")
    return Coverage(Rate(len(found), solutions), Rate(inside, len(training)), Rate(len(found) - inside, rest))


def board_keys(boards: Symbols, symbols: int) -> Int[Tensor, "batch"]:
    """Each board as one number, its cells the digits: millions of boards are compared at 8 bytes each."""
    cells = boards.shape[1]
    if symbols**cells >= 2**63:
        raise LetgoError(f"boards of {cells} cells with {symbols} symbols do not fit a 63-bit key")
    places = torch.tensor([symbols**i for i in range(cells)], dtype=torch.long, device=boards.device)
    return (boards.long() * places).sum(1)


def expected_distinct(solutions: int, draws: int) -> float:
    """How many of `solutions` come up at least once in `draws` exactly uniform draws."""
    return -solutions * math.expm1(draws * math.log1p(-1 / solutions)) if solutions > 1 else float(draws > 0)


def uneven(counts: Int[Tensor, "solutions"]) -> float:
    """Total variation between the draws' shares and equal ones: the share of draws that would have to move."""
    draws = int(counts.sum())
    return float((counts.double() / draws - 1 / len(counts)).abs().sum() / 2) if draws else 0.0


def expected_uneven(solutions: int, draws: int) -> float:
    """`uneven` of exactly uniform draws, on average: half of De Moivre's mean deviation, summed over solutions."""
    if solutions < 2 or draws < 1:
        return 0.0
    p = 1 / solutions
    m = math.floor(draws * p) + 1
    log_choose = math.lgamma(draws + 1) - math.lgamma(m + 1) - math.lgamma(draws - m + 1)
    log_term = log_choose + m * math.log(p) + (draws - m + 1) * math.log1p(-p)
    return solutions / draws * m * math.exp(log_term)


def number(value: float | None) -> float:
    """A score's value; NaN where a sampler diverged, never a perfect 0."""
    return math.nan if value is None else float(value)


def pool(scores: Sequence[Score], is_rate: bool) -> Score:
    """Several measurements of one thing as one: trials add up (Wilson), other means by their standard errors."""
    kept = [s for s in scores if s["n"]]
    numbers = [(number(s["value"]), int(s["n"] or 0)) for s in kept]
    total = sum(n for _, n in numbers)
    if is_rate or not total:
        return Rate(sum(round(value * n) for value, n in numbers), total).as_dict()
    value = sum(value * n for value, n in numbers) / total
    if math.isnan(value):  # a sampler that diverged
        return {"value": None, "low": None, "high": None, "n": total}
    ends = [(float(s["low"]), float(s["high"])) for s in kept if s["low"] is not None and s["high"] is not None]
    if len(ends) < len(kept):
        return {"value": value, "low": None, "high": None, "n": total}
    reaches = [max(mean - low, high - mean) * n for (low, high), (mean, n) in zip(ends, numbers, strict=True)]
    reach = math.hypot(*reaches) / total  # the longer side: the other may have been cut off at 0
    return {"value": value, "low": max(value - reach, 0.0), "high": value + reach, "n": total}


def element_accuracy(boards: Symbols, problem: Problem) -> Mean:
    """Per graph the share of its N^2 matrix entries that are right, the diagonal included (IRED's accuracy)."""
    return Mean((boards == problem.solution).float().mean(1), most=1.0)


def balanced_accuracy(boards: Symbols, problem: Problem) -> Pooled:
    """Mean of the true-positive and true-negative rates over the entries of all graphs (IRED's balanced accuracy).

    Pooled, because a connected graph has no negative entry; the bootstrap draws whole graphs.
    """
    truth, said = problem.solution > 0, boards > 0
    counts = [truth & said, truth, ~truth & ~said, ~truth]
    return Pooled(torch.stack([count.sum(1).float() for count in counts], dim=1), _balanced)


def _balanced(counts: Float[Tensor, "draws 4"]) -> Float[Tensor, "draws"]:
    """The mean of hits / positives and rejections / negatives; a kind that does not occur is left out."""
    right, total = counts[:, [0, 2]], counts[:, [1, 3]]
    return (right / total.clamp(min=1)).sum(1) / (total > 0).sum(1).clamp(min=1)


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


@dataclass(frozen=True, eq=False)  # == of tensors is no bool
class AtK(Estimate):
    """The share of instances that one of k tries solves; of the network's own choice among them, with its calls."""

    rate: Rate
    k: int
    calls: int | None = None

    @property
    def value(self) -> float:
        return self.rate.value

    @property
    def n(self) -> int:
        return self.rate.n

    @property
    def interval95(self) -> tuple[float, float]:
        return self.rate.interval95

    def as_dict(self) -> Score:
        return {"k": self.k, **self.rate.as_dict(), **({} if self.calls is None else {"calls": self.calls})}


# A score's values, one row per instance, and how they become an estimate. Parts of a list are joined row by row, so
# the estimate of the whole is exact. NaN marks an instance with nothing to measure, infinity a sampler that diverged.

ESTIMATES: dict[str, Callable[[Tensor], Estimate]] = {
    "rate": lambda values: Rate.of(values[:, 0].bool()),
    "any": lambda values: AtK(pass_at_k(values.bool()), values.shape[1]),
    "chosen": lambda values: AtK(Rate.of(values[:, 0].bool()), int(values[0, 1]), int(values[:, 2].sum())),
    "mean": lambda values: Mean(_measured(values)),
    "share": lambda values: Mean(_measured(values), most=1.0),
    "distinct": lambda values: Rate(len(values[values[:, 1] > 0, 0].unique()), int(values[:, 1].sum())),
    "balanced": lambda values: Pooled(values.float(), _balanced),
}


def _measured(values: Float[Tensor, "boards 1"]) -> Float[Tensor, "measured"]:
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
