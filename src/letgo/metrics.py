"""Boards and whole sets of boards are scored here (section 4, App. O). No percentage goes without its n."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from letgo.codecs import Codec, by_symbol, is_varied
from letgo.errors import LetgoError
from letgo.estimates import Z95, Estimate, Score, mean, number, rate
from letgo.shapes import CellMask, State, Symbols, Time
from letgo.tasks import Problem, Task


def pass_at_k_unbiased(valid: Bool[Tensor, "instances tries"], k: int) -> Estimate:
    """Estimate pass@k from more tries: 1 - C(tries - c, k) / C(tries, k), c of them valid, averaged over instances."""
    tries = valid.shape[1]
    if not 1 <= k <= tries:
        raise LetgoError(f"pass@{k} from {tries} tries: k must be from 1 to {tries}")
    missed = [math.comb(tries - c, k) / math.comb(tries, k) for c in range(tries + 1)]
    return mean(1 - torch.tensor(missed, dtype=torch.float64)[valid.sum(1).cpu()], most=1.0)


def violation_shares(boards: Symbols, problem: Problem, task: Task) -> Float[Tensor, "boards"]:
    """Return each board's share of predicted cells in a broken rule (Table 13); NaN where none is predicted."""
    return _mean_over_predicted(task.violations(boards, problem).float(), problem.given)


def codeword_distances(x: State, given: CellMask, codec: Codec) -> Float[Tensor, "boards"]:
    """Return each board's RMSE to the nearest codeword over predicted cells, x 100 (Table 12).

    It is NaN where no cell is predicted, infinity where the sampler diverged. Digit images are no code: with them it is
    the distance to some image of the decoded digit.
    """
    squares = (x - codec.encode(codec.decode(x))).square().mean(-1)
    squares = squares.where(squares.isfinite(), math.inf)
    return 100 * _mean_over_predicted(squares, given).sqrt()


def _mean_over_predicted(per_cell: Float[Tensor, "batch cells"], given: CellMask) -> Float[Tensor, "boards"]:
    per_cell, open_cells = per_cell.cpu().double(), ~given.cpu()  # not every device has double precision
    return per_cell.masked_fill(~open_cells, 0.0).sum(1) / open_cells.sum(1)


def symbol_chances(
    x: State, codec: Codec, symbols: int, alpha: float | Time, beta: float | Time
) -> Float[Tensor, "batch cells symbols"]:
    """Return how likely each symbol is in a cell of states alpha x0 + beta eps, by Bayes' rule for the cell alone, from
    equal chances. Images are no code that a state could be compared with: there it is the decoder that says so."""
    if is_varied(codec):
        images: Any = codec
        return images.probabilities(x)
    if codec.one_hot:
        codewords = torch.eye(codec.dim, device=x.device)
    else:
        codewords = codec.encode(torch.arange(symbols, device=x.device)[None])[0]
    codewords = torch.as_tensor(alpha, dtype=torch.float32, device=x.device).view(-1, 1, 1, 1) * codewords
    squares = (x.float()[:, :, None] - codewords).square().sum(-1)
    spread = (2 * torch.as_tensor(beta, dtype=torch.float64) ** 2).float().view(-1, 1, 1)
    closeness = -squares / spread.to(x.device)
    return torch.softmax(by_symbol(codec, closeness, symbols, -math.inf) if codec.one_hot else closeness, -1)


def coverage(
    found: Int[Tensor, "found cells"], training: Int[Tensor, "training cells"], solutions: int
) -> dict[str, Estimate]:
    """Return distinct valid boards as shares of all `solutions`, of the training set and of the rest (Table 15).

    Both lists may repeat boards but hold only valid ones. The intervals take each solution as an independent trial,
    found or not, which is a little too wide: what one sample finds, the others do not.
    """
    training, found = torch.unique(training, dim=0), torch.unique(found, dim=0).to(training)
    _, times = torch.unique(torch.cat([training, found]), dim=0, return_counts=True)
    inside = int((times > 1).sum())  # both lists hold a board once, so twice means in both
    outside, rest = len(found) - inside, solutions - len(training)
    if outside > rest:
        raise LetgoError(f"{outside} boards found outside the training set, but only {rest} exist there")
    return {"total": rate(len(found), solutions), "inside": rate(inside, len(training)), "outside": rate(outside, rest)}


