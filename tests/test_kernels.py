"""Every update rule against its closed form, Bayes' rule by quadrature, exact ODE solutions and Gaussian moments."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from itertools import pairwise

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, distributions
from torch.testing import assert_close

from letgo.codecs import OneHot
from letgo.errors import LetgoError
from letgo.kernels import (
    EulerMaruyama,
    Gaussian,
    Kernel,
    Redrawn,
    Rule,
    Tempered,
    Transition,
    ddim,
    ddpm,
    euler,
    generalized_ddim,
    heun,
    resample,
    tweedie,
)
from letgo.paths import CosinePath, GaussianPath, LinearPath
from letgo.rng import DRAW, KERNEL
from letgo.samplers import Sampler
from letgo.sampling import uniform_grid

pytestmark = pytest.mark.fast

EM, EM_DECAY = EulerMaruyama(0.3), EulerMaruyama(7.0, 0.7)
PLAIN = {"ddpm": ddpm, "ddim": ddim, "tweedie": tweedie, "resample": resample, "euler": euler, "heun": heun}
ALL_RULES: dict[str, Rule] = {**PLAIN, "em": EM, "em-decay": EM_DECAY}
STEPS = [(1.0, 0.9), (0.9, 0.85), (0.5, 0.1), (0.02, 0.01), (0.02, 0.0), (1.0, 0.0)]


def at(value: float) -> Tensor:
    return torch.full((1, 1, 1), value, dtype=torch.float64)


def gaussian_denoiser(path: GaussianPath, mean: float, spread: float) -> Callable[[Tensor, Tensor], Tensor]:
    """E[x0 | x_t] in closed form for data N(mean, spread^2 I)."""

    def denoise(x_t: Tensor, t: Tensor) -> Tensor:
        alpha, beta = path.alpha(t), path.beta(t)
        gain = alpha * spread**2 / (alpha**2 * spread**2 + beta**2)
        return mean + gain * (x_t - alpha * mean)

    return denoise


def some_step(path: GaussianPath, t: float, s: float) -> Transition:
    """A step whose state and proposal have nothing to do with each other: formulas must hold for any pair."""
    rng = torch.Generator().manual_seed(0)
    x_t, x0_hat = torch.randn(2, 2, 3, 4, dtype=torch.float64, generator=rng)
    denoise = gaussian_denoiser(path, 0.3, 0.5)
    return Transition(path, denoise, x_t, x0_hat, at(t), at(s))


def center(kernel: Gaussian | Redrawn, step: Transition) -> Tensor:
    """Where a kernel's law is centred; that of drawn symbols, for one draw."""
    noise = {DRAW: step.x_t.flip(-1), KERNEL: torch.zeros_like(step.x_t)}
    return kernel.center if isinstance(kernel, Gaussian) else kernel.sample(noise.__getitem__)


def coefficients(step: Transition) -> tuple[float, float, float, float]:
    """alpha(t), beta(t), alpha(s), beta(s), written out again here."""
    t, s = float(step.t), float(step.s)
    if isinstance(step.path, LinearPath):
        return 1 - t, t, 1 - s, s
    return math.cos(math.pi * t / 2), math.sin(math.pi * t / 2), math.cos(math.pi * s / 2), math.sin(math.pi * s / 2)


# Closed forms


@pytest.mark.parametrize(("t", "s"), STEPS)
def test_ddpm_is_the_posterior_of_equations_14_to_16(t: float, s: float) -> None:
    step = some_step(CosinePath(), t, s)
    alpha_t, _, alpha_s, _ = coefficients(step)
    delta = alpha_t**2 / alpha_s**2
    shrinking = (1 - delta) / (1 - alpha_t**2)
    memory = math.sqrt(delta) * (1 - alpha_s**2) / (1 - alpha_t**2)
    kernel = ddpm(step)
    assert_close(kernel.center, alpha_s * step.x0_hat * shrinking + memory * step.x_t)  # Eq. 14
    assert_close(kernel.center, alpha_s * step.x0_hat + memory * (step.x_t - alpha_t * step.x0_hat))  # Eq. 16
    assert_close(kernel.scale**2, at((1 - alpha_s**2) * shrinking))  # Eq. 15


