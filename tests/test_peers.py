"""The same noise through our kernels and through diffusers' schedulers: the states must agree, step by step."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import diffusers
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from letgo.kernels import Rule, Transition, ddim, ddpm, euler, generalized_ddim, tweedie
from letgo.models.denoiser import ExactDenoiser, NoiseDenoiser
from letgo.paths import CosinePath, GaussianPath, LinearPath, TablePath
from letgo.rng import KERNEL
from letgo.sampling import uniform_grid

STEPS, SHAPE = 50, (3, 4, 5)
TOLERANCE = {"rtol": 0, "atol": 1e-5}
PeerStep = Callable[[Tensor, int, Tensor], Tensor]


def cosine_betas() -> list[float]:
    """DDPM's beta_i = 1 - delta(t_i), so that the peer's cumulative products are our alpha(t_i)^2 on our grid."""
    alpha = CosinePath().alpha(torch.linspace(0, 1, STEPS + 1, dtype=torch.float64).view(-1, 1, 1)).flatten()
    return (1 - (alpha[1:] / alpha[:-1]) ** 2).tolist()


def make_scheduler(name: str, **settings: object):
    scheduler = getattr(diffusers, name)(
        num_train_timesteps=STEPS, trained_betas=cosine_betas(), prediction_type="sample", clip_sample=False, **settings
    )
    scheduler.set_timesteps(STEPS)
    assert scheduler.timesteps.tolist() == list(range(STEPS - 1, -1, -1))
    return scheduler


def exact_denoiser(path: GaussianPath) -> ExactDenoiser:
    """Close enough to one another that the denoiser does not amplify rounding, and still far from linear."""
    return ExactDenoiser(torch.randn(6, *SHAPE[1:], generator=torch.Generator().manual_seed(1)) / 2, path)


def run_ours(rule: Rule, path: GaussianPath, noises: list[Tensor]) -> list[Tensor]:
    """States from pure noise to data."""
    denoise, x = exact_denoiser(path), torch.randn(SHAPE, generator=torch.Generator().manual_seed(2))
    states = [x]
    for (t, s), noise in zip(pairwise(uniform_grid(STEPS).view(-1, 1, 1, 1)), noises, strict=True):
        x = rule(Transition(path, denoise, x, denoise(x, t), t, s)).sample({KERNEL: noise}.__getitem__)
        states.append(x)
    return states


def draws() -> list[Tensor]:
    """What a scheduler draws from a generator seeded with 7, one tensor per step."""
    generator = torch.Generator().manual_seed(7)
    return [torch.randn(SHAPE, generator=generator) for _ in range(STEPS)]


def run_peer(step: PeerStep, x: Tensor, path: GaussianPath) -> list[Tensor]:
    """The peer walks on its own states with the same denoiser, so errors would add up."""
    denoise, states = exact_denoiser(path), [x]
    for i, t in enumerate(uniform_grid(STEPS)[:-1].view(-1, 1, 1, 1)):
        x = step(denoise(x, t), i, x)
        states.append(x)
    return states


def test_ddpm_agrees_with_diffusers() -> None:
    scheduler, generator = (
        make_scheduler("DDPMScheduler", variance_type="fixed_small"),
        torch.Generator().manual_seed(7),
    )
    ours = run_ours(ddpm, CosinePath(), draws())

    def step(x0_hat: Tensor, i: int, x: Tensor) -> Tensor:
        return scheduler.step(x0_hat, STEPS - 1 - i, x, generator=generator).prev_sample

    assert_close(ours, run_peer(step, ours[0], CosinePath()), **TOLERANCE)


@pytest.mark.parametrize(("rule", "eta"), [(ddim, 0.0), (ddpm, 1.0)])
@pytest.mark.parametrize("jump", [1, 5])
def test_a_noise_network_with_the_linear_schedule_of_diffusers_agrees_with_it(
    rule: Rule, eta: float, jump: int
) -> None:
    """A network of eps trained for 250 steps, sampled in all of them or every fifth."""
    scheduler = diffusers.DDIMScheduler(num_train_timesteps=250, clip_sample=False, timestep_spacing="trailing")
    scheduler.set_timesteps(250 // jump)
    path, generator = TablePath(scheduler.alphas_cumprod), torch.Generator().manual_seed(7)
    noises = [torch.randn(SHAPE, generator=generator) for _ in scheduler.timesteps]
    exact = exact_denoiser(path)

    def network(x: Tensor, timestep: Tensor) -> Tensor:  # as diffusers calls it
        t = ((timestep + 1) / 250).view(1, 1, 1)
        return path.eps(x, exact(x, t), t)

    denoise = NoiseDenoiser(lambda x, t: network(x, (250 * t).round().flatten()[0] - 1), path)
    ours = theirs = torch.randn(SHAPE, generator=torch.Generator().manual_seed(2))
    grid = uniform_grid(250 // jump).view(-1, 1, 1, 1)
    for timestep, (t, s), noise in zip(scheduler.timesteps, pairwise(grid), noises, strict=True):
        assert timestep + 1 == round(250 * float(t))
        ours = rule(Transition(path, denoise, ours, denoise(ours, t), t, s)).sample({KERNEL: noise}.__getitem__)
        theirs = scheduler.step(
            network(theirs, timestep), int(timestep), theirs, eta=eta, variance_noise=noise
        ).prev_sample
        assert_close(ours, theirs, rtol=0, atol=5e-4)


def test_ddim_agrees_with_diffusers() -> None:
    scheduler = make_scheduler("DDIMScheduler", set_alpha_to_one=True)
    ours = run_ours(ddim, CosinePath(), draws())

    def step(x0_hat: Tensor, i: int, x: Tensor) -> Tensor:
        return scheduler.step(x0_hat, STEPS - 1 - i, x, eta=0.0).prev_sample

    assert_close(ours, run_peer(step, ours[0], CosinePath()), **TOLERANCE)


def test_generalized_ddim_agrees_with_diffusers_between_ddim_and_ddpm() -> None:
    """diffusers' eta is kappa in units of DDPM's."""
    scheduler, noises = make_scheduler("DDIMScheduler", set_alpha_to_one=True), draws()
    ours = run_ours(lambda step: generalized_ddim(step, 0.5 * ddpm(step).scale), CosinePath(), noises)

    def step(x0_hat: Tensor, i: int, x: Tensor) -> Tensor:
        return scheduler.step(x0_hat, STEPS - 1 - i, x, eta=0.5, variance_noise=noises[i]).prev_sample

    assert_close(ours, run_peer(step, ours[0], CosinePath()), **TOLERANCE)


def test_tweedie_agrees_with_the_lcm_scheduler_of_diffusers() -> None:
    """A huge timestep_scaling switches off LCM's skip connection, except in its last step, which is left out."""
    scheduler, generator = make_scheduler("LCMScheduler", timestep_scaling=1e9), torch.Generator().manual_seed(7)
    ours = run_ours(tweedie, CosinePath(), draws())

    def step(x0_hat: Tensor, i: int, x: Tensor) -> Tensor:
        return scheduler.step(x0_hat, STEPS - 1 - i, x, generator=generator).prev_sample

    assert_close(ours[:-1], run_peer(step, ours[0], CosinePath())[:-1], **TOLERANCE)


