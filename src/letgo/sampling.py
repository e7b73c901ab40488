"""Time grids and the one reverse loop (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from letgo.errors import LetgoError
from letgo.kernels import Rule, Transition
from letgo.paths import GaussianPath
from letgo.pinning import Clues
from letgo.rng import DRAW, KERNEL, PIN, START, Noise
from letgo.shapes import State, Time

Grid = Float[Tensor, "points"]
BELIEF_TIMES = (0.05, 0.1, 0.15, 0.2) * 2  # where a finished board is noised again, a draw of noise for each
LEAST = 1e-4  # no symbol is held for less likely


@dataclass(frozen=True)
class Snapshot:
    """After one update: the time reached, the pinned state there, and the proposal that led to it."""

    step: int
    t: float
    x: State
    x0_hat: State


def uniform_grid(steps: int, device: str | torch.device = "cpu") -> Grid:
    """Eq. 24, equidistant: 1 = t_N > ... > t_0 = 0."""
    if steps < 1:
        raise LetgoError(f"steps must be at least 1, got {steps}")
    return torch.linspace(1, 0, steps + 1, dtype=torch.float64, device=device).float()


def checked_grid(times: Grid) -> Grid:
    """A custom grid falls strictly from 1 to 0."""
    if len(times) < 2 or times[0] != 1 or times[-1] != 0 or not bool((times.diff() < 0).all()):
        raise LetgoError("a time grid must fall strictly from 1 (noise) to 0 (data)")
    return times


def reverse_step(
    denoise: Callable[[State, Time], State],
    path: GaussianPath,
    rule: Rule,
    x_t: State,
    t: Time,
    s: Time,
    clues: Clues,
    noise: Noise,
    step: Int[Tensor, ""],
) -> tuple[State, State]:
    """One turn of Algorithm 1: propose, update, pin. Returns x_s and the proposal."""

    def denoise_pinned(x: State, time: Time) -> State:
        return denoise(clues.pin(x), time)  # a rule that looks again (Heun) sees the clues too

    def draw() -> State:
        return noise.normal(step, DRAW, *shape)

    x0_hat, shape = denoise(x_t, t), (x_t.shape[1], x_t.shape[2])
    kernel = rule(Transition(path, denoise_pinned, x_t, x0_hat, t, s, draw))
    x_s = kernel.sample(noise.normal(step, KERNEL, *shape))
    pin_noise = noise.normal(step, PIN, *shape) if clues.may_be_soft else None
    return clues.pin_at(x_s, s, path, pin_noise), x0_hat


def starting_state(noise: Noise, clues: Clues, path: GaussianPath) -> State:
    """x_T ~ N(0, I), pinned like every later state: training inputs always are."""
    _, cells, dim = clues.values.shape
    x_1 = noise.normal(0, START, cells, dim)
    pin_noise = noise.normal(0, PIN, cells, dim) if clues.may_be_soft else None
    return clues.pin_at(x_1, torch.ones(1, 1, 1, device=x_1.device), path, pin_noise)


def trajectory(
    denoise: Callable[[State, Time], State],
    path: GaussianPath,
    rule: Rule,
    times: Grid,
    clues: Clues,
    noise: Noise,
    step_function: Callable[..., tuple[State, State]] = reverse_step,
    x_t: State | None = None,
    done: int = 0,
) -> Iterator[Snapshot]:
    """Algorithm 1, from noise to data. No clues is an all-False mask, not a branch.

    Or what is left of it, where `x_t` is the state after `done` steps: noise is keyed by board and step, so nothing
    else changes.
    """
    times = checked_grid(times)
    x_t = starting_state(noise, clues, path) if x_t is None else x_t
    grid = times.to(x_t.device)
    index = torch.arange(1, len(times), device=x_t.device)
    for i, reached in enumerate(times.tolist()[1 + done :], start=done):
        t, s = grid[i].view(1, 1, 1), grid[i + 1].view(1, 1, 1)
        with torch.no_grad():  # around each step, not the yield: the caller's own mode must not change
            x_t, x0_hat = step_function(denoise, path, rule, x_t, t, s, clues, noise, index[i])
        yield Snapshot(i + 1, reached, x_t, x0_hat)


@torch.no_grad()
def belief(
    denoise: Callable[[State, Time], State], path: GaussianPath, clues: Clues, board: State, noise: Noise
) -> Float[Tensor, "batch"]:
    """How sure a network is of a finished one-hot board, 0 at most. Not in the paper; no rule is looked at.

    Its open cells are noised a little and asked for again: the log-probability of their symbols, summed over cells,
    averaged over draws. A board that breaks a rule contradicts what the network has learned.
    """
    total = torch.zeros(len(board), device=board.device)
    for draw, t in enumerate(BELIEF_TIMES, start=1):  # at step 0 this noise is x_T
        time = torch.full((1, 1, 1), t, device=board.device)
        x_t = clues.pin(path.sample(board, time, noise.normal(draw, START, board.shape[1], board.shape[2])))
        kept = (denoise(x_t, time).float() * board).sum(-1).clamp(LEAST, 1)
        total += kept.log().masked_fill(clues.given, 0).sum(1)
    return total / len(BELIEF_TIMES)