@pytest.mark.parametrize(("t", "s"), [(0.9, 0.85), (0.5, 0.1), (0.02, 0.01), (0.999, 0.5)])
def test_ddpm_is_bayes_rule_on_either_path(path: GaussianPath, t: float, s: float) -> None:
    """q(x_s | x_t, x0) ~ q(x_s | x0) q(x_t | x_s), multiplied out on a grid and integrated numerically."""
    alpha_t, beta_t, alpha_s, beta_s = coefficients(some_step(path, t, s))
    x0, x_t = 0.8, alpha_t * 0.8 + 1.3 * beta_t
    keep = alpha_t / alpha_s  # the one forward step from s to t that has the right marginal at t
    added = math.sqrt(beta_t**2 - keep**2 * beta_s**2)
    x_s = np.linspace(-12 * beta_s, 12 * beta_s, 40001) + alpha_s * x0
    log_density = stats.norm.logpdf(x_s, alpha_s * x0, beta_s) + stats.norm.logpdf(x_t, keep * x_s, added)
    weights = np.exp(log_density - log_density.max())
    weights /= weights.sum()
    mean = (weights * x_s).sum()
    kernel = ddpm(Transition(path, lambda x, _: x, at(x_t), at(x0), at(t), at(s)))
    assert float(kernel.center) == pytest.approx(mean, rel=1e-9)
    assert float(kernel.scale**2) == pytest.approx((weights * (x_s - mean) ** 2).sum(), rel=1e-9)


@pytest.mark.parametrize(("t", "s"), STEPS)
def test_ddim_carries_the_noise_estimate_along(path: GaussianPath, t: float, s: float) -> None:
    step = some_step(path, t, s)
    alpha_t, beta_t, alpha_s, beta_s = coefficients(step)
    eps = (step.x_t - alpha_t * step.x0_hat) / beta_t
    assert_close(ddim(step).center, alpha_s * step.x0_hat + beta_s * eps)
    assert_close(ddim(step).scale, at(0))


@pytest.mark.parametrize(("t", "s"), STEPS)
def test_tweedie_renoises_the_proposal_and_forgets_the_state(path: GaussianPath, t: float, s: float) -> None:
    step = some_step(path, t, s)
    _, _, alpha_s, beta_s = coefficients(step)
    kernel = tweedie(step)
    assert_close(kernel.center, alpha_s * step.x0_hat)  # Eq. 8
    assert_close(kernel.scale, at(beta_s))
    elsewhere = tweedie(Transition(path, step.denoise, step.x_t + 5, step.x0_hat, step.t, step.s))
    assert torch.equal(kernel.center, elsewhere.center)


@pytest.mark.parametrize(("t", "s"), STEPS)
def test_ddpm_is_tweedie_plus_state_memory(t: float, s: float) -> None:
    """Proposition K.2."""
    step = some_step(CosinePath(), t, s)
    alpha_t, _, alpha_s, beta_s = coefficients(step)
    delta = (alpha_t / alpha_s) ** 2
    memory = math.sqrt(delta) * (1 - alpha_s**2) / (1 - alpha_t**2)
    assert_close(ddpm(step).center - tweedie(step).center, memory * (step.x_t - alpha_t * step.x0_hat))
    assert_close(tweedie(step).scale, at(beta_s))
    assert_close(ddpm(step).scale ** 2, at((1 - delta) * (1 - alpha_s**2) / (1 - alpha_t**2)))


@pytest.mark.parametrize(("t", "s"), STEPS)
def test_generalized_ddim_spans_ddim_ddpm_and_tweedie(path: GaussianPath, t: float, s: float) -> None:
    """Eq. 25 and its three named points."""
    step = some_step(path, t, s)
    alpha_t, beta_t, alpha_s, beta_s = coefficients(step)
    eps = (step.x_t - alpha_t * step.x0_hat) / beta_t
    for kappa in (0.0, 0.3 * beta_s, beta_s):
        kernel = generalized_ddim(step, at(kappa))
        assert_close(kernel.center, alpha_s * step.x0_hat + math.sqrt(beta_s**2 - kappa**2) * eps)
        assert_close(kernel.scale, at(kappa))
    for rule, kappa in ((ddim, at(0)), (ddpm, ddpm(step).scale), (tweedie, at(beta_s))):
        assert_close(rule(step).center, generalized_ddim(step, kappa).center)
        assert_close(rule(step).scale, kappa)