def board_keys(boards: Symbols, symbols: int) -> Int[Tensor, "batch"]:
    """Return each board as one number, its cells the digits: millions of boards are compared at 8 bytes each."""
    cells = boards.shape[1]
    if symbols**cells > 2**63:
        raise LetgoError(f"boards of {cells} cells with {symbols} symbols do not fit a 63-bit key")
    places = torch.tensor([symbols**i for i in range(cells)], dtype=torch.long, device=boards.device)
    return (boards.long() * places).sum(1)


def expected_distinct(solutions: int, draws: int) -> float:
    """Return how many of `solutions` come up at least once in `draws` exactly uniform draws, on average."""
    return -solutions * math.expm1(draws * math.log1p(-1 / solutions)) if solutions > 1 else float(draws > 0)


def uneven(counts: Int[Tensor, "solutions"]) -> float:
    """Return the total variation of the draws' shares from equal ones: the share of draws that would have to move."""
    draws = int(counts.sum())
    return float((counts.double() / draws - 1 / len(counts)).abs().sum() / 2) if draws else 0.0


def expected_uneven(solutions: int, draws: int) -> float:
    """Return the mean of `uneven` for uniform draws: half of De Moivre's mean deviation, summed over solutions."""
    if solutions < 2 or draws < 1:
        return 0.0
    p = 1 / solutions
    m = math.floor(draws * p) + 1
    log_choose = math.lgamma(draws + 1) - math.lgamma(m + 1) - math.lgamma(draws - m + 1)
    log_term = log_choose + m * math.log(p) + (draws - m + 1) * math.log1p(-p)
    return solutions / draws * m * math.exp(log_term)


def auroc(scores: Float[Tensor, "boards"] | Int[Tensor, "boards"], positive: Bool[Tensor, "boards"]) -> Estimate:
    """Return how often a positive board scores above a negative one, ties counted half, exactly by ranks.

    The interval is Hanley and McNeil's (1982). Where one kind of board is missing there is nothing to tell: n = 0.
    """
    scores, positive = scores.cpu().double(), positive.cpu()
    many, few = int((~positive).sum()), int(positive.sum())
    if not many or not few:
        return Estimate(0.0, (0.0, 1.0), 0)
    _, place, ties = scores.unique(return_inverse=True, return_counts=True)
    ranks = (ties.cumsum(0).double() - (ties - 1) / 2)[place]  # equal scores share the middle of their ranks
    area = (float(ranks[positive].sum()) - few * (few + 1) / 2) / (few * many)
    if area in (0.0, 1.0):  # no pair is out of order: that has no spread to judge by
        return Estimate(area, (-math.inf, math.inf), few + many)
    pair, other = area / (2 - area), 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (few - 1) * (pair - area**2) + (many - 1) * (other - area**2)
    reach = Z95 * math.sqrt(max(variance, 0.0) / (few * many))
    return Estimate(area, (max(0.0, area - reach), min(1.0, area + reach)), few + many)


def pool(scores: Sequence[Score], is_rate: bool) -> Score:
    """Join several measurements of one thing: trials add up (Wilson), other means by their standard errors."""
    counted = [s for s in scores if s["n"]]
    numbers = [(number(s["value"]), int(s["n"] or 0)) for s in counted]
    total = sum(n for _, n in numbers)
    if is_rate or not total:
        return rate(sum(round(value * n) for value, n in numbers), total).as_dict()
    value = sum(value * n for value, n in numbers) / total
    if math.isnan(value):  # a sampler that diverged
        return {"value": None, "low": None, "high": None, "n": total}
    ends = [(float(s["low"]), float(s["high"])) for s in counted if s["low"] is not None and s["high"] is not None]
    if len(ends) < len(counted):
        return {"value": value, "low": None, "high": None, "n": total}
    reaches = [max(v - low, high - v) * n for (low, high), (v, n) in zip(ends, numbers, strict=True)]
    reach = math.hypot(*reaches) / total  # the longer side: the other may have been cut off at 0
    return {"value": value, "low": max(value - reach, 0.0), "high": value + reach, "n": total}
