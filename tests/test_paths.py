"""Paths: derivatives and score against autograd, every conversion of Eq. 17 there and back, and both end points."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from jaxtyping import TypeCheckError
from torch import Tensor, distributions
from torch.testing import assert_close

from letgo.errors import LetgoError
from letgo.models.denoiser import ExactDenoiser, NoiseDenoiser, VelocityDenoiser
from letgo.paths import CosinePath, GaussianPath, LinearPath, TablePath, checked_path

pytestmark = pytest.mark.fast

CONVERSIONS = ["eps", "score", "velocity", "x0_from_eps", "x0_from_score", "x0_from_velocity"]
INTERIOR = torch.linspace(0.01, 0.99, 23, dtype=torch.float64).view(-1, 1, 1)


@pytest.fixture(params=[CosinePath(), LinearPath(), CosinePath(3.0), LinearPath(3.0)])
def path(request: pytest.FixtureRequest) -> GaussianPath:
    """The Gaussian paths, one after the other."""
    return request.param


def random_states(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def at(value: float, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.full((1, 1, 1), value, dtype=dtype)


def test_the_cosine_path_is_the_papers() -> None:
    t = INTERIOR
    assert_close(CosinePath().alpha(t), torch.cos(math.pi * t / 2))
    assert_close(CosinePath().beta(t), (1 - CosinePath().alpha(t) ** 2).sqrt())  # variance-preserving (Eq. 1)


def test_v_of_diffusers_is_turned_back_on_every_path() -> None:
    """v = alpha eps - beta x0 (Salimans and Ho, 2022), also where alpha^2 + beta^2 is not 1."""
    x0, eps = random_states(23, 0), random_states(23, 1)
    for path in (CosinePath(), LinearPath(), TablePath(torch.linspace(0.99, 0.0, 40, dtype=torch.float64))):
        v = path.alpha(INTERIOR) * eps - path.beta(INTERIOR) * x0
        assert_close(path.x0_from_v(path.sample(x0, INTERIOR, eps), v, INTERIOR), x0)


def test_a_tables_training_steps_are_its_times() -> None:
    """Step i of T is t = (i + 1) / T and has the table's own alpha; t = 0 has no step and takes the first."""
    products = torch.tensor([0.9, 0.5, 0.3, 0.2, 0.0], dtype=torch.float64)
    path, steps = TablePath(products), torch.arange(5)
    times = ((steps + 1) / 5).double().view(-1, 1, 1)
    assert torch.equal(path.timestep(times), steps)
    assert path.timestep(at(0.0)).tolist() == [0]
    assert_close(path.alpha(times).flatten() ** 2, products)
    assert_close(path.alpha(at(0.0)), at(1.0))


def test_the_linear_path_is_rectified_flow() -> None:
    x0, noise = random_states(23, 0), random_states(23, 1)
    assert_close(LinearPath().sample(x0, INTERIOR, noise), (1 - INTERIOR) * x0 + INTERIOR * noise)


@pytest.mark.parametrize("name", ["alpha", "beta"])
def test_derivatives_agree_with_autograd(path: GaussianPath, name: str) -> None:
    t = torch.linspace(0, 1, 21, dtype=torch.float64).view(-1, 1, 1).requires_grad_()
    (derivative,) = torch.autograd.grad(getattr(path, name)(t).sum(), t)
    assert_close(getattr(path, f"d{name}")(t.detach()), derivative)


def test_a_table_of_the_cosine_path_is_nearly_that_path() -> None:
    steps = torch.arange(1, 4001, dtype=torch.float64) / 4000
    table, cosine = TablePath(torch.cos(math.pi / 2 * steps) ** 2), CosinePath()
    for name, near in (("alpha", 1e-6), ("beta", 1e-6), ("dalpha", 1e-3), ("dbeta", 2e-2)):  # slopes of chords
        assert_close(getattr(table, name)(INTERIOR), getattr(cosine, name)(INTERIOR), rtol=0, atol=near)
    assert (table.alpha(at(0)), table.beta(at(0))) == (1, 0)
    x0, noise = random_states(23, 0), random_states(23, 1)
    x_t = table.sample(x0, INTERIOR, noise)
    assert_close(table.x0_from_velocity(x_t, table.velocity(x_t, x0, INTERIOR), INTERIOR), x0)
    assert_close(table.x0_from_velocity(x0, noise, at(0)), x0)