def test_a_kappa_that_rounding_puts_above_beta_leaves_no_anchor(path: GaussianPath) -> None:
    step = some_step(path, 0.5, 0.4)
    _, _, alpha_s, beta_s = coefficients(step)
    assert_close(generalized_ddim(step, at(beta_s * (1 + 1e-12))).center, alpha_s * step.x0_hat)


class Standing(GaussianPath):
    """A path on which nothing happens, but that rounding lets the noise grow by a hair towards the data."""

    def alpha(self, t: Tensor) -> Tensor:
        return torch.full_like(t, 0.6)

    def beta(self, t: Tensor) -> Tensor:
        return 0.8 + 1e-12 * (0.5 - t)

    def dalpha(self, t: Tensor) -> Tensor:
        return torch.zeros_like(t)

    def dbeta(self, t: Tensor) -> Tensor:
        return torch.full_like(t, -1e-12)


def test_where_a_path_stands_still_ddpm_stays_and_adds_no_noise() -> None:
    """delta = 1 and beta(s) = beta(t), so Eq. 15 is 0 and Eq. 14 is x_t; a variance below 0 would be no number."""
    step = some_step(Standing(), 0.5, 0.4)
    assert_close(ddpm(step).center, step.x_t)
    assert_close(ddpm(step).scale, at(0))


@pytest.mark.parametrize(("t", "s"), STEPS)
def test_euler_follows_the_velocity(path: GaussianPath, t: float, s: float) -> None:
    step = some_step(path, t, s)
    assert_close(euler(step).center, step.x_t - (t - s) * velocity(step, step.x_t, step.x0_hat, t))  # Eq. 26
    assert_close(euler(step).scale, at(0))


def velocity(step: Transition, x: Tensor, x0_hat: Tensor, t: float) -> Tensor:
    """u of Eq. 17, with the derivatives of both paths written out."""
    slope = math.pi / 2
    linear = isinstance(step.path, LinearPath)
    alpha, beta = (1 - t, t) if linear else (math.cos(slope * t), math.sin(slope * t))
    dalpha, dbeta = (-1, 1) if linear else (-slope * beta, slope * alpha)
    return dbeta / beta * x + (dalpha - alpha * dbeta / beta) * x0_hat


@pytest.mark.parametrize(("t", "s"), STEPS)
def test_on_the_linear_path_ddim_is_euler(t: float, s: float) -> None:
    """App. B.1."""
    step = some_step(LinearPath(), t, s)
    assert_close(ddim(step).center, euler(step).center)


@pytest.mark.parametrize(("t", "s"), STEPS)
def test_heun_averages_the_velocities_at_both_ends(path: GaussianPath, t: float, s: float) -> None:
    step = some_step(path, t, s)
    first = velocity(step, step.x_t, step.x0_hat, t)
    predicted = step.x_t - (t - s) * first
    second = velocity(step, predicted, step.denoise(predicted, step.s), s) if s > 0 else first
    assert_close(heun(step).center, step.x_t - (t - s) * (first + second) / 2)
    assert_close(heun(step).scale, at(0))


@pytest.mark.parametrize("sigma", [0.1, 0.35, 3.0])
@pytest.mark.parametrize(("t", "s"), STEPS)
def test_euler_maruyama_is_equation_28(path: GaussianPath, t: float, s: float, sigma: float) -> None:
    step = some_step(path, t, s)
    alpha_t, beta_t, _, _ = coefficients(step)
    score = (alpha_t * step.x0_hat - step.x_t) / beta_t**2
    drift = -velocity(step, step.x_t, step.x0_hat, t) + sigma**2 / 2 * score
    kernel = EulerMaruyama(sigma)(step)
    assert_close(kernel.center, step.x_t + (t - s) * drift)
    assert_close(kernel.scale, at(sigma * math.sqrt(t - s)))


@pytest.mark.parametrize("tau_start", [None, 0.7])
@pytest.mark.parametrize(("t", "s"), STEPS)
def test_euler_maruyama_without_noise_is_euler(path: GaussianPath, t: float, s: float, tau_start: float | None) -> None:
    step = some_step(path, t, s)
    kernel = EulerMaruyama(0.0, tau_start)(step)
    assert torch.equal(kernel.center, euler(step).center)
    assert torch.equal(kernel.scale, at(0))


