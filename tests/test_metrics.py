"""Scores against hand-counted boards, with scipy and statistics as judges of the intervals."""

from __future__ import annotations

import json
import math
import statistics
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given as cases
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from letgo.codecs import AnalogBits, Codec, ColumnCodes, OneHot
from letgo.errors import LetgoError
from letgo.estimates import ESTIMATES, Column, Estimate, mean, rate
from letgo.metrics import (
    auroc,
    board_keys,
    codeword_distances,
    coverage,
    expected_distinct,
    expected_uneven,
    pass_at_k_unbiased,
    pool,
    symbol_chances,
    uneven,
    violation_shares,
)
from letgo.report import board_digest
from letgo.tasks.connectivity import Connectivity, entry_counts
from letgo.tasks.latin import Latin
from letgo.tasks.task import Problem

pytestmark = pytest.mark.fast

LATIN = Latin(3)
SQUARE = [0, 1, 2, 1, 2, 0, 2, 0, 1]


def problem(boards: int, given: list[int] | None = None) -> Problem:
    """Puzzles of one 3x3 Latin square, with these cells as clues."""
    mask = torch.zeros(boards, 9, dtype=torch.bool)
    mask[:, given or []] = True
    return Problem(torch.tensor([SQUARE]).repeat(boards, 1), mask)


def changed(cell: int, symbol: int) -> list[int]:
    return [symbol if i == cell else value for i, value in enumerate(SQUARE)]


def estimate(kind: str, values: Tensor) -> Any:
    """What a report makes of one row of values per board."""
    return ESTIMATES[kind](Column.of(kind, values).values)


def violation_rate(boards: Tensor, puzzles: Problem) -> Any:
    return estimate("share", violation_shares(boards, puzzles, LATIN))


def codeword_distance(x: Tensor, given: Tensor, codec: Codec) -> Any:
    return estimate("mean", codeword_distances(x, given, codec))


# Estimates


@cases(trials=st.integers(1, 3000), share=st.floats(0, 1))
def test_a_rate_has_wilsons_interval(trials: int, share: float) -> None:
    successes = round(share * trials)
    judge = stats.binomtest(successes, trials).proportion_ci(method="wilson")
    low, high = rate(successes, trials).interval95
    assert low == pytest.approx(judge.low, abs=1e-12)
    assert high == pytest.approx(judge.high, abs=1e-12)
    assert 0 <= low <= rate(successes, trials).value <= high <= 1


def test_two_thousand_boards_mean_at_most_2_19_points() -> None:
    low, high = rate(1000, 2000).interval95
    assert round((high - low) / 2, 4) == 0.0219


def test_a_rate_is_a_json_object() -> None:
    assert rate(0, 0).as_dict() == {"value": 0.0, "low": 0.0, "high": 1.0, "n": 0}
    result = json.loads(json.dumps(rate(3, 4).as_dict()))
    assert result == {
        "value": 0.75,
        "low": pytest.approx(0.3006, abs=1e-4),
        "high": pytest.approx(0.9544, abs=1e-4),
        "n": 4,
    }


@pytest.mark.parametrize(("successes", "trials"), [(-1, 3), (4, 3)])
def test_an_impossible_rate_is_refused(successes: int, trials: int) -> None:
    with pytest.raises(LetgoError, match="need 0 <= successes <= trials"):
        rate(successes, trials)


@cases(values=st.lists(st.floats(0, 100), min_size=2, max_size=50))
def test_a_mean_has_the_normal_interval(values: list[float]) -> None:
    center, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
    found = mean(torch.tensor(values, dtype=torch.float64))
    assert found.value == pytest.approx(center, abs=1e-9)
    low, high = statistics_interval(center, error)
    assert found.interval95 == pytest.approx((max(0.0, low), high), abs=1e-6)
    assert found.n == len(values)


def statistics_interval(mean: float, error: float) -> tuple[float, float]:
    if error == 0:
        return mean, mean
    judge = statistics.NormalDist(mean, error)
    return judge.inv_cdf(0.025), judge.inv_cdf(0.975)


def test_what_a_mean_cannot_know_is_null_and_never_nan() -> None:
    assert mean(torch.tensor([3.0])).as_dict() == {"value": 3.0, "low": None, "high": None, "n": 1}
    assert mean(torch.tensor([])).as_dict() == {"value": 0.0, "low": None, "high": None, "n": 0}
    json.dumps(mean(torch.tensor([3.0])).as_dict(), allow_nan=False)


