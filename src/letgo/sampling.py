"""The one reverse loop (Algorithm 1) takes boards along a grid of times."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from letgo.errors import LetgoError
from letgo.kernels import Rule, Transition
from letgo.models.denoiser import Clip, checked_clip, clipped, split_output
from letgo.paths import GaussianPath, Path
from letgo.pinning import Clues
from letgo.rng import PIN, START, Noise
from letgo.shapes import CellMask, State, Time

Grid = Float[Tensor, "points"]
Denoise = Callable[..., State | tuple[State, Tensor]]  # (x_t, t) -> x0_hat, or (x_t, t, memory) -> x0_hat, memory
IMPLAUSIBLE = 100  # a clean state that is larger than this, where noise has the scale 1, is a network's mistake
BELIEF_TIMES = (0.05, 0.1, 0.15, 0.2) * 2  # where a finished board is noised again, a draw of noise for each
LEAST = 1e-4  # no symbol is held for less likely
FAR = 1e6  # no path leads to such a state, and no network was trained on one


@dataclass(frozen=True)
class Walk:
    """A Walk is how far boards have come: pinned states, the network's memory, the steps behind all of them or each."""

    x: State
    memory: Tensor | None = None
    done: int | Int[Tensor, "*rows"] = 0

    def __getitem__(self, rows: slice | Tensor) -> Walk:
        done = self.done[rows] if isinstance(self.done, Tensor) and self.done.dim() else self.done
        return Walk(self.x[rows], None if self.memory is None else self.memory[rows], done)

    def apart(self) -> Walk:
        """Return the same boards, each with a count of its own."""
        done = torch.as_tensor(self.done, device=self.x.device).expand(len(self.x))
        return Walk(self.x, self.memory, done)


def joined(walks: list[Walk]) -> Walk:
    """Put boards that have counts of their own in one batch; where only some have a memory, the others' is zeros."""
    memories = [walk.memory for walk in walks]
    like = next((memory for memory in memories if memory is not None), None)
    if like is not None:
        memories = [
            like.new_zeros(len(walk.x), *like.shape[1:]) if memory is None else memory
            for walk, memory in zip(walks, memories, strict=True)
        ]
    memory = None if like is None else torch.cat([part for part in memories if part is not None])
    done = torch.cat([torch.as_tensor(walk.done) for walk in walks])
    return Walk(torch.cat([walk.x for walk in walks]), memory, done)


@dataclass(frozen=True)
class Snapshot:
    """A Snapshot follows one update: the time reached, the pinned state there, and the proposal that led to it."""

    step: int
    t: float
    x: State
    x0_hat: State
    memory: Tensor | None = None

    @property
    def walk(self) -> Walk:
        """Return where the loop can go on from, with all boards or some of them."""
        return Walk(self.x, self.memory, self.step)


def uniform_grid(steps: int, device: str | torch.device = "cpu") -> Grid:
    """Return Eq. 24's equidistant grid: 1 = t_N > ... > t_0 = 0."""
    if steps < 1:
        raise LetgoError(f"steps must be at least 1, got {steps}")
    return torch.linspace(1, 0, steps + 1, dtype=torch.float64, device=device).float()


def band_grid(steps: int, t_max: float = 1.0, t_min: float = 0.0) -> Grid:
    """Return a grid that jumps from 1 to t_max, falls evenly to t_min and jumps to 0. Not in the paper."""
    numbers = all(isinstance(value, (int, float)) for value in (t_max, t_min))
    if not numbers or not 0 <= t_min < t_max <= 1:
        raise LetgoError(f"t_max must be more than t_min, both from 0 to 1; got t_max {t_max!r} and t_min {t_min!r}")
    if (t_max, t_min) == (1, 0):
        return uniform_grid(steps)
    between = torch.linspace(t_max, t_min, steps + 1 - (t_max < 1) - (t_min > 0), dtype=torch.float64).tolist()
    times = [1.0] * (t_max < 1) + between + [0.0] * (t_min > 0)
    return torch.tensor([*times[:-1], 0.0])  # a single step takes no time between


def checked_grid(times: Grid) -> Grid:
    """Return a custom grid, which must fall strictly from 1 to 0."""
    if len(times) < 2 or times[0] != 1 or times[-1] != 0 or not bool((times.diff() < 0).all()):
        raise LetgoError("a time grid must fall strictly from 1 (noise) to 0 (data)")
    return times


