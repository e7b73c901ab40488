"""The paper's propositions and lemmas, checked with the exact denoiser over the 288 boards of 4x4, or by quadrature.

Fixed seeds; where draws are counted, a bound is given five standard errors, so for a new seed the odds of a false alarm
are below 3e-7 each. `tests/test_kernels.py` has Proposition 3.1, K.2 and K.3 and Lemma K.1 on states made by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, distributions
from torch.testing import assert_close

from letgo.codecs import OneHot
from letgo.kernels import Transition, ddpm, tweedie
from letgo.models.denoiser import ExactDenoiser
from letgo.objectives import Batch, renoise
from letgo.paths import CosinePath
from letgo.pinning import Clues
from letgo.rng import Noise
from letgo.sampling import starting_state, trajectory, uniform_grid

PATH, CODEC, STEPS = CosinePath(), OneHot(4), 40


def at(t: float) -> Tensor:
    return torch.full((1, 1, 1), t, dtype=torch.float64)


def coefficients(t: float, s: float) -> tuple[float, float, float, float]:
    """alpha(t), alpha(s), and A_t and B_t of App. K.3, written out again here."""
    alpha_t, alpha_s = math.cos(math.pi * t / 2), math.cos(math.pi * s / 2)
    delta = alpha_t**2 / alpha_s**2
    proposal = alpha_s * (1 - delta) / (1 - alpha_t**2)
    return alpha_t, alpha_s, proposal, math.sqrt(delta) * (1 - alpha_s**2) / (1 - alpha_t**2)


@pytest.fixture(scope="module")
def visited(mini_boards: Tensor) -> list[Transition]:
    """DDPM's steps on 64 puzzles of six clues; the denoiser meets the clues in x_t alone, as a network does."""
    rng = torch.Generator().manual_seed(0)
    solution = mini_boards[torch.randint(288, (64,), generator=rng)]
    given = torch.rand(64, 16, generator=rng).argsort(1).argsort(1) < 6
    clues, noise = Clues(CODEC.encode(solution), given), Noise.first(0, 64)
    exact = ExactDenoiser(CODEC.encode(mini_boards), PATH)
    return list(steps_of(exact, clues, noise))


def steps_of(exact: ExactDenoiser, clues: Clues, noise: Noise) -> Iterator[Transition]:
    times, x_t = uniform_grid(STEPS).double(), starting_state(noise, clues, PATH)
    walk = trajectory(exact, PATH, ddpm, uniform_grid(STEPS), clues, noise)
    for i, snapshot in enumerate(walk):
        t, s = (time.view(1, 1, 1) for time in (times[i], times[i + 1]))
        yield Transition(PATH, exact, x_t.double(), snapshot.x0_hat.double(), t, s)
        x_t = snapshot.x


def test_proposition_3_1_self_corrections_inputs_are_the_states_of_sampling_and_standard_ones_are_not(
    visited: list[Transition], mini_boards: Tensor
):
    """A proposal of the exact denoiser, held fixed over a window of DDPM steps, from x_t0 ~ q_t0(.; x0_bar)."""
    x0_bar, x0 = visited[20].x0_hat[:1], CODEC.encode(mini_boards[:1]).double()
    t = visited[20].t
    mean, variance = PATH.alpha(t) * x0_bar, PATH.beta(t) ** 2
    for step in visited[20:-1]:  # at s = 0 there is no density left
        _, _, _, memory = coefficients(float(step.t), float(step.s))
        kernel = ddpm(Transition(PATH, step.denoise, mean, x0_bar, step.t, step.s))
        mean, variance = kernel.center, memory**2 * variance + kernel.scale**2
        sampling = distributions.Normal(mean, variance.sqrt().expand_as(mean))
        alpha, beta = PATH.alpha(step.s), PATH.beta(step.s)
        corrected = distributions.Normal(alpha * x0_bar, beta.expand_as(mean))
        standard = distributions.Normal(alpha * x0, beta.expand_as(mean))
        assert float(distributions.kl_divergence(corrected, sampling).sum()) == pytest.approx(0, abs=1e-9)
        apart = float(alpha**2 / (2 * beta**2) * (x0 - x0_bar).square().sum())
        assert apart > 0.01
        assert float(distributions.kl_divergence(standard, sampling).sum()) == pytest.approx(apart, rel=1e-8)