# Boards


def test_validity_counts_boards_that_keep_every_rule_and_clue() -> None:
    other = [2, 0, 1, 0, 1, 2, 1, 2, 0]  # a Latin square too, but of other clues
    boards = torch.tensor([SQUARE, changed(4, 0), other, SQUARE])
    assert estimate("rate", LATIN.validate(boards, problem(4))) == rate(3, 4)
    assert estimate("rate", LATIN.validate(boards, problem(4, given=[0]))) == rate(2, 4)


def test_violations_are_a_share_of_the_predicted_cells() -> None:
    # Cell 4 (centre) becomes 0: it clashes with cell 5 in its row and cell 7 in its column.
    boards = torch.tensor([changed(4, 0), SQUARE])
    assert violation_shares(boards, problem(2), LATIN).tolist() == pytest.approx([3 / 9, 0])
    # With cells 5 and 0 given, one violating cell of seven predicted ones is left out: 2 of 7.
    assert violation_shares(boards, problem(2, given=[0, 5]), LATIN).tolist() == pytest.approx([2 / 7, 0])
    assert violation_rate(boards, problem(2)).value == pytest.approx(1 / 6)


def test_a_board_without_a_predicted_cell_does_not_count() -> None:
    puzzle = problem(2)
    puzzle.given[0] = True
    boards = torch.tensor([SQUARE, changed(4, 0)])
    assert (violation_rate(boards, puzzle).value, violation_rate(boards, puzzle).n) == pytest.approx((3 / 9, 1))
    x = OneHot(3).encode(boards)
    assert codeword_distance(x, puzzle.given, OneHot(3)).as_dict() == {"value": 0.0, "low": None, "high": None, "n": 1}
    everything = problem(2, given=list(range(9)))
    for score in (violation_rate(boards, everything), codeword_distance(x, everything.given, OneHot(3))):
        assert score.as_dict() == {"value": 0.0, "low": None, "high": None, "n": 0}


def test_codeword_distance_is_a_hundred_times_the_rmse_over_predicted_cells() -> None:
    x = OneHot(2).encode(torch.tensor([[0, 1], [1, 1]]))
    x[0, 0] += torch.tensor([0.3, -0.1])  # mean square (.09 + .01) / 2 = .05 in this cell, 0 in the other
    x[1, 0] -= 7.0  # a clue may be anywhere; and argmax does not care
    given = torch.tensor([[False, False], [True, False]])
    distance = codeword_distance(x, given, OneHot(2))
    each = codeword_distances(x, given, OneHot(2)).tolist()
    assert each == pytest.approx([100 * math.sqrt(0.05 / 2), 0.0], abs=1e-4)
    assert distance.value == pytest.approx(50 * math.sqrt(0.025), abs=1e-4)


def test_codeword_distance_of_pure_noise_around_codewords_is_its_scale() -> None:
    """Fixed seed; sigma = .05 over 81 x 9 entries and 50 boards: 5 standard errors are .093, odds 6e-7."""
    rng = torch.Generator().manual_seed(0)
    boards = torch.randint(9, (50, 81), generator=rng)
    x = OneHot(9).encode(boards) + 0.05 * torch.randn(50, 81, 9, generator=rng)
    none = torch.zeros(50, 81, dtype=torch.bool)
    assert codeword_distance(x, none, OneHot(9)).value == pytest.approx(5, abs=0.093)
    bits = AnalogBits(9).encode(boards) * 0.9
    assert codeword_distance(bits, none, AnalogBits(9)).value == pytest.approx(10, abs=1e-4)


# Many tries, many boards


def test_pass_at_k_is_any_of_the_tries() -> None:
    valid = torch.tensor([[True, False, False], [False, False, False], [True, True, False]])
    assert estimate("any", valid) == rate(2, 3, k=3)
    assert estimate("any", valid[:, :1]) == rate(2, 3, k=1)
    assert estimate("any", valid[:, 2:]) == rate(0, 3, k=1)


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_the_unbiased_pass_at_k_is_the_average_over_all_choices_of_k_tries(k: int) -> None:
    valid = torch.rand(20, 5, generator=torch.Generator().manual_seed(0)) < 0.3
    expected = [
        statistics.fmean(any(row[i] for i in chosen) for chosen in combinations(range(5), k)) for row in valid.tolist()
    ]
    assert [pass_at_k_unbiased(row[None], k).value for row in valid] == pytest.approx(expected)
    assert pass_at_k_unbiased(valid, k).value == pytest.approx(statistics.fmean(expected))
    assert pass_at_k_unbiased(valid, k).n == 20