def propose(denoise: Denoise, x_t: State, t: Time, memory: Tensor | None) -> tuple[State, Tensor | None]:
    """Return x0_hat, and what the network wants to be reminded of; a network without memory is called without it."""
    out = denoise(x_t, t) if memory is None else denoise(x_t, t, memory)
    return out if isinstance(out, tuple) else (out, None)


def ahead_of(denoise: Denoise, lead: float | Time) -> Denoise:
    """Return the network, told that a state at t is at t - lead, 0 at least. Not in the paper (docs/knife-edge.md)."""

    def denoise_ahead(x_t: State, t: Time, *memory: Tensor) -> State | tuple[State, Tensor]:
        return denoise(x_t, (t - lead).clamp(min=0), *memory)

    return denoise_ahead


def reverse_step(
    denoise: Denoise, path: Path, rule: Rule, walk: Walk, times: tuple[Time, Time], clues: Clues, noise: Noise
) -> tuple[Walk, State]:
    """Take one turn of Algorithm 1 from t to s: propose, update, pin. Returns where it led, and the proposal."""
    (t, s), step, shape = times, walk.done + 1, (walk.x.shape[1], walk.x.shape[2])

    def denoise_pinned(x: State, time: Time) -> State:
        return propose(denoise, clues.pin(x), time, walk.memory)[0]  # a rule that looks again (Heun) sees the clues

    def draw(purpose: int) -> State:
        return noise.normal(step, purpose, *shape)

    x0_hat, memory = propose(denoise, walk.x, t, walk.memory)
    x_s = rule(Transition(path, denoise_pinned, walk.x, x0_hat, t, s, clues.given)).sample(draw)
    x_s = clues.pin_at(x_s, s, path, draw(PIN) if clues.may_be_soft else None)
    return Walk(x_s, memory, step), x0_hat


def starting_state(noise: Noise, clues: Clues, path: Path) -> State:
    """Draw x_T, pinned like every later state: training inputs always are."""
    boards, cells, dim = clues.values.shape
    if len(noise) != boards:
        raise LetgoError(f"noise for {len(noise)} boards cannot serve {boards}: give one instance number to each board")

    def draw(purpose: int) -> State:
        return noise.normal(0, purpose, cells, dim)

    x_1 = path.start(clues.values, draw)
    one = torch.ones(1, 1, 1, device=x_1.device)
    return clues.pin_at(x_1, one, path, draw(PIN) if clues.may_be_soft else None)


def advance(
    denoise: Denoise, path: Path, rule: Rule, grid: Grid, clues: Clues, noise: Noise, walk: Walk
) -> tuple[Walk, State]:
    """Take a `reverse_step` of boards at one time, or each at its own: where on the grid its steps have led it."""
    done = torch.as_tensor(walk.done, device=grid.device).view(-1)
    t, s = (grid.index_select(0, done + i).view(-1, 1, 1) for i in (0, 1))
    with torch.no_grad():
        return reverse_step(denoise, path, rule, walk, (t, s), clues, noise)


class Diverged(LetgoError):
    """A sampler left all numbers behind: its settings do not suit the network and the number of steps."""


def diverged(step: int) -> Diverged:
    return Diverged(f"the sampler diverged at step {step}; take a smaller sigma or variance, or more steps")


def not_finite(step: int) -> LetgoError:
    return LetgoError(f"the network's prediction is not finite at step {step}; check its weights and its inputs")


def check_proposal(path: Path, grid: Grid, walk: Walk, x0_hat: State, warned: bool = False) -> bool:
    """Refuse what is not finite; return whether it was said, now or before, that x0_hat is implausibly large."""
    largest, done = float(x0_hat.abs().amax()), torch.as_tensor(walk.done).expand(len(x0_hat))
    if not math.isfinite(largest):
        refuse_nan(walk.x, x0_hat, done)
    return warned or (IMPLAUSIBLE < largest < math.inf and warn_of_size(path, grid, walk.x, x0_hat, done))


