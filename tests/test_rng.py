"""Noise: the published answers of Philox, the normal law, and one stream per board whatever its batch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from letgo.rng import DRAW, KERNEL, PIN, START, Noise, box_muller, philox, uniform_times

pytestmark = pytest.mark.fast

# Known answers of Philox4x32-10 from Random123 (Salmon et al. 2011): counter, key, output.
KNOWN_ANSWERS = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000", "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff", "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0", "d16cfe09 94fdcceb 5001e420 24126ea1"),
]


def words(text: str) -> list[int]:
    return [int(word, 16) for word in text.split()]


@pytest.mark.parametrize(("counter", "key", "expected"), KNOWN_ANSWERS)
def test_philox_gives_the_published_answers(counter: str, key: str, expected: str) -> None:
    k0, k1 = words(key)
    result = philox([torch.tensor([word]) for word in words(counter)], (k0, k1))
    assert [int(word) for word in result] == words(expected)


def test_philox_agrees_with_exact_integers_on_many_counters() -> None:
    """int64 products wrap and Python's never do: both must give the same words."""
    rng = np.random.default_rng(0)
    counters = rng.integers(2**32, size=(100, 4))
    result = torch.stack(philox(list(torch.from_numpy(counters).T), (1, 2**32 - 1)), dim=1)
    expected = [exact_philox([int(word) for word in counter], 1, 2**32 - 1) for counter in counters]
    assert result.tolist() == expected


def exact_philox(counter: list[int], k0: int, k1: int) -> list[int]:
    a, b, c, d = counter
    for _ in range(10):
        high0, low0 = divmod(a * 0xD2511F53, 2**32)
        high1, low1 = divmod(c * 0xCD9E8D57, 2**32)
        a, b, c, d = high1 ^ b ^ k0, low1, high0 ^ d ^ k1, low0
        k0, k1 = (k0 + 0x9E3779B9) % 2**32, (k1 + 0xBB67AE85) % 2**32
    return [a, b, c, d]


def test_box_muller_is_finite_for_every_extreme_word() -> None:
    extremes = torch.tensor([0, 1, 2**31, 2**32 - 1])
    first, second = torch.cartesian_prod(extremes, extremes).T
    for normal in box_muller(first, second):
        assert normal.isfinite().all()


def test_normals_follow_the_normal_law() -> None:
    """Fixed seed. For a new seed the odds of a false alarm are 1e-4 (KS) plus 6e-7 for each of four moments."""
    values = Noise.first(7, 500).normal(3, KERNEL, 16, 4).flatten().double()
    n = len(values)
    assert stats.kstest(values.numpy(), "norm").pvalue > 1e-4
    # Moments 1..4 of a standard normal are 0, 1, 0, 3, with variances 1, 2, 15, 96.
    for power, (mean, variance) in enumerate([(0, 1), (1, 2), (0, 15), (3, 96)], start=1):
        assert abs(values.pow(power).mean() - mean) < 5 * (variance / n) ** 0.5


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_neighbouring_normals_are_uncorrelated(lag: int) -> None:
    """Fixed seed. For a new seed the odds of a false alarm are 6e-7 for each of three correlations."""
    noise = Noise.first(11, 2000)
    now, later = (noise.normal(step, KERNEL, 4, 4).flatten(1).double() for step in (0, lag))
    for left, right in [(now, later), (now[:-lag], now[lag:]), (now[:, :-lag], now[:, lag:])]:
        assert abs((left * right).mean()) < 5 / left.numel() ** 0.5


@pytest.mark.parametrize(("cells", "dim"), [(1, 1), (7, 3), (16, 4), (81, 9)])
def test_a_board_sees_the_same_noise_in_any_batch(cells: int, dim: int) -> None:
    whole = Noise.first(3, 40)
    expected = whole.normal(5, KERNEL, cells, dim)
    for index in (slice(0, 1), slice(17, 18), slice(3, 40), slice(20, 22), torch.tensor([39, 0, 17])):
        assert torch.equal(whole[index].normal(5, KERNEL, cells, dim), expected[index])


def test_a_step_may_be_a_number_or_a_tensor() -> None:
    noise = Noise.first(0, 3)
    assert torch.equal(noise.normal(4, KERNEL, 2, 2), noise.normal(torch.tensor(4), KERNEL, 2, 2))


def test_seeds_boards_tries_steps_and_purposes_all_differ() -> None:
    """Fixed seeds. For new ones, two of the 288 first values agree by chance with odds of about 0.3%."""
    draws = []
    for seed, instance, attempt, step in itertools.product((0, 1, 2**32), (0, 1, 7, 2**20), (0, 1), (0, 1, 2, 200)):
        noise = Noise(seed, torch.tensor([instance]), torch.tensor([attempt]))
        draws += [noise.normal(step, purpose, 2, 4).flatten() for purpose in (START, KERNEL, PIN)]
    whole = torch.stack(draws)
    assert len(torch.unique(whole, dim=0)) == len(whole) == 288
    assert len(torch.unique(whole[:, 0])) == len(whole)


def test_no_step_for_one_purpose_draws_what_another_draws_for_another() -> None:
    """Fixed seed. For a new one, two of the 80 first values agree by chance with odds of about 0.02%."""
    noise = Noise.first(0, 1)
    draws = [
        noise.normal(step, purpose, 1, 4).flatten() for step in range(20) for purpose in (START, KERNEL, PIN, DRAW)
    ]
    assert len(torch.unique(torch.stack(draws)[:, 0])) == len(draws)


def test_a_longer_state_starts_with_the_same_values() -> None:
    noise = Noise.first(0, 2)
    assert torch.equal(noise.normal(1, START, 3, 5)[:, :2], noise.normal(1, START, 2, 5))


def test_training_times_are_uniform_and_one_per_board() -> None:
    """Fixed seed. For a new seed the odds of a false alarm are 1e-4."""
    torch.manual_seed(0)
    times = uniform_times(torch.zeros(5000, 3, 2))
    assert times.shape == (5000, 1, 1)
    assert times.min() >= 0
    assert times.max() < 1
    assert stats.kstest(times.flatten().numpy(), "uniform").pvalue > 1e-4