def test_with_all_tries_both_pass_at_k_agree() -> None:
    valid = torch.rand(30, 4, generator=torch.Generator().manual_seed(1)) < 0.3
    assert pass_at_k_unbiased(valid, 4).value == pytest.approx(estimate("any", valid).value)


def test_pass_at_k_counts_instances_that_every_try_solves_and_its_interval_ends_at_1() -> None:
    """Three of four: 1.96 s / sqrt n = 1.96 * .5 / 2 = .49 either way, of which .25 is left above."""
    for k in (1, 2):
        found = pass_at_k_unbiased(torch.tensor([[True, True]] * 3 + [[False, False]]), k)
        assert found.value == 0.75
        assert found.interval95 == pytest.approx((0.75 - 1.959964 * 0.25, 1.0), abs=1e-6)


@pytest.mark.parametrize("k", [0, 4])
def test_pass_at_k_needs_enough_tries(k: int) -> None:
    with pytest.raises(LetgoError, match="k must be from 1 to 3"):
        pass_at_k_unbiased(torch.ones(2, 3, dtype=torch.bool), k)


def test_uniqueness_divides_distinct_valid_boards_by_valid_ones() -> None:
    boards = torch.tensor([[0, 1], [0, 1], [1, 0], [1, 1], [1, 1]])
    digests = torch.tensor([board_digest(board) for board in boards], dtype=torch.float64)
    valid = torch.tensor([True, True, True, False, False])
    assert estimate("distinct", torch.stack([digests, valid], 1)) == rate(2, 3)
    assert estimate("distinct", torch.stack([digests, torch.zeros(5)], 1)) == rate(0, 0)


def test_coverage_divides_by_all_solutions_by_the_training_set_and_by_the_rest() -> None:
    solutions = torch.cartesian_prod(torch.arange(3), torch.arange(4))  # twelve boards exist
    training = torch.cat([solutions[:5], solutions[:2]])  # five of them, two twice
    generated = solutions[[0, 0, 1, 6, 6, 7, 8]]
    result = coverage(generated, training, solutions=12)
    assert result == {"total": rate(5, 12), "inside": rate(2, 5), "outside": rate(3, 7)}  # 0, 1, 6, 7, 8
    assert coverage(generated[:0], training, 12)["total"] == rate(0, 12)


def test_more_boards_than_exist_are_refused() -> None:
    boards = torch.arange(6).view(6, 1)
    with pytest.raises(LetgoError, match="6 boards found outside the training set, but only 4 exist"):
        coverage(boards, torch.tensor([[10]]), solutions=5)


def test_all_that_exist_outside_the_training_set_may_be_found() -> None:
    found = coverage(torch.arange(4).view(4, 1), torch.tensor([[10]]), solutions=5)
    assert found == {"total": rate(4, 5), "inside": rate(0, 1), "outside": rate(4, 4)}


# Symbols


def test_the_chances_of_a_symbol_are_bayes_rule_with_scipys_densities() -> None:
    rng = torch.Generator().manual_seed(0)
    for codec in (OneHot(3), AnalogBits(3)):
        alpha, beta, x = 0.7, 0.4, torch.randn(2, 5, codec.dim, generator=rng)
        found = symbol_chances(x, codec, 3, alpha, beta)
        codes = codec.encode(torch.arange(3)[None])[0]
        densities = np.stack([stats.norm.pdf(x, alpha * code, beta).prod(-1) for code in codes.numpy()], -1)
        expected = torch.from_numpy(densities / densities.sum(-1, keepdims=True)).float()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("codec", [OneHot(3), AnalogBits(3), ColumnCodes(3, [[0, 2], [1, 0]])], ids=type)
def test_each_board_has_its_own_time_in_the_chances_of_symbols(codec: Codec):
    x = torch.randn(2, 2, codec.dim, generator=torch.Generator().manual_seed(0))
    alpha, beta = torch.tensor([0.3, 0.8]).view(2, 1, 1), torch.tensor([0.9, 0.5]).view(2, 1, 1)
    both = symbol_chances(x, codec, 3, alpha, beta)
    apart = [symbol_chances(x[i : i + 1], codec, 3, float(alpha[i]), float(beta[i])) for i in range(2)]
    torch.testing.assert_close(both, torch.cat(apart))
    if isinstance(codec, ColumnCodes):
        assert (both[:, 0, 1] == 0).all()
        assert (both[:, 1, 2] == 0).all()