def test_em_decay_keeps_sigma_until_tau_start_and_then_lowers_it_linearly_to_zero() -> None:
    t = torch.tensor([1.0, 0.6, 0.3, 0.225, 0.15, 0.03, 0.0]).view(-1, 1, 1)
    expected = torch.tensor([7.0, 7.0, 7.0, 5.25, 3.5, 0.7, 0.0]).view(-1, 1, 1)
    assert_close(EM_DECAY.sigma_at(t), expected)  # progress .7 is t = .3
    assert_close(EulerMaruyama(2.0, 0.0).sigma_at(t), 2 * t)  # decays from the start
    for never in (None, 1.0):
        assert_close(EulerMaruyama(7.0, never).sigma_at(t), torch.full_like(t, 7.0))


@pytest.mark.parametrize(("t", "s"), [(0.5, 0.4), (0.2, 0.1), (0.1, 0.0)])
def test_em_decay_is_em_with_the_sigma_of_its_time(path: GaussianPath, t: float, s: float) -> None:
    step = some_step(path, t, s)
    same = EulerMaruyama(7.0 * min(1.0, t / 0.3))(step)
    assert_close(EM_DECAY(step).center, same.center)
    assert_close(EM_DECAY(step).scale, same.scale)
    late = EulerMaruyama(7.0, 0.7, sigma_ahead=1.0)(step)
    end = EulerMaruyama(7.0 * min(1.0, s / 0.3))(step)  # at s = 0 no noise is left
    assert_close(late.center, end.center)
    assert_close(late.scale, end.scale)
    assert torch.equal(EulerMaruyama(7.0, 0.7, sigma_ahead=9.0)(some_step(path, 0.1, 0.0)).scale, at(0))  # never below
    assert_close(EulerMaruyama(7.0, 0.7, sigma_ahead=1.0).sigma_at(at(t)), EM_DECAY.sigma_at(at(t)))  # of no step


@pytest.mark.parametrize("rule", ALL_RULES.values(), ids=ALL_RULES)
@pytest.mark.parametrize("variance", [0.0, 0.25, 2.0])
def test_tempering_scales_the_variance_and_nothing_else(path: GaussianPath, rule: Rule, variance: float) -> None:
    step = some_step(path, 0.5, 0.4)
    plain, tempered = rule(step), Tempered(rule, variance)(step)
    assert isinstance(plain, Kernel)
    assert torch.equal(center(tempered, step), center(plain, step))
    assert_close(tempered.scale**2, variance * plain.scale**2)
    noise = {KERNEL: step.x_t, DRAW: step.x_t.flip(-1)}
    drawn = center(plain, step) + variance**0.5 * plain.scale * noise[KERNEL]
    assert_close(tempered.sample(noise.__getitem__), drawn)


def test_a_step_a_rule_and_a_kernel_cannot_be_changed_under_ones_hands() -> None:
    """They are handed from the loop to rules of one's own, and a rule is kept for all steps."""
    step = some_step(CosinePath(), 0.5, 0.4)
    for value, name in ((step, "t"), (tweedie(step), "scale"), (resample(step), "scale"), (EM, "sigma")):
        with pytest.raises(FrozenInstanceError):
            setattr(value, name, 0.0)
    with pytest.raises(FrozenInstanceError):
        Tempered(ddpm, 2.0).variance = 1.0  # pyright: ignore


def test_a_kernel_samples_its_normal_law() -> None:
    noise = some_step(CosinePath(), 0.5, 0.4).x_t
    assert_close(Gaussian(torch.ones_like(noise), at(0.5)).sample({KERNEL: noise}.__getitem__), 1 + 0.5 * noise)


@pytest.mark.parametrize("rule", [ddpm, ddim, tweedie, resample])
def test_the_last_step_needs_no_special_case(path: GaussianPath, rule: Rule) -> None:
    """beta(0) = 0 silences the noise, and the answer is the proposal."""
    step = some_step(path, 0.005, 0.0)
    assert_close(center(rule(step), step), step.x0_hat)
    assert_close(rule(step).scale, at(0))


def test_the_first_ddpm_step_is_tweedie(path: GaussianPath) -> None:
    """Pure noise leaves nothing to remember: alpha(1) = 0."""
    step = some_step(path, 1.0, 0.9)
    assert_close(ddpm(step).center, tweedie(step).center)
    assert_close(ddpm(step).scale, tweedie(step).scale)


