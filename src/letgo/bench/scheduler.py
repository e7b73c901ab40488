"""The loop that a user of diffusers would write, on our network."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

from letgo.config import Config
from letgo.errors import LetgoError
from letgo.paths import CosinePath
from letgo.pinning import Clues
from letgo.shapes import State
from letgo.solver import Solver
from letgo.tasks import Problem


def make_scheduler(config: Config, steps: int) -> Any:
    """Put diffusers' DDPMScheduler on our grid: by beta_i = 1 - delta(t_i) its cumulative products are alpha(t_i)^2."""
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


def scheduler_loop(solver: Solver, scheduler: Any, problem: Problem, clues: Clues, start: State | None = None) -> State:
    """Sample as users of diffusers write it, on our network, from `start` or noise of its own."""
    device = solver.device
    context = None if problem.context is None else problem.context.to(device)
    half = torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()
    generator = torch.Generator(device).manual_seed(0)
    scheduler.set_timesteps(scheduler.config.num_train_timesteps, device=device)
    with torch.no_grad():
        x = torch.randn(clues.values.shape, device=device, generator=generator) if start is None else start
        x = clues.pin(x)
        for t in scheduler.timesteps:
            time = ((t + 1) / len(scheduler.timesteps)).expand(len(x), 1, 1)
            with half:
                x0_hat = solver.network(x, time, context)
            x = clues.pin(scheduler.step(x0_hat, t, x, generator=generator).prev_sample)
    return x.cpu()