def test_proposition_k2_ddpm_is_tweedie_plus_memory_along_a_whole_trajectory(visited: list[Transition]):
    for step in visited:
        alpha_t, alpha_s, _, memory = coefficients(float(step.t), float(step.s))
        residual = step.x_t - alpha_t * step.x0_hat
        assert_close(ddpm(step).center, tweedie(step).center + memory * residual, atol=1e-7, rtol=1e-6)
        assert float(tweedie(step).scale) == pytest.approx(math.sqrt(1 - alpha_s**2), abs=1e-7)
        delta = alpha_t**2 / alpha_s**2
        variance = (1 - delta) * (1 - alpha_s**2) / (1 - alpha_t**2)
        assert float(ddpm(step).scale) == pytest.approx(math.sqrt(variance), abs=1e-7)


def test_lemma_k1_decoded_centers_are_as_stable_as_their_gap_says(visited: list[Transition]):
    """Every DDPM center of 16 runs with a bound that says something; 400 draws around each."""
    rng, checked = torch.Generator().manual_seed(1), 0
    for step in visited[:-1]:
        kernel = ddpm(step)
        for center in kernel.center[:16]:
            first, second = center.topk(2, dim=-1).values.unbind(-1)
            gap = float((first - second).min())
            bound = 16 * 3 * stats.norm.cdf(-gap / (math.sqrt(2) * float(kernel.scale)))
            if bound > 0.5:
                continue
            noise = float(kernel.scale) * torch.randn(400, 16, 4, dtype=torch.float64, generator=rng)
            changed = ((center + noise).argmax(-1) != center.argmax(-1)).any(1).double().mean()
            assert changed <= bound + 5 * math.sqrt(bound / 400) + 1e-9
            checked += 1
    assert checked > 50


def test_proposition_k3_where_the_state_outvotes_a_valid_proposal_the_step_stays_invalid(mini_boards: Tensor):
    """Puzzles with one solution and an exact denoiser that is told the clues: every proposal late on is that solution,
    so wherever DDPM's center decodes otherwise, its memory is what broke it."""
    rng = torch.Generator().manual_seed(2)
    solution = mini_boards[torch.randint(288, (200,), generator=rng)]
    given = torch.rand(200, 16, generator=rng).argsort(1).argsort(1) < 7
    agree = (mini_boards[None] == solution[:, None]) | ~given[:, None]
    alone = agree.all(-1).sum(1) == 1
    solution, given = solution[alone][:40], given[alone][:40]
    clues = Clues(CODEC.encode(solution), given)
    exact, checked = ExactDenoiser(CODEC.encode(mini_boards), PATH, clues), 0
    rows = torch.arange(len(solution))
    for step in steps_of(exact, clues, Noise.first(0, len(solution))):
        alpha_t, alpha_s, _, memory = coefficients(float(step.t), float(step.s))
        assert torch.equal(step.x0_hat.argmax(-1), solution)  # D(x0_hat) = v, valid and the only one
        x0_hat, residual = step.x0_hat, step.x_t - alpha_t * step.x0_hat
        valid = solution[..., None]
        margin = x0_hat.gather(-1, valid) - x0_hat
        against = residual - residual.gather(-1, valid)
        bad = (memory * against - alpha_s * margin).masked_fill(given[..., None], -math.inf).flatten(1)
        gamma, place = bad.max(1)
        center, scale = ddpm(step).center, float(ddpm(step).scale)
        for row in rows[gamma > 1e-6].tolist():
            cell, wrong = divmod(int(place[row]), 4)
            right = int(solution[row, cell])
            assert float(center[row, cell, wrong] - center[row, cell, right]) >= float(gamma[row]) - 1e-6
            assert int(center[row, cell].argmax()) != right  # so D(c) is no solution
            noise = scale * torch.randn(200, 16, 4, dtype=torch.float64, generator=rng)
            decoded = torch.where(given[row], solution[row], (center[row] + noise).argmax(-1))
            repaired = float((decoded == solution[row]).all(1).double().mean())
            bound = stats.norm.cdf(-float(gamma[row]) / (math.sqrt(2) * scale)) if scale else 0.0
            assert repaired <= bound + 5 * math.sqrt(bound / 200) + 1e-9
            assert torch.equal(tweedie(step).center[row].argmax(-1), solution[row])
            checked += 1
    assert checked > 200


