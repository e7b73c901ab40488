"""Clues: hard, soft, and the threshold t* between them (Algorithm 1)."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given as cases
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from letgo.paths import CosinePath, GaussianPath
from letgo.pinning import Clues

pytestmark = pytest.mark.fast


def at(value: float) -> Tensor:
    return torch.full((1, 1, 1), value)


def some_clues(seed: int = 0, soft_until: float = math.inf) -> tuple[Clues, Tensor, Tensor]:
    """Clues, a state and noise."""
    rng = torch.Generator().manual_seed(seed)
    values, x, noise = torch.randn(3, 4, 6, 5, generator=rng)
    return Clues(values, torch.rand(4, 6, generator=rng) < 0.4, soft_until), x, noise


@cases(seed=st.integers(0, 10_000))
def test_hard_pinning_sets_the_clues_and_touches_nothing_else(seed: int) -> None:
    clues, x, _ = some_clues(seed)
    pinned = clues.pin(x)
    assert torch.equal(pinned[clues.given], clues.values[clues.given])
    assert torch.equal(pinned[~clues.given], x[~clues.given])


@cases(seed=st.integers(0, 10_000), time=st.floats(0, 1), soft_until=st.sampled_from([0.0, 0.5, 1.0, math.inf]))
def test_pinning_twice_is_pinning_once(seed: int, time: float, soft_until: float) -> None:
    clues, x, noise = some_clues(seed, soft_until)
    assert torch.equal(clues.pin(clues.pin(x)), clues.pin(x))
    once = clues.pin_at(x, at(time), CosinePath(), noise)
    assert torch.equal(clues.pin_at(once, at(time), CosinePath(), noise), once)


@pytest.mark.parametrize("time", [0.0, 0.3, 0.7, 1.0])
def test_by_default_pinning_is_always_hard_and_needs_no_noise(path: GaussianPath, time: float) -> None:
    clues, x, _ = some_clues()
    assert not clues.may_be_soft
    assert torch.equal(clues.pin_at(x, at(time), path, None), clues.pin(x))


@pytest.mark.parametrize(
    ("time", "soft"), [(1.0, True), (0.51, True), (0.5, True), (0.49, False), (0.01, False), (0.0, False)]
)
def test_pinning_is_soft_from_the_threshold_up_and_hard_below(path: GaussianPath, time: float, soft: bool) -> None:
    clues, x, noise = some_clues(soft_until=0.5)
    pinned = clues.pin_at(x, at(time), path, noise)
    noised = path.alpha(at(time)) * clues.values + path.beta(at(time)) * noise  # c_s ~ q(x_s | c)
    expected = noised if soft else clues.values
    assert_close(pinned[clues.given], expected[clues.given])
    assert torch.equal(pinned[~clues.given], x[~clues.given])


def test_a_threshold_of_one_is_soft_at_the_start_alone_and_beyond_it_nothing_is(path: GaussianPath) -> None:
    clues, x, noise = some_clues(soft_until=1.0)
    assert clues.may_be_soft
    noised = path.sample(clues.values, at(1.0), noise)
    assert torch.equal(clues.pin_at(x, at(1.0), path, noise)[clues.given], noised[clues.given])
    assert torch.equal(clues.pin_at(x, at(0.99), path, noise), clues.pin(x))
    assert not some_clues(soft_until=1.01)[0].may_be_soft


def test_softly_pinned_clues_have_the_forward_moments(path: GaussianPath) -> None:
    """q(x_s | c) = N(alpha c, beta^2). Fixed seed; for a new one the odds of a false alarm are 1.2e-6 (5 sigma)."""
    draws, t = 20000, at(0.4)
    clues = Clues(torch.full((draws, 1, 1), 0.8), torch.ones(draws, 1, dtype=torch.bool), soft_until=0.2)
    noise = torch.randn(draws, 1, 1, generator=torch.Generator().manual_seed(0))
    pinned = clues.pin_at(torch.zeros(draws, 1, 1), t, path, noise)
    alpha, beta = float(path.alpha(t)), float(path.beta(t))
    assert abs(pinned.mean() - alpha * 0.8) < 5 * beta / math.sqrt(draws)
    assert abs(pinned.var() - beta**2) < 5 * beta**2 * math.sqrt(2 / draws)