@pytest.mark.parametrize("rule", ALL_RULES.values(), ids=ALL_RULES)
def test_each_board_of_a_batch_may_have_its_own_time(path: GaussianPath, rule: Rule) -> None:
    """Training steps boards from different times at once (Algorithm 2)."""
    one = some_step(path, 0.5, 0.4)
    t, s = torch.tensor([[0.5], [0.8]], dtype=torch.float64)[..., None], torch.tensor([0.4, 0.1]).double().view(2, 1, 1)
    both = Transition(path, one.denoise, one.x_t, one.x0_hat, t, s)
    together = rule(both)
    for i in (0, 1):
        step = Transition(path, one.denoise, one.x_t[[i]], one.x0_hat[[i]], t[[i]], s[[i]])
        alone = rule(step)
        assert_close(center(together, both)[[i]], center(alone, step))
        assert_close(together.scale.expand(2, 1, 1)[[i]], alone.scale)


# Gaussian data: the exact solution of the probability-flow ODE, and exact moments


def integrate(rule: Rule, path: GaussianPath, x: Tensor, steps: int, mean: float, spread: float) -> Tensor:
    denoise = gaussian_denoiser(path, mean, spread)
    for t, s in pairwise(torch.linspace(1, 0, steps + 1, dtype=torch.float64).view(-1, 1, 1, 1)):
        x = rule(Transition(path, denoise, x, denoise(x, t), t, s)).center
    return x


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "ratio"), [(euler, 2), (heun, 4)])
@pytest.mark.parametrize("spread", [0.3, 1.7])
def test_doubling_the_steps_divides_the_error_by_the_order(
    path: GaussianPath, rule: Rule, ratio: int, spread: float
) -> None:
    """The flow of N(mean, spread^2) carries x_1 to mean + spread x_1 exactly, because alpha(1) = 0."""
    x_1 = torch.tensor([-1.5, 0.2, 1.0], dtype=torch.float64).view(3, 1, 1)
    exact = 0.4 + spread * x_1
    errors = [(integrate(rule, path, x_1, steps, 0.4, spread) - exact).abs().max() for steps in (200, 400)]
    assert float(errors[0] / errors[1]) == pytest.approx(ratio, rel=0.05)
    assert errors[1] < (1e-2 if rule is euler else 2e-4)


def variance_after(rule: Rule, path: GaussianPath, steps: int, spread: float) -> float:
    """Variance of x_0 when x_1 ~ N(0, 1): exact, since every rule is affine in x_t for Gaussian data.

    All steps go through the rule as one batch, board i taking step i, once from 0 and once from 1.
    """
    denoise = gaussian_denoiser(path, 0.0, spread)
    grid = torch.linspace(1, 0, steps + 1, dtype=torch.float64).view(-1, 1, 1)
    t, s = grid[:-1], grid[1:]
    zero, one = (rule(Transition(path, denoise, x, denoise(x, t), t, s)) for x in (0 * t, 0 * t + 1))
    variance = 1.0
    for slope, scale in zip((one.center - zero.center).flatten(), one.scale.expand_as(t).flatten(), strict=True):
        variance = float(slope**2 * variance + scale**2)
    return variance


@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0])
def test_tweedie_halves_the_variance_of_a_gaussian(path: GaussianPath, spread: float) -> None:
    """App. B.1 allows it. In the limit the variance is in balance, v = beta^2 / (1 - alpha^2 gain^2), and that tends
    to spread^2 / 2 at t = 0. With finitely many steps it is the recursion below, in plain numbers."""
    steps, variance = 200, 1.0
    grid = np.linspace(1, 0, steps + 1)
    alpha = 1 - grid if isinstance(path, LinearPath) else np.cos(np.pi / 2 * grid)
    beta = grid if isinstance(path, LinearPath) else np.sin(np.pi / 2 * grid)
    gain = alpha * spread**2 / (alpha**2 * spread**2 + beta**2)
    for i in range(steps):
        variance = alpha[i + 1] ** 2 * gain[i] ** 2 * variance + beta[i + 1] ** 2
    assert variance_after(tweedie, path, steps, spread) == pytest.approx(variance, rel=1e-9)
    assert variance_after(tweedie, path, 4000, spread) == pytest.approx(spread**2 / 2, rel=0.02)
    assert variance_after(tweedie, path, steps, spread) < 0.7 * spread**2