# Graphs


def graphs() -> tuple[Tensor, Problem]:
    """Three graphs of two nodes: connected, apart, apart; and answers with one wrong entry in each of the last two."""
    truth = torch.tensor([[1, 1, 1, 1], [1, 0, 0, 1], [1, 0, 0, 1]])
    said = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 1], [0, 0, 0, 1]])
    return said, Problem(truth, torch.zeros(3, 4, dtype=torch.bool))


def balanced_accuracy(boards: Tensor, puzzle: Problem) -> Estimate:
    return ESTIMATES["balanced"](entry_counts(boards, puzzle.solution).double())


def test_element_accuracy_is_the_share_of_right_entries() -> None:
    graph = Connectivity(2)
    puzzle = graph.parse("01/10")
    puzzle = Problem(torch.ones(1, 4, dtype=torch.long), puzzle.given, puzzle.context)
    column = graph.outcomes([torch.tensor([[1, 0, 1, 1]])], puzzle)["element_accuracy"]
    assert (column.kind, column.values.tolist()) == ("share", [[0.75]])


def test_balanced_accuracy_pools_the_entries_of_all_graphs() -> None:
    """Positives 8, of which 7 found; negatives 4, of which 3 found."""
    said, puzzle = graphs()
    score = balanced_accuracy(said, puzzle)
    assert score.value == pytest.approx((7 / 8 + 3 / 4) / 2)
    assert score.n == 3
    low, high = score.interval95
    assert 0 <= low <= score.value <= high <= 1
    assert balanced_accuracy(said, puzzle).interval95 == (low, high)


def test_balanced_accuracy_of_connected_graphs_alone_is_their_hit_rate() -> None:
    said, puzzle = graphs()
    assert balanced_accuracy(said[:1], puzzle[:1]).as_dict() == {"value": 1.0, "low": None, "high": None, "n": 1}
    assert balanced_accuracy(said[:0], puzzle[:0]).value == 0


def test_the_bootstrap_interval_agrees_with_scipys() -> None:
    """500 graphs of 16 entries, one in ten wrong. Both intervals are random: they may differ by a tenth of a width."""
    rng = np.random.default_rng(0)
    truth = torch.from_numpy(rng.integers(2, size=(500, 16)))
    said = torch.from_numpy(np.where(rng.random((500, 16)) < 0.1, 1 - truth.numpy(), truth.numpy()))
    score = balanced_accuracy(said, Problem(truth, torch.zeros(500, 16, dtype=torch.bool)))

    def pooled(index: np.ndarray) -> float:
        t, s = truth.numpy()[index], said.numpy()[index]
        return float((s[t == 1].mean() + 1 - s[t == 0].mean()) / 2)

    assert score.value == pytest.approx(pooled(np.arange(500)))
    judge = stats.bootstrap(
        (np.arange(500),), pooled, n_resamples=2000, method="percentile", vectorized=False, rng=np.random.default_rng(1)
    ).confidence_interval
    low, high = score.interval95
    assert low == pytest.approx(judge.low, abs=(high - low) / 10)
    assert high == pytest.approx(judge.high, abs=(high - low) / 10)


# Distinct boards and draws (Table 15, App. O.3)


@cases(st.integers(2, 5), st.integers(1, 6))
def test_keys_tell_all_boards_apart(symbols: int, cells: int) -> None:
    boards = torch.cartesian_prod(*[torch.arange(symbols)] * cells).view(-1, cells)
    assert sorted(board_keys(boards, symbols).tolist()) == list(range(symbols**cells))


def test_fourteen_queens_fit_a_key_and_a_sudoku_does_not() -> None:
    assert board_keys(torch.full((1, 14), 13), 14).tolist() == [14**14 - 1]
    with pytest.raises(LetgoError, match="do not fit a 63-bit key"):
        board_keys(torch.zeros(1, 81, dtype=torch.long), 9)


def test_a_key_has_63_bits_and_not_one_more() -> None:
    assert board_keys(torch.ones(1, 63, dtype=torch.long), 2).tolist() == [2**63 - 1]
    with pytest.raises(LetgoError, match="boards of 64 cells with 2 symbols do not fit"):
        board_keys(torch.ones(1, 64, dtype=torch.long), 2)