@pytest.mark.parametrize(
    "numbers", [[], [0.5, 0.9], [1.0, 0.5], [0.9, -0.1], [0.9, 0.5, -0.1], [0.5, 0.5], [0.9, math.nan], [[0.9, 0.5]]]
)
def test_a_table_that_is_no_schedule_is_refused(numbers: list[float]) -> None:
    with pytest.raises(LetgoError, match="must be one row of numbers that fall"):
        TablePath(torch.tensor(numbers))


@pytest.mark.parametrize("thing", [object(), ["a", "b"], "ab", [[0.9], [0.5, 0.4]]])
def test_a_table_of_no_numbers_is_refused_in_our_words(thing: object) -> None:
    with pytest.raises(LetgoError, match="is no row of numbers; of a scheduler give"):
        TablePath(thing)


def test_what_is_no_path_is_answered_with_what_to_write() -> None:
    with pytest.raises(LetgoError, match=r"give TablePath\(scheduler.alphas_cumprod\)"):
        checked_path(SimpleNamespace(alphas_cumprod=torch.ones(3)))
    with pytest.raises(LetgoError, match=r"give TablePath\(alphas_cumprod\)"):
        checked_path(torch.ones(3))
    with pytest.raises(LetgoError, match=r"give CosinePath\(\), LinearPath\(\) or TablePath"):
        checked_path(3)


def test_a_tables_slope_is_that_of_its_chords() -> None:
    """Three steps: from 1 to .8 in a third of the time."""
    assert_close(TablePath([0.64, 0.36, 0.04]).dalpha(at(0.1)), at((0.8 - 1) * 3))


def test_a_table_may_have_one_step_or_end_in_pure_noise() -> None:
    assert_close(TablePath([0.5]).alpha(at(1.0)) ** 2, at(0.5))
    assert_close(TablePath([0.5, 0.0]).alpha(at(1.0)), at(0.0))


@pytest.mark.parametrize("end", [[1e-45, 1e-45], [0.0, 0.0], [0.0, -0.0]])
def test_a_table_may_stay_where_single_precision_has_nothing_lower(end: list[float]) -> None:
    path, x0, noise = TablePath([0.9, 0.4, *end]), random_states(23, 0), random_states(23, 1)
    assert_close(path.sample(x0, at(0.9), noise), noise)
    assert path.x0_from_velocity(noise, path.velocity(noise, x0, at(0.9)), at(0.9)).isfinite().all()


def test_a_table_keeps_its_noise_in_single_precision_where_there_is_little() -> None:
    """1 - alpha^2 of a rounded alpha is off by a thousandth there."""
    products = torch.cumprod(1 - torch.linspace(1e-4, 2e-2, 1000, dtype=torch.float64), 0)
    t = ((torch.arange(1000) + 1) / 1000).view(-1, 1, 1)
    assert_close(TablePath(products).beta(t).flatten().double(), (1 - products).sqrt(), rtol=1e-5, atol=0)


@pytest.mark.parametrize("twice", [1e-30, 1e-29])
def test_a_table_may_not_stay_where_single_precision_has_something_lower(twice: float) -> None:
    with pytest.raises(LetgoError, match="must be one row of numbers that fall"):
        TablePath([0.9, twice, twice])


def test_a_shifted_path_is_that_of_diffusers_flow_matching() -> None:
    """Its sigmas are those of the scheduler with the same shift, and so are the timesteps that networks are told."""
    diffusers = pytest.importorskip("diffusers")
    scheduler = diffusers.FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=3.0)
    t = torch.arange(1000, 0, -1, dtype=torch.float64) / 1000
    assert_close(LinearPath(3.0).beta(t), scheduler.sigmas.double(), rtol=0, atol=1e-6)
    assert_close(LinearPath(3.0).timestep(t), scheduler.timesteps.double(), rtol=0, atol=1e-3)


def test_a_shift_is_a_number_above_0() -> None:
    for shift in (0.0, -1.0, math.inf):
        with pytest.raises(LetgoError, match="shift: expected a number above 0"):
            LinearPath(shift)


def test_a_shift_multiplies_the_noise_beside_the_signal() -> None:
    for kind in (CosinePath, LinearPath):
        usual, shifted = kind(), kind(3.0)
        ratio = usual.beta(INTERIOR) / usual.alpha(INTERIOR)
        assert_close(shifted.beta(INTERIOR) / shifted.alpha(INTERIOR), 3 * ratio)
    assert_close(CosinePath(3.0).alpha(INTERIOR) ** 2 + CosinePath(3.0).beta(INTERIOR) ** 2, torch.ones_like(INTERIOR))


