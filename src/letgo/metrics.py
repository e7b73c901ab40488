"""Scores (section 4, App. O), each with its n and a 95% interval. No percentage without its n."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from letgo.codecs import Codec
from letgo.errors import LetgoError
from letgo.estimates import Mean, Rate, Score, measured, number
from letgo.shapes import CellMask, PerBoard, State, Symbols
from letgo.tasks import Problem, Task


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
    return Mean(measured(violation_shares(boards, problem, task)[:, None]), most=1.0)


def violation_shares(boards: Symbols, problem: Problem, task: Task) -> Float[Tensor, "boards"]:
    """Each board's share of broken predicted cells; NaN where no cell is predicted."""
    return _mean_over_predicted(task.violations(boards, problem).float(), problem.given)


def codeword_distance(x: State, given: CellMask, codec: Codec) -> Mean:
    """Per board the RMSE to the nearest codeword over predicted cells, x 100 (Table 12).

    Digit images are no code: with them it is the distance to some image of the decoded digit.
    """
    return Mean(measured(codeword_distances(x, given, codec)[:, None]))


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