@pytest.mark.parametrize("rule", [euler, ddim])
def test_linear_path_euler_agrees_with_diffusers(rule: Rule) -> None:
    """On the linear path DDIM is the same step (App. B.1)."""
    path, scheduler = LinearPath(), diffusers.FlowMatchEulerDiscreteScheduler()
    scheduler.set_timesteps(sigmas=uniform_grid(STEPS)[:-1].tolist())
    ours = run_ours(rule, path, draws())

    def step(x0_hat: Tensor, i: int, x: Tensor) -> Tensor:
        velocity = (x - x0_hat) / scheduler.sigmas[i]  # x_t = (1 - t) x0 + t eps, so eps - x0
        return scheduler.step(velocity, scheduler.timesteps[i], x).prev_sample

    assert_close(ours, run_peer(step, ours[0], path), **TOLERANCE)


def test_linear_path_tweedie_agrees_with_the_stochastic_flow_scheduler_of_diffusers() -> None:
    path, scheduler = LinearPath(), diffusers.FlowMatchEulerDiscreteScheduler(stochastic_sampling=True)
    scheduler.set_timesteps(sigmas=uniform_grid(STEPS)[:-1].tolist())
    generator = torch.Generator().manual_seed(7)
    ours = run_ours(tweedie, path, draws())

    def step(x0_hat: Tensor, i: int, x: Tensor) -> Tensor:
        velocity = (x - x0_hat) / scheduler.sigmas[i]
        return scheduler.step(velocity, scheduler.timesteps[i], x, generator=generator).prev_sample

    assert_close(ours, run_peer(step, ours[0], path), **TOLERANCE)