@pytest.mark.parametrize("t", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("u", [7.0, 8.0, 9.0])  # |G| is near 8 for G in 64 dimensions
def test_lemma_k4_noised_boards_stay_in_tubes_around_valid_boards(mini_boards: Tensor, t: float, u: float):
    rng, draws = torch.Generator().manual_seed(3), 2000
    x0 = CODEC.encode(mini_boards[torch.randint(288, (draws,), generator=rng)])
    alpha, beta = math.cos(math.pi * t / 2), math.sin(math.pi * t / 2)
    x_t = PATH.sample(x0, torch.full((1, 1, 1), t), torch.randn(x0.shape, generator=rng))
    distance = torch.cdist(x_t.flatten(1), alpha * CODEC.encode(mini_boards).flatten(1)).amin(1)
    inside, least = float((distance <= beta * u).double().mean()), stats.chi2.cdf(u**2, 64)
    assert inside >= least - 5 * math.sqrt(least * (1 - least) / draws) - 1e-9


def test_lemma_k4_far_grids_have_tubes_of_their_own(mini_boards: Tensor):
    """Balls are disjoint from the Hamming distance on that the lemma names, and touch just below it."""
    valid = CODEC.encode(mini_boards[:1]).double().flatten()
    for wrong in range(1, 17):
        board = mini_boards[:1].clone()
        board[0, :wrong] = (board[0, :wrong] + 1) % 4
        z = CODEC.encode(board).double().flatten()
        assert float((z - valid).square().sum()) == 2 * wrong
        for t, u in ((0.1, 2.0), (0.3, 2.0), (0.2, 8.0), (0.05, 8.0)):
            alpha, beta = math.cos(math.pi * t / 2), math.sin(math.pi * t / 2)
            disjoint = float((alpha * z - alpha * valid).norm()) > 2 * beta * u
            assert disjoint == (wrong > 2 * u**2 / (alpha / beta) ** 2)


# Nearby proposals (App. K.5), in one dimension, where laws can be multiplied out on a grid

Y = np.linspace(-7, 7, 1401)
WIDTH = Y[1] - Y[0]


def kl(density: np.ndarray, mean: float, scale: float) -> float:
    log_ratio = np.log(np.maximum(density, 1e-300)) - stats.norm.logpdf(Y, mean, scale)
    return float((density * np.where(density > 1e-250, log_ratio, 0)).sum() * WIDTH)


@pytest.mark.parametrize("rho", [0.02, 0.1, 0.4])
def test_equation_42_bounds_how_far_states_are_from_those_of_one_proposal(rho: float):
    """The exact denoiser of {-1, +1}, held within rho of x0* = 1, and a first law that is a little off."""
    exact, star = ExactDenoiser(torch.tensor([-1.0, 1.0]).double().view(2, 1, 1), PATH), 1.0
    times, states = np.linspace(0.6, 0.2, 9), torch.from_numpy(Y).view(-1, 1, 1)
    alpha, beta = math.cos(math.pi * 0.3), math.sin(math.pi * 0.3)
    density = stats.norm.pdf(Y, alpha * (star - 0.05), beta)
    bound = kl(density, alpha * star, beta)
    assert bound == pytest.approx((alpha * 0.05) ** 2 / (2 * beta**2), rel=1e-3)
    for t, s in pairwise(times):
        x0_hat = exact(states, at(t)).clamp(star - rho, star + rho)
        kernel = ddpm(Transition(PATH, exact, states, x0_hat, at(t), at(s)))
        _, alpha_s, weight, _ = coefficients(t, s)
        center, scale = kernel.center.flatten().numpy(), float(kernel.scale)
        density = (stats.norm.pdf(Y[:, None], center[None], scale) * density[None]).sum(1) * WIDTH
        assert density.sum() * WIDTH == pytest.approx(1, abs=1e-4)
        bound += weight**2 * rho**2 / (2 * scale**2)
        away = kl(density, alpha_s * star, math.sqrt(1 - alpha_s**2))
        assert 0 < away <= bound
    assert away > bound / 100  # it is no empty bound


def test_equation_43_bounds_the_inputs_of_self_correction_and_is_reached():
    rng = torch.Generator().manual_seed(4)
    star = torch.rand(1, 16, 4, dtype=torch.float64, generator=rng)
    for t in (0.1, 0.5, 0.9):
        alpha, beta = PATH.alpha(at(t)), PATH.beta(at(t))
        for rho, share in ((0.3, 0.5), (0.3, 1.0), (2.0, 1.0)):
            direction = torch.randn(1, 16, 4, dtype=torch.float64, generator=rng)
            x0_bar = star + share * rho * direction / direction.norm()
            laws = [distributions.Normal(alpha * x, beta.expand_as(x)) for x in (x0_bar, star)]
            away = float(distributions.kl_divergence(*laws).sum())
            bound = float(alpha**2 * rho**2 / (2 * beta**2))
            assert away <= bound * (1 + 1e-9)
            assert away == pytest.approx(share**2 * bound)


@pytest.mark.parametrize("weight", [0.1, 1.0])
def test_proposition_k5_the_best_network_mixes_both_targets_by_their_densities(weight: float):
    """X0 is -1 or +1 alike. The truth is quadrature over both noises; beside it the best piecewise constant network on
    draws that the package's own `renoise` makes, in 24 bins of y with five standard errors of each."""
    t1, t, n = 0.75, 0.45, 200_000
    exact, rng = ExactDenoiser(torch.tensor([-1.0, 1.0]).double().view(2, 1, 1), PATH), np.random.default_rng(5)
    torch.manual_seed(5)
    x0 = torch.from_numpy(rng.choice([-1.0, 1.0], n)).view(n, 1, 1)
    y1 = PATH.sample(x0, at(t1), torch.from_numpy(rng.standard_normal((n, 1, 1))))
    step = Transition(PATH, exact, y1, exact(y1, at(t1)), at(t1), at(t))
    batch = Batch(torch.zeros(n, 1, dtype=torch.long), x0, Clues.none(x0))
    corrected = renoise(step, batch).flatten().numpy()
    standard = PATH.sample(x0, at(t), torch.from_numpy(rng.standard_normal((n, 1, 1)))).flatten().numpy()
    target = x0.flatten().numpy()

    alpha, beta = math.cos(math.pi * t / 2), math.sin(math.pi * t / 2)
    alpha1, beta1 = math.cos(math.pi * t1 / 2), math.sin(math.pi * t1 / 2)
    noise = np.linspace(-8, 8, 3201)
    mass = stats.norm.pdf(noise) * (noise[1] - noise[0])
    edges = np.linspace(-2, 2, 25)
    y = np.linspace(-2, 2, 24 * 40 + 1)[:-1] + 2 / 960  # 40 points in each bin
    joint_sc, joint_std = [], []  # of (X0, y) for X0 = -1, +1
    for side in (-1.0, 1.0):
        proposal = np.tanh(alpha1 * (alpha1 * side + beta1 * noise) / beta1**2)  # E[X0 | y1], by hand
        joint_sc.append(0.5 * stats.norm.pdf(y[:, None], alpha * proposal[None], beta) @ mass)
        joint_std.append(0.5 * stats.norm.pdf(y, alpha * side, beta))
    p_sc, p_std = sum(joint_sc), sum(joint_std)
    m_sc, m_std = ((joint[1] - joint[0]) / p for joint, p in ((joint_sc, p_sc), (joint_std, p_std)))
    best = (p_sc * m_sc + weight * p_std * m_std) / (p_sc + weight * p_std)
    both = (p_sc + weight * p_std).reshape(24, 40)
    expected = (best.reshape(24, 40) * both).sum(1) / both.sum(1)
    assert np.abs(best - m_std).max() > 0.1  # else mixing would not show

    for i in range(24):
        rows = [(values >= edges[i]) & (values < edges[i + 1]) for values in (corrected, standard)]
        weights = np.concatenate([np.ones(rows[0].sum()), np.full(rows[1].sum(), weight)])
        answers = np.concatenate([target[rows[0]], target[rows[1]]])
        fitted = (weights * answers).sum() / weights.sum()  # what least squares chooses in this bin
        error = math.sqrt((weights**2).sum()) / weights.sum()  # of answers that are -1 or 1, at most
        assert abs(fitted - expected[i]) < 5 * error