def test_flow_matching_networks_count_time_in_thousandths() -> None:
    assert LinearPath().timestep(at(0.25)).tolist() == [250.0]
    assert LinearPath().timestep(0.5).tolist() == [500.0]


def test_other_networks_are_told_the_nearest_of_a_thousand_training_steps() -> None:
    """Step i is at t = (i + 1) / 1000; before the first there is none."""
    times = torch.tensor([0.0, 0.0004, 0.0016, 0.25, 0.9996, 1.0]).view(-1, 1, 1)
    assert CosinePath().timestep(times).tolist() == [0, 0, 1, 249, 999, 999]
    assert CosinePath().timestep(0.5).tolist() == [499]


def test_without_noise_there_is_none_to_find_and_nothing_to_learn_from_it(path: GaussianPath) -> None:
    """At t = 0 the state is x0; a division by its beta of 0 would show in the gradient, if not in the value."""
    x0 = random_states(1).requires_grad_()
    eps = path.eps(2 * x0, x0, at(0.0))
    assert_close(eps, torch.zeros_like(eps))
    (gradient,) = torch.autograd.grad(eps.sum(), x0)
    assert bool(gradient.isfinite().all())


def test_velocity_is_the_time_derivative_of_the_state(path: GaussianPath) -> None:
    x0, noise = random_states(23, 0), random_states(23, 1)
    x_t, derivative = torch.func.jvp(lambda t: path.sample(x0, t, noise), (INTERIOR,), (torch.ones_like(INTERIOR),))
    assert_close(path.velocity(x_t, x0, INTERIOR), derivative)  # Eq. 19


@pytest.mark.parametrize("quantity", ["eps", "score", "velocity"])
def test_conversions_are_round_trips(path: GaussianPath, quantity: str) -> None:
    x_t, x0 = random_states(23, 0), random_states(23, 1)
    converted = getattr(path, quantity)(x_t, x0, INTERIOR)
    assert_close(getattr(path, f"x0_from_{quantity}")(x_t, converted, INTERIOR), x0)


def test_conversions_have_the_form_of_equation_17(path: GaussianPath) -> None:
    x_t, x0, t = random_states(23, 0), random_states(23, 1), INTERIOR
    alpha, beta, dalpha, dbeta = path.alpha(t), path.beta(t), path.dalpha(t), path.dbeta(t)
    eps = (x_t - alpha * x0) / beta
    assert_close(path.eps(x_t, x0, t), eps)
    assert_close(path.score(x_t, x0, t), -eps / beta)
    assert_close(path.velocity(x_t, x0, t), dbeta / beta * x_t + (dalpha - alpha * dbeta / beta) * x0)
    marginal = dalpha / alpha * x_t + (beta**2 * dalpha / alpha - beta * dbeta) * (-eps / beta)
    assert_close(path.velocity(x_t, x0, t), marginal)  # Eq. 20: the same velocity from the score


def test_the_true_noise_comes_back(path: GaussianPath) -> None:
    x0, noise = random_states(23, 0), random_states(23, 1)
    assert_close(path.eps(path.sample(x0, INTERIOR, noise), x0, INTERIOR), noise)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("time", [0.0, 1.0])
@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions_are_finite_at_both_ends(path: GaussianPath, name: str, time: float, dtype: torch.dtype) -> None:
    x_t, other = random_states(2, 0).to(dtype), random_states(2, 1).to(dtype)
    result = getattr(path, name)(x_t, other, at(time, dtype))
    assert result.isfinite().all()
    assert result.dtype == dtype


def test_what_the_ends_determine_is_exact(path: GaussianPath) -> None:
    x, x0, zero, one = random_states(2, 0), random_states(2, 1), at(0), at(1)
    assert_close(path.eps(x, x0, one), x)  # pure noise
    assert_close(path.x0_from_eps(x, x0, zero), x)  # clean data: the prediction no longer matters
    assert_close(path.x0_from_score(x, x0, zero), x)
    for t in (zero, one):
        x_t = x0 if t == 0 else x
        assert_close(path.x0_from_velocity(x_t, path.velocity(x_t, x0, t), t), x0)