def test_without_draws_nothing_comes_up_and_nothing_is_uneven() -> None:
    assert (expected_distinct(1, 0), expected_distinct(3, 0)) == (0, 0)
    assert (expected_uneven(1, 0), expected_uneven(3, 0)) == (0, 0)


@pytest.mark.parametrize(("solutions", "draws"), [(1, 1), (1, 5), (2, 1), (2, 6), (3, 4), (5, 3)])
def test_expectations_of_uniform_draws_are_those_of_all_outcomes(solutions: int, draws: int) -> None:
    outcomes = torch.cartesian_prod(*[torch.arange(solutions)] * draws).view(-1, draws)
    counts = torch.stack([(outcomes == s).sum(1) for s in range(solutions)], dim=1)
    assert expected_distinct(solutions, draws) == pytest.approx(float((counts > 0).sum(1).double().mean()))
    unevenness = [uneven(row) for row in counts]
    assert expected_uneven(solutions, draws) == pytest.approx(statistics.fmean(unevenness), abs=1e-12)


@pytest.mark.parametrize(("solutions", "draws"), [(2, 1000), (12, 1000), (7, 33)])
def test_expected_unevenness_is_scipys(solutions: int, draws: int) -> None:
    law = stats.binom(draws, 1 / solutions)
    deviation = law.expect(lambda k: abs(k / draws - 1 / solutions))
    assert expected_uneven(solutions, draws) == pytest.approx(solutions * deviation / 2, rel=1e-9)


def test_unevenness_is_the_share_of_draws_that_would_have_to_move() -> None:
    assert uneven(torch.tensor([5, 5])) == 0
    assert uneven(torch.tensor([10, 0])) == 0.5
    assert uneven(torch.tensor([4, 0, 0, 0])) == 0.75
    assert uneven(torch.tensor([0, 0])) == 0


@cases(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=4))
def test_pooled_rates_are_the_rate_of_all_trials(pairs: list[tuple[int, int]]) -> None:
    rates = [rate(min(pair), max(pair)).as_dict() for pair in pairs]
    assert pool(rates, True) == rate(sum(map(min, pairs)), sum(map(max, pairs))).as_dict()


def test_a_sampler_that_diverged_is_no_number_alone_and_beside_others() -> None:
    diverged, fine = (mean(torch.tensor(values)).as_dict() for values in ([math.nan, 1.0], [2.0, 3.0]))
    assert diverged == {"value": None, "low": None, "high": None, "n": 2}
    assert pool([diverged, fine], False) == {"value": None, "low": None, "high": None, "n": 4}


def test_pooled_means_are_the_mean_of_all_boards() -> None:
    rng = torch.Generator().manual_seed(0)
    parts = [torch.rand(400, generator=rng), torch.rand(600, generator=rng) / 2]
    pooled = pool([mean(part).as_dict() for part in parts], False)
    assert pooled["value"] == pytest.approx(float(torch.cat(parts).double().mean()))
    errors = [part.double().std().item() * math.sqrt(len(part)) for part in parts]
    assert (pooled["high"] or 0) - (pooled["value"] or 0) == pytest.approx(
        1.959964 * math.hypot(*errors) / 1000, rel=1e-5
    )
    assert pool([mean(torch.ones(1)).as_dict(), mean(torch.ones(3)).as_dict()], False)["low"] is None


def test_pooled_means_take_no_interval_for_narrower_because_it_was_cut_off_at_0() -> None:
    part = torch.zeros(2000)
    part[0] = 0.5
    error = 1.959964 * part.double().std().item() / math.sqrt(6000)
    pooled = pool([mean(part).as_dict()] * 3, False)
    assert pooled["low"] == 0.0
    assert pooled["high"] == pytest.approx(0.00025 + error, rel=1e-5)


def test_a_measurement_with_one_end_alone_gives_the_pool_no_interval() -> None:
    half: dict[str, float | int | None] = {"value": 0.5, "low": None, "high": 0.9, "n": 10}
    other: dict[str, float | int | None] = {"value": 1.0, "low": 0.8, "high": None, "n": 30}
    whole: dict[str, float | int | None] = {"value": 0.5, "low": 0.4, "high": 0.6, "n": 10}
    assert pool([half, whole], False) == {"value": 0.5, "low": None, "high": None, "n": 20}
    assert pool([whole, other], False) == {"value": 0.875, "low": None, "high": None, "n": 40}