def refuse_nan(x_t: State, x0_hat: State, done: Int[Tensor, "batch"]) -> None:
    """Refuse a network that answers a finite state with NaN or infinity; a sampler may diverge by itself."""
    broken = x_t.isfinite().flatten(1).all(1) & ~x0_hat.isfinite().flatten(1).all(1)
    if bool(broken.any()):
        row = int(broken.int().argmax())
        step = int(done[row]) + 1
        raise diverged(step) if float(x_t[row].abs().max()) > FAR else not_finite(step)


def warn_of_size(path: Path, grid: Grid, x_t: State, x0_hat: State, done: Int[Tensor, "batch"]) -> bool:
    """Say that x0_hat is implausibly large, and return whether; where x_t is as well, a sampler diverged by itself."""
    if float(x_t.abs().amax()) > IMPLAUSIBLE:
        return False
    sizes = x0_hat.abs().flatten(1).amax(1)
    largest, before = float(sizes.max()), int(done[int(sizes.argmax())])
    t = grid[before].view(1, 1, 1)
    alpha = f", where alpha is {float(path.alpha(t)):.2g}" if isinstance(path, GaussianPath) else ""
    warnings.warn(
        f"x0_hat reaches {largest:,.0f} at step {before + 1}{alpha}: no data on the scale of the noise does; "
        "for a network of eps give clip=(low, high), the range of your data",
        stacklevel=4,
    )
    return True


def trajectory(
    denoise: Denoise,
    path: Path,
    rule: Rule,
    times: Grid,
    clues: Clues,
    noise: Noise,
    walk: Walk | None = None,
    clip: Clip | None = None,
) -> Iterator[Snapshot]:
    """Run Algorithm 1, from noise to data. No clues is an all-False mask, not a branch.

    With `walk` it goes on from there: noise is keyed by board and step, so nothing else changes. With `clip` every
    x0_hat is held to that range, which one-hot networks of x0 do not need.
    """
    times, clip = checked_grid(times), checked_clip(clip)
    walk = Walk(starting_state(noise, clues, path)) if walk is None else walk
    grid, first, warned = times.to(walk.x.device), int(walk.done), False
    index = torch.arange(len(times), device=walk.x.device)

    def denoise_clipped(*state: Tensor) -> State | tuple[State, Tensor]:
        x0_hat, memory = split_output(denoise(*state))
        return clipped(x0_hat, clip) if memory is None else (clipped(x0_hat, clip), memory)

    for i, reached in enumerate(times.tolist()[1 + first :], start=first):
        before = Walk(walk.x, walk.memory, index[i])
        walk, x0_hat = advance(denoise_clipped, path, rule, grid, clues, noise, before)
        warned = check_proposal(path, grid, before, x0_hat, warned)
        yield Snapshot(i + 1, reached, walk.x, x0_hat, walk.memory)


def belief(denoise: Denoise, path: Path, clues: Clues, board: State, noise: Noise) -> Float[Tensor, "batch"]:
    """Return the network's self-likelihood of a finished one-hot board, 0 at most. Not in the paper; no rule is looked
    at.

    Its open cells are noised a little and asked for again: the log-probability of their symbols, averaged over draws,
    summed over cells. A board that breaks a rule contradicts what the network has learned.
    """
    return cell_belief(denoise, path, clues, board, noise).sum(1)


@torch.no_grad()
def cell_belief(denoise: Denoise, path: Path, clues: Clues, board: State, noise: Noise) -> Float[Tensor, "batch cells"]:
    """Return what each cell has in the `belief` of its board; a clue has nothing."""
    total = torch.zeros(board.shape[:2], device=board.device)
    for draw, t in enumerate(BELIEF_TIMES, start=1):  # at step 0 this noise is x_T
        time = torch.full((1, 1, 1), t, device=board.device)
        x_t = clues.pin(path.sample(board, time, noise.normal(draw, START, board.shape[1], board.shape[2])))
        total += cell_likelihood(propose(denoise, x_t, time, None)[0], board, clues.given)
    return total / len(BELIEF_TIMES)


def cell_likelihood(x0_hat: State, board: State, given: CellMask) -> Float[Tensor, "batch cells"]:
    """Return the log-probability that a proposal gives to each symbol of a one-hot board; a clue has nothing."""
    return (x0_hat.float() * board).sum(-1).clamp(LEAST, 1).log().masked_fill(given, 0)