@pytest.mark.parametrize("time", [0.05, 0.3, 0.7, 0.98])
def test_score_is_the_gradient_of_an_exact_log_density(path: GaussianPath, time: float) -> None:
    """q_t of a finite data set is a Gaussian mixture; torch.distributions writes down its density."""
    data, t = random_states(5, 0), at(time)
    x_t = path.sample(data[:3], t, random_states(3, 1)).requires_grad_()
    components = distributions.Normal(path.alpha(t) * data, path.beta(t))
    mixture = distributions.MixtureSameFamily(
        distributions.Categorical(torch.ones(5, dtype=torch.float64)), distributions.Independent(components, 2)
    )
    (gradient,) = torch.autograd.grad(mixture.log_prob(x_t).sum(), x_t)
    x_t = x_t.detach()
    exact = ExactDenoiser(data, path)
    assert_close(path.score(x_t, exact(x_t, t), t), gradient)
    assert_close(path.x0_from_score(x_t, gradient, t), exact(x_t, t))  # Tweedie's formula (Eq. 5)


@pytest.mark.parametrize("time", [0.05, 0.5, 0.98])
def test_log_weights_are_the_log_density_that_the_score_needs(path: GaussianPath, time: float) -> None:
    data, t = random_states(5, 0), at(time)
    x_t = path.sample(data[:3], t, random_states(3, 1)).requires_grad_()
    exact = ExactDenoiser(data, path)
    shared = -x_t.flatten(1).square().sum(1) / (2 * path.beta(t).flatten() ** 2)  # the term that all states share
    log_density = exact.log_weights(x_t, t).logsumexp(1) + shared
    (gradient,) = torch.autograd.grad(log_density.sum(), x_t)
    assert_close(path.score(x_t.detach(), exact(x_t.detach(), t), t), gradient)


def test_the_exact_denoiser_averages_the_posterior_and_knows_the_ends(path: GaussianPath) -> None:
    data, x = random_states(4, 0), random_states(4, 1)
    exact = ExactDenoiser(data, path)
    assert_close(exact(x, at(1)), data.mean(0).expand(4, -1, -1))  # pure noise says nothing
    assert_close(exact(data, at(0)), data)
    posterior = distributions.Normal(path.alpha(at(0.4)) * data, path.beta(at(0.4))).log_prob(x[:, None])
    weights = posterior.sum((2, 3)).softmax(1)  # Bayes, by torch's own density
    assert_close(exact(x, at(0.4)), torch.einsum("bn,ncd->bcd", weights, data))


def test_foreign_networks_enter_as_denoisers(path: GaussianPath) -> None:
    class Oracle(torch.nn.Module):
        """Predicts what a velocity or noise network should, from the clean state that it was told."""

        def __init__(self, quantity: str) -> None:
            super().__init__()
            self.convert = getattr(path, quantity)

        def forward(self, x_t: Tensor, t: Tensor, *context: Tensor) -> Tensor:
            seen.append(context)
            return self.convert(x_t, x0, t)

    seen: list[tuple[Tensor, ...]] = []
    x_t, x0 = random_states(23, 0), random_states(23, 1)
    assert_close(VelocityDenoiser(Oracle("velocity"), path)(x_t, INTERIOR), x0)
    assert_close(NoiseDenoiser(Oracle("eps"), path)(x_t, INTERIOR), x0)
    assert seen == [(), ()]  # a network without a context need not take one
    context = torch.eye(3)
    assert_close(VelocityDenoiser(Oracle("velocity"), path)(x_t, INTERIOR, context), x0)
    assert_close(NoiseDenoiser(Oracle("eps"), path)(x_t, INTERIOR, context), x0)
    assert [given[0] is context for given in seen[2:]] == [True, True]


@pytest.mark.parametrize("wrong", [(1, 3, 4), (2, 3, 1), (3, 4), (2, 3, 5)])
def test_wrong_shapes_are_refused_even_where_torch_would_broadcast(path: GaussianPath, wrong: tuple[int, ...]) -> None:
    """This is also the proof that the shape checker is on while testing."""
    x0 = torch.zeros(2, 3, 4)
    with pytest.raises(TypeCheckError):
        path.sample(x0, torch.ones(2, 1, 1), torch.zeros(wrong))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_data_and_noise_end_points_are_exact(path: GaussianPath, dtype: torch.dtype) -> None:
    assert path.alpha(at(0, dtype)) == 1
    assert path.beta(at(0, dtype)) == 0
    assert path.alpha(at(1, dtype)) == 0
    assert path.beta(at(1, dtype)) == 1