def test_a_mean_of_shares_stays_between_0_and_1() -> None:
    assert mean(torch.tensor([0.0, 0.0, 0.1])).interval95[0] == 0.0
    assert mean(torch.tensor([1.0, 1.0, 0.9]), most=1.0).interval95[1] == 1.0
    assert mean(torch.tensor([1.0, 3.0])).interval95[1] > 3


# AUROC


@cases(st.lists(st.tuples(st.integers(0, 6), st.booleans()), min_size=2, max_size=40))
def test_auroc_is_the_share_of_pairs_in_order_with_ties_counted_half(rows: list[tuple[int, bool]]) -> None:
    """By counting all pairs; and, as the Mann-Whitney U statistic, by SciPy."""
    scores, positive = (list(column) for column in zip(*rows, strict=True))
    found = auroc(torch.tensor(scores), torch.tensor(positive))
    above = [(a > b) + (a == b) / 2 for a, p in rows for b, q in rows if p and not q]
    if not above:
        assert found == Estimate(0.0, (0.0, 1.0), 0)
        return
    assert found.value == pytest.approx(statistics.fmean(above))
    groups = [[score for score, p in rows if p == side] for side in (True, False)]
    u = stats.mannwhitneyu(*groups, method="asymptotic").statistic if len(set(scores)) > 1 else len(above) / 2
    assert found.value == pytest.approx(u / len(above))
    low, high = found.interval95
    assert low <= found.value <= high
    assert (low >= 0 and high <= 1) != (found.value in (0.0, 1.0))
    assert found.n == len(rows)


def test_aurocs_interval_is_hanley_and_mcneils_and_covers_a_closed_form() -> None:
    """Of two normal laws a distance d apart the AUROC is Phi(d / sqrt 2): .760 for d = 1. Fixed seeds; of 400 intervals
    at 95% between 362 and 396 cover it, but for odds of 1e-3."""
    rng, truth, covered = torch.Generator().manual_seed(0), stats.norm.cdf(1 / math.sqrt(2)), 0
    for _ in range(400):
        scores = torch.randn(150, generator=rng)
        scores[:50] += 1
        low, high = auroc(scores, torch.arange(150) < 50).interval95
        covered += low <= truth <= high
    assert 362 <= covered <= 396


def test_where_scores_say_nothing_aurocs_interval_is_that_of_mann_and_whitneys_u() -> None:
    """At 1/2 Hanley and McNeil's variance is that of U / mn where both kinds have one law: (m + n + 1) / 12 mn."""
    for few, many in ((5, 5), (4, 9), (30, 7)):
        found = auroc(torch.zeros(few + many), torch.arange(few + many) < few)
        reach = 1.959964 * math.sqrt((few + many + 1) / (12 * few * many))
        assert found.value == 0.5
        assert found.interval95 == pytest.approx((0.5 - reach, 0.5 + reach), abs=1e-6)


def test_aurocs_interval_is_that_of_hanley_and_mcneils_own_example() -> None:
    """109 tomograms on a scale of five (Radiology 143, 1982): an area of .893. Its standard error comes to .0325 with
    the printed area, worked out by hand: Q1 = .8067, Q2 = .8425, Q1 - A^2 = .0093, Q2 - A^2 = .0451."""
    normal, abnormal = [33, 6, 6, 11, 2], [3, 2, 2, 11, 33]
    scores = torch.tensor(
        [rating for counts in (abnormal, normal) for rating in range(5) for _ in range(counts[rating])]
    )
    found = auroc(scores, torch.arange(109) < 51)
    assert found.value == pytest.approx(0.893, abs=5e-4)
    by_hand = math.sqrt((0.893 * 0.107 + 50 * 0.0093 + 57 * 0.0451) / (51 * 58))
    assert by_hand == pytest.approx(0.0325, abs=1e-4)
    low, high = found.interval95
    assert (high - low) / 2 / 1.959964 == pytest.approx(by_hand, rel=2e-3)


@pytest.mark.extras
def test_auroc_is_scikit_learns() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(0)
    scores, positive = rng.integers(0, 20, 500), rng.random(500) < 0.3
    ours = auroc(torch.from_numpy(scores), torch.from_numpy(positive)).value
    assert ours == pytest.approx(metrics.roc_auc_score(positive, scores), abs=1e-12)
