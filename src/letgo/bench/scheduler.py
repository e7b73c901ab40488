"""The loop that a user of diffusers would write, on our network."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from typing import Any
from unittest import mock

import torch
from torch import nn

from letgo.config import Config
from letgo.errors import LetgoError
from letgo.paths import CosinePath
from letgo.pinning import Clues
from letgo.rng import KERNEL, START, Noise
from letgo.shapes import State
from letgo.solver import Solver
from letgo.tasks import Problem


def make_scheduler(config: Config, steps: int) -> Any:
    """diffusers' DDPMScheduler on our grid: beta_i = 1 - delta(t_i), so its cumulative products are alpha(t_i)^2."""
    try:
        from diffusers.schedulers.scheduling_ddpm import DDPMScheduler  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise LetgoError("diffusers is not installed; `pip install diffusers` to compare with it") from None
    path = config.build_path()
    if not isinstance(path, CosinePath):
        raise LetgoError("diffusers' DDPM needs a variance-preserving path")
    alpha = path.alpha(torch.linspace(0, 1, steps + 1, dtype=torch.float64).view(-1, 1, 1)).flatten()
    betas = (1 - (alpha[1:] / alpha[:-1]) ** 2).tolist()
    return DDPMScheduler(
        num_train_timesteps=steps,
        trained_betas=betas,
        prediction_type="sample",
        clip_sample=False,
        variance_type="fixed_small",
    )


def scheduler_loop(
    solver: Solver, scheduler: Any, problem: Problem, clues: Clues, noise: Callable[[int], State] | None = None
) -> State:
    """The loop that diffusers' users write, on our network: its own draws, or those of `noise` (0 is x_T)."""
    device, shape = solver.device, clues.values.shape
    context = None if problem.context is None else problem.context.to(device)
    half: AbstractContextManager[Any] = nullcontext()
    if device.type == "cuda":
        half = torch.autocast("cuda", torch.bfloat16)
    replaced: AbstractContextManager[Any] = nullcontext()
    if noise is not None:
        draws = map(noise, count(1))
        module = sys.modules[type(scheduler).__module__]
        replaced = mock.patch.object(module, "randn_tensor", side_effect=lambda *_, **__: next(draws))
    generator = torch.Generator(device).manual_seed(0)
    scheduler.set_timesteps(scheduler.config.num_train_timesteps, device=device)
    with torch.no_grad(), replaced:
        x = torch.randn(shape, device=device, generator=generator) if noise is None else noise(0)
        x = clues.pin(x)
        for t in scheduler.timesteps:
            time = ((t + 1) / len(scheduler.timesteps)).expand(len(x), 1, 1)
            with half:
                x0_hat = solver.network(x, time, context)
            x = clues.pin(scheduler.step(x0_hat, t, x, generator=generator).prev_sample)
    return x.cpu()


def agreement(config: Config, network: nn.Module, problem: Problem, steps: int) -> float:
    """Largest difference between our last state and the scheduler's: same weights and noise, CPU, fp32."""
    solver = Solver(config, network, "cpu", fast=False)
    clues, noise = solver.clues(problem), Noise.first(0, len(problem))
    cells, dim = clues.values.shape[1:]

    def draw(step: int) -> State:
        return noise.normal(step, KERNEL if step else START, cells, dim)

    theirs = scheduler_loop(solver, make_scheduler(config, steps), problem, clues, draw)
    *_, last = solver.walk(problem, noise, solver.sampler("ddpm", steps))
    return float((last.x - theirs).abs().max())