@pytest.mark.parametrize(
    "rule", [ddpm, ddim, heun, EulerMaruyama(0.3), EulerMaruyama(1.0, 0.5)], ids=["ddpm", "ddim", "heun", "em", "decay"]
)
@pytest.mark.parametrize("spread", [0.5, 1.0])
def test_the_other_rules_keep_the_variance_of_a_gaussian(path: GaussianPath, rule: Rule, spread: float) -> None:
    """Eq. 6: sigma changes the noise, not the marginals. The error of a first-order rule falls like 1 / steps."""
    coarse, fine = (abs(variance_after(rule, path, steps, spread) / spread**2 - 1) for steps in (500, 2000))
    assert fine < 0.01
    assert fine < coarse / 3.5 or fine < 1e-12


@pytest.mark.parametrize(("t", "s"), [step for step in STEPS if step[1] > 0])
def test_ddpm_with_a_fixed_proposal_keeps_its_marginal(path: GaussianPath, t: float, s: float) -> None:
    """Proposition 3.1, exactly: N(alpha(t) x0_bar, beta(t)^2) goes to N(alpha(s) x0_bar, beta(s)^2)."""
    x0_bar = torch.full((2, 1, 1), 0.7, dtype=torch.float64)
    alpha_t, beta_t, alpha_s, beta_s = coefficients(some_step(path, t, s))
    x_t = alpha_t * x0_bar + beta_t * torch.tensor([0.0, 1.0]).double().view(2, 1, 1)  # the mean, one sigma away
    kernel = ddpm(Transition(path, lambda x, _: x, x_t, x0_bar, at(t), at(s)))
    mean, sigma = kernel.center[0], kernel.center[1] - kernel.center[0]
    variance = sigma**2 + kernel.scale[0] ** 2
    assert_close(mean, alpha_s * x0_bar[0])
    assert_close(variance, torch.full_like(mean, beta_s**2))
    # Its consequence: standard training inputs are this far from the states that sampling visits.
    standard = distributions.Normal(alpha_s * -0.2, torch.tensor(beta_s).double())
    visited = distributions.Normal(mean, variance.sqrt())
    expected = alpha_s**2 / (2 * beta_s**2) * (0.7 - -0.2) ** 2
    assert float(distributions.kl_divergence(standard, visited)) == pytest.approx(expected, rel=1e-6)


# Decoded stability (App. K)


@pytest.mark.parametrize(("cells", "symbols", "nu"), [(1, 2, 0.5), (16, 4, 0.25), (60, 9, 0.2)])
def test_the_argmax_stability_bound_holds(cells: int, symbols: int, nu: float) -> None:
    """Lemma K.1. Fixed seed; for a new one the odds of a false alarm are at most 3e-7 (five sigma)."""
    draws, gap, codec = 4000, 0.8, OneHot(symbols)
    boards = torch.arange(cells).expand(draws, cells) % symbols
    kernel = Gaussian(gap * codec.encode(boards), torch.full((1, 1, 1), nu))
    noise = torch.randn(kernel.center.shape, generator=torch.Generator().manual_seed(0))
    changed = (codec.decode(kernel.sample({KERNEL: noise}.__getitem__)) != boards).any(1).double()
    bound = cells * (symbols - 1) * stats.norm.cdf(-gap / (math.sqrt(2) * nu))
    slack = 5 * math.sqrt(bound / draws)
    assert changed.mean() <= bound + slack
    if cells * (symbols - 1) == 1:  # one competitor: the bound is the probability itself
        assert abs(changed.mean() - bound) < slack


def test_a_bad_state_outvotes_a_valid_proposal_in_ddpm_and_not_in_tweedie() -> None:
    """Proposition K.3. Fixed seed; for a new one the odds of a false alarm are below 3e-7."""
    path, t, s = CosinePath(), at(0.30), at(0.29)
    x0_hat = torch.tensor([[[0.6, 0.4]]]).double()  # proposes symbol 0
    x_t = torch.tensor([[[-0.5, 1.4]]]).double()  # the state says symbol 1
    step = Transition(path, lambda x, _: x, x_t, x0_hat, t, s)
    alpha_t, _, alpha_s, _ = coefficients(step)
    memory = (alpha_t / alpha_s) * (1 - alpha_s**2) / (1 - alpha_t**2)
    residual = x_t - alpha_t * x0_hat
    gamma = float(memory * (residual[..., 1] - residual[..., 0]) - alpha_s * (x0_hat[..., 0] - x0_hat[..., 1]))
    assert gamma > 0
    center = ddpm(step).center
    assert float(center[..., 1] - center[..., 0]) == pytest.approx(gamma)
    assert tweedie(step).center.argmax() == 0
    noise = torch.randn(20000, 1, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    repaired = (center + ddpm(step).scale * noise).argmax(-1).eq(0).double().mean()
    bound = stats.norm.cdf(-gamma / (math.sqrt(2) * float(ddpm(step).scale)))
    assert repaired <= bound + 5 * math.sqrt(bound / 20000)


# Drawn symbols


def test_resample_draws_symbols_by_their_probabilities(path: GaussianPath) -> None:
    rng, chances = torch.Generator().manual_seed(0), torch.tensor([0.5, 0.3, 0.2, 0.0])
    x0_hat = chances.expand(40_000, 1, 4)
    noise = torch.randn(x0_hat.shape, generator=rng)
    kernel = resample(Transition(path, lambda x, _: x, x0_hat, x0_hat, at(0.6), at(0.5)))
    x_s = kernel.sample({DRAW: noise, KERNEL: torch.zeros_like(noise)}.__getitem__)
    drawn = x_s[:, 0] / path.alpha(at(0.5)).item()
    assert_close(drawn.sum(1), torch.ones(40_000).to(drawn))
    assert set(drawn.round(decimals=5).unique().tolist()) == {0.0, 1.0}
    assert stats.chisquare(drawn.sum(0)[:3], 40_000 * chances[:3]).pvalue > 1e-4
    assert_close(kernel.scale, tweedie(Transition(path, lambda x, _: x, x0_hat, x0_hat, at(0.6), at(0.5))).scale)


def test_resample_leaves_a_millionth_to_every_symbol_even_to_one_below_zero(path: GaussianPath) -> None:
    """The larger of ln p + gumbel wins. Of two symbols with the chances 0 and 1, the second with the median's gumbel
    -ln ln 2, the first wins from -ln Phi(z) = 1e-6 ln 2 on: z = 4.83. Networks also answer a little below 0."""
    for nothing in (0.0, -0.1):
        x0_hat = torch.tensor([nothing, 1.0], dtype=torch.float64).expand(2, 1, 2)
        step = Transition(path, lambda x, _: x, x0_hat, x0_hat, at(0.6), at(0.5))
        least = stats.norm.isf(-math.expm1(-1e-6 * math.log(2)))
        assert least == pytest.approx(4.83, abs=0.01)
        normal = torch.tensor([[[least - 0.01, 0.0]], [[least + 0.01, 0.0]]], dtype=torch.float64)
        drawn = resample(step).sample({DRAW: normal, KERNEL: torch.zeros_like(normal)}.__getitem__)
        assert drawn.argmax(-1).flatten().tolist() == [1, 0]


@pytest.mark.parametrize("steps", [5, 20])
def test_resample_is_exact_for_one_cell_and_the_mean_is_not(path: GaussianPath, steps: int) -> None:
    """With the true posterior of one cell, its symbols come out with their prior chances, in however few steps."""
    count, chances, codes = 20_000, torch.tensor([0.7, 0.2, 0.1]).double(), torch.eye(3).double()

    def posterior(x_t: Tensor, t: Tensor) -> Tensor:
        alpha, beta = path.alpha(t), path.beta(t)
        return (chances.log() - (x_t - alpha * codes).square().sum(-1, keepdim=True).mT / (2 * beta**2)).softmax(-1)

    def mean(rule: Rule) -> Tensor:
        rng = torch.Generator().manual_seed(1)
        x_t = torch.randn(count, 1, 3, dtype=torch.float64, generator=rng)
        for t, s in pairwise(torch.linspace(1, 0, steps + 1).tolist()):
            noise = torch.randn(4, count, 1, 3, dtype=torch.float64, generator=rng)  # for every purpose
            step = Transition(path, posterior, x_t, posterior(x_t, at(t)), at(t), at(s))
            x_t = rule(step).sample(noise.__getitem__)
        return x_t.mean((0, 1))  # of the last proposals: the posterior given states of training's own law

    spread = (chances * (1 - chances) / count).sqrt()
    assert ((mean(resample) - chances).abs() <= 5 * spread).all()
    assert ((mean(tweedie) - chances).abs() > 5 * spread).any()


# Rules by name


def test_a_sampler_knows_its_times_calls_and_settings() -> None:
    heun_twice = Sampler("heun", 5, variance=0.5, ahead=2.0, soft_until=0.3)
    assert torch.equal(heun_twice.times(), uniform_grid(5))
    assert (heun_twice.calls, Sampler("ddpm", 5).calls) == (10, 5)
    assert heun_twice.settings == {"variance": 0.5, "ahead": 2.0, "soft_until": 0.3}
    assert heun_twice.lead == 2 / 5
    late = {"sigma": 1.0, "tau_start": 0.7}
    assert [Sampler("em-decay", **late, sigma_ahead=ahead).settings for ahead in (0.0, 0.5)] == [
        late | {"sigma_ahead": ahead} for ahead in (0.0, 0.5)
    ]
    assert Sampler("em-decay", sigma=7.0, tau_start=0.0).settings == {"sigma": 7.0, "tau_start": 0.0}
    assert Sampler().settings == {}
    band = Sampler("resample", 5, t_max=0.5, t_min=0.2)
    assert band.settings == {"t_max": 0.5, "t_min": 0.2}
    assert_close(band.times(), torch.tensor([1.0, 0.5, 0.4, 0.3, 0.2, 0.0]))


@pytest.mark.parametrize(
    ("name", "settings", "says"),
    [
        ("dpm", {}, "unknown rule 'dpm'; did you mean ddpm\\? choose one of ddpm"),
        ("em", {"sigma": 0.3, "tau_start": 0.5}, "rule 'em' takes no tau_start; only em-decay take"),
        ("em-decay", {"tau_start": 0.7}, "needs --sigma and --tau-start"),
        ("em", {"sigma": -1.0}, "sigma must be >= 0"),
        ("em", {"sigma": math.inf}, "sigma must be >= 0"),
        ("em-decay", {"sigma": 1.0, "tau_start": -0.5}, r"tau_start in \[0, 1\]"),
        ("em-decay", {"sigma": 1.0, "tau_start": 1.5}, r"tau_start in \[0, 1\]"),
        ("em-decay", {"sigma": 1.0, "tau_start": 0.5, "sigma_ahead": -0.5}, "sigma_ahead must be >= 0"),
        ("em-decay", {"sigma": 1.0, "tau_start": 0.5, "sigma_ahead": math.inf}, "sigma_ahead must be >= 0"),
        ("ddpm", {"variance": -1.0}, "variance must be >= 0"),
        ("ddpm", {"variance": math.nan}, "variance must be >= 0"),
        ("ddpm", {"ahead": -1.0}, "ahead must be >= 0"),
        ("ddpm", {"ahead": math.nan}, "ahead must be >= 0"),
        ("confidence", {"ahead": 1.0}, "rule 'confidence' takes no ahead"),
        ("ddpm", {"soft_until": math.nan}, "soft_until is not a number"),
        ("ddpm", {"t_max": 0.5}, "rule 'ddpm' takes no t_max and t_min; only tweedie, resample let go of the state"),
        ("tweedie", {"t_max": 0.5, "ahead": 1.0}, "ahead counts steps of the equidistant grid"),
        (
            "tweedie",
            {"t_max": 0.2, "t_min": 0.2},
            "t_max must be more than t_min, both from 0 to 1; got t_max 0.2 and t_min 0.2",
        ),
        ("resample", {"t_max": math.nan}, "t_max must be more than t_min"),
        ("resample", {"t_min": -0.5}, "t_max must be more than t_min"),
        ("resample", {"t_max": 1.5}, "t_max must be more than t_min"),
    ],
)
def test_wrong_settings_are_refused_in_one_line(name: str, settings: dict[str, float], says: str) -> None:
    with pytest.raises(LetgoError, match=says) as caught:
        Sampler(name, **settings).build()
    assert "\n" not in str(caught.value)
