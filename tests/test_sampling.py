"""The reverse loop: grids, what it yields, which states the denoiser sees, and independence of the batch."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from dataclasses import FrozenInstanceError

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from letgo.discrete import Absorbing
from letgo.errors import LetgoError
from letgo.kernels import Rule, ddim, ddpm, euler, heun, tweedie
from letgo.paths import CosinePath, GaussianPath
from letgo.pinning import Clues
from letgo.rng import KERNEL, PIN, START, Noise
from letgo.samplers import Sampler
from letgo.sampling import (
    Snapshot,
    Walk,
    advance,
    ahead_of,
    band_grid,
    belief,
    check_proposal,
    checked_grid,
    joined,
    refuse_nan,
    trajectory,
    uniform_grid,
)

pytestmark = pytest.mark.fast

SHAPE = (6, 5)


class Recorder:
    """A denoiser of correctly rounded operations only, so that it cannot depend on the batch; remembers its inputs."""

    def __init__(self) -> None:
        self.seen: list[tuple[Tensor, float]] = []

    def __call__(self, x_t: Tensor, t: Tensor) -> Tensor:
        self.seen.append((x_t, float(t)))
        y = 3 * x_t - 2 * t
        return y / (1 + y.abs())


def some_clues(count: int, soft_until: float = float("inf")) -> Clues:
    rng = torch.Generator().manual_seed(0)
    return Clues(
        torch.randn(count, *SHAPE, generator=rng), torch.rand(count, SHAPE[0], generator=rng) < 0.3, soft_until
    )


def last(snapshots: Iterator[Snapshot]) -> Tensor:
    *_, final = snapshots
    return final.x


@pytest.mark.parametrize("steps", [1, 3, 50, 200, 1000])
def test_the_uniform_grid_falls_evenly_from_one_to_zero(steps: int) -> None:
    grid = uniform_grid(steps)
    assert len(grid) == steps + 1
    assert grid[0] == 1
    assert grid[-1] == 0
    assert_close(grid, torch.tensor([1 - i / steps for i in range(steps + 1)]), rtol=0, atol=1e-7)


@pytest.mark.parametrize(
    ("steps", "t_max", "t_min", "times"),
    [
        (4, 1.0, 0.0, [1, 0.75, 0.5, 0.25, 0]),
        (4, 0.6, 0.2, [1, 0.6, 0.4, 0.2, 0]),
        (4, 0.6, 0.0, [1, 0.6, 0.4, 0.2, 0]),
        (4, 1.0, 0.4, [1, 0.8, 0.6, 0.4, 0]),
        (2, 0.6, 0.2, [1, 0.6, 0]),
        *((1, t_max, t_min, [1, 0]) for t_max in (1.0, 0.6) for t_min in (0.0, 0.2)),
    ],
)
def test_a_band_of_times_lies_between_noise_and_data(
    steps: int, t_max: float, t_min: float, times: list[float]
) -> None:
    assert_close(band_grid(steps, t_max, t_min), torch.tensor(times, dtype=torch.float32))
    checked_grid(band_grid(steps, t_max, t_min))


@pytest.mark.parametrize("steps", [0, -1])
def test_a_grid_needs_a_step(steps: int) -> None:
    with pytest.raises(LetgoError, match=f"steps must be at least 1, got {steps}"):
        uniform_grid(steps)


@pytest.mark.parametrize(
    "times",
    [
        [0.0, 0.5, 1.0],
        [1.0, 0.5],
        [0.9, 0.0],
        [1.0, 0.5, 0.5, 0.0],
        [1.0, 0.2, 0.6, 0.0],
        [1.0, 0.5, -0.1, 0.0],
        [1.0, float("nan"), 0.0],
        [1.0],
        [],
    ],
)
def test_a_wrong_grid_is_refused(times: list[float]) -> None:
    clues = some_clues(2)
    with pytest.raises(LetgoError, match="fall strictly from 1"):
        next(trajectory(Recorder(), CosinePath(), ddpm, torch.tensor(times), clues, Noise.first(0, 2)))


def test_any_falling_grid_works(path: GaussianPath) -> None:
    """With a fixed proposal DDIM's state is alpha x0_bar + beta x_1 at every time, however it got there."""
    x0_bar, noise = torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(0)), Noise.first(0, 2)
    x_1 = noise.normal(0, START, *SHAPE)
    for times in ([1.0, 0.0], [1.0, 0.99, 0.98, 0.1, 0.0], [1.0, 0.5, 0.001, 0.0]):
        for snapshot in trajectory(lambda *_: x0_bar, path, ddim, torch.tensor(times), Clues.none(x0_bar), noise):
            t = torch.full((1, 1, 1), snapshot.t)
            assert_close(snapshot.x, path.alpha(t) * x0_bar + path.beta(t) * x_1)


def test_every_step_has_its_own_number_and_the_noise_of_that_number(path: GaussianPath) -> None:
    """With a fixed proposal Tweedie's states are alpha x0_bar + beta eps, where eps is the noise of steps 1, 2, 3."""
    x0_bar, noise = torch.randn(2, *SHAPE, generator=torch.Generator().manual_seed(0)), Noise.first(3, 2)
    snapshots = list(trajectory(lambda *_: x0_bar, path, tweedie, uniform_grid(3), Clues.none(x0_bar), noise))
    assert [(snapshot.step, round(snapshot.t, 6)) for snapshot in snapshots] == [(1, 0.666667), (2, 0.333333), (3, 0)]
    for step, snapshot in enumerate(snapshots, start=1):
        t = torch.full((1, 1, 1), 1 - step / 3)
        eps = noise.normal(step, KERNEL, *SHAPE)
        assert_close(snapshot.x, path.alpha(t) * x0_bar + path.beta(t) * eps, rtol=1e-5, atol=1e-6)


def test_soft_clues_are_noised_to_their_times_and_hard_ones_stand_as_they_are(path: GaussianPath) -> None:
    """Algorithm 1 with t* = .5: clues of steps 1 and 2 are alpha c + beta eps, later ones are c."""
    clues, noise = some_clues(3, soft_until=0.5), Noise.first(1, 3)
    held = clues.values[clues.given]
    denoise = Recorder()
    states = [s.x for s in trajectory(denoise, path, ddpm, uniform_grid(4), clues, noise)]
    for step, x in enumerate([denoise.seen[0][0], *states]):
        t = torch.full((1, 1, 1), 1 - step / 4)
        soft = path.alpha(t) * clues.values + path.beta(t) * noise.normal(step, PIN, *SHAPE)
        assert_close(x[clues.given], soft[clues.given] if step <= 2 else held)


def remembering(x_t: Tensor, t: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Board by board, with a memory of all states so far."""
    memory = torch.zeros(len(x_t)) if memory is None else memory
    y = 3 * x_t - 2 * t + memory[:, None, None]
    return y / (1 + y.abs()), memory / 2 + x_t.sum((1, 2))


def forgetful(x_t: Tensor, t: Tensor) -> Tensor:
    return remembering(x_t, t)[0]


@pytest.mark.parametrize("denoise", [remembering, forgetful])
@pytest.mark.parametrize("first", [1, 2, 4])
def test_some_of_the_boards_go_on_from_any_step_as_if_they_had_never_stopped(denoise: object, first: int) -> None:
    clues, noise, rows = some_clues(3), Noise.first(0, 3), torch.tensor([2, 0])
    whole = list(trajectory(denoise, CosinePath(), ddpm, uniform_grid(5), clues, noise))
    walk = whole[first - 1].walk[rows]
    rest = list(trajectory(denoise, CosinePath(), ddpm, uniform_grid(5), clues[rows], noise[rows], walk))
    assert [(a.step, a.t) for a in rest] == [(b.step, b.t) for b in whole[first:]]
    for ours, theirs in zip(rest, whole[first:], strict=True):
        assert torch.equal(ours.x, theirs.x[rows])
        assert torch.equal(ours.x0_hat, theirs.x0_hat[rows])


def test_boards_of_one_batch_take_the_step_that_each_of_them_is_at() -> None:
    """They have steps of their own: what each makes of it is what it makes of it alone."""
    clues, noise, path, grid = some_clues(3, 0.5), Noise.first(0, 3), CosinePath(), uniform_grid(6)
    walk = Walk(torch.randn(3, *SHAPE), torch.arange(3.0), torch.tensor([4, 0, 5]))
    whole, x0_hat = advance(remembering, path, ddpm, grid, clues, noise, walk)
    assert torch.as_tensor(whole.done).tolist() == [5, 1, 6]
    for i, done in enumerate((4, 0, 5)):
        row, last_but = slice(i, i + 1), Walk(walk.x[i : i + 1], torch.tensor([float(i)]), done)
        alone, proposal = advance(remembering, path, ddpm, grid, clues[row], noise[row], last_but)
        assert torch.equal(whole.x[row], alone.x)
        assert torch.equal(x0_hat[row], proposal)
        assert torch.equal(torch.as_tensor(whole.memory)[row], torch.as_tensor(alone.memory))


def test_walks_are_joined_in_order_and_one_without_memory_remembers_zeros() -> None:
    x, memory, zeros = torch.randn(5, *SHAPE), torch.randn(2, 4, 3), torch.zeros(2, 4, 3)
    first, second = Walk(x[:2], memory, torch.tensor([7, 3])), Walk(x[2:3], done=torch.tensor([0]))
    third = Walk(x[3:], done=torch.tensor([2, 2]))
    for walks, remembered in (
        ([first, second, third], [memory, zeros[:1], zeros]),
        ([second, first, third], [zeros[:1], memory, zeros]),
    ):
        whole = joined(walks)
        assert torch.equal(whole.x, torch.cat([walk.x for walk in walks]))
        assert torch.equal(torch.as_tensor(whole.memory), torch.cat(remembered))
        assert torch.equal(torch.as_tensor(whole.done), torch.cat([torch.as_tensor(walk.done) for walk in walks]))
    assert joined([second, third]).memory is None


def test_a_snapshot_and_a_walk_cannot_be_changed_under_ones_hands() -> None:
    snapshot = next(trajectory(Recorder(), CosinePath(), ddpm, uniform_grid(2), some_clues(2), Noise.first(0, 2)))
    for value in (snapshot, snapshot.walk):
        with pytest.raises(FrozenInstanceError):
            value.x = torch.zeros(2, *SHAPE)  # pyright: ignore


def test_a_network_that_is_ahead_is_told_an_earlier_time_but_none_below_zero() -> None:
    asked: list[tuple[float, tuple[Tensor, ...]]] = []
    network = ahead_of(lambda x, t, *memory: asked.append((float(t), memory)) or x, 0.25)
    for t in (1.0, 0.5, 0.25, 0.1, 0.0):
        network(torch.zeros(1, 1, 1), torch.full((1, 1, 1), t))
    assert [time for time, _ in asked] == [0.75, 0.25, 0, 0, 0]
    memory = torch.ones(1)
    network(torch.zeros(1, 1, 1), torch.ones(1, 1, 1), memory)
    assert asked[-1][1][0] is memory


@pytest.mark.parametrize("rule", [ddpm, ddim, tweedie])
def test_a_fixed_proposal_keeps_its_forward_marginal_all_the_way(path: GaussianPath, rule: Rule) -> None:
    """Proposition 3.1: x_1 ~ q_1(.; x0_bar), so x_t ~ q_t(.; x0_bar) = N(alpha x0_bar, beta^2 I) at every time.

    Fixed seed; 40 checks at 5 sigma, so for a new seed the odds of a false alarm are 2e-5.
    """
    count = 2000
    x0_bar = torch.tensor([0.9, -0.3, 0.2, 0.0]).expand(count, 2, 4)
    for snapshot in trajectory(
        lambda *_: x0_bar, path, rule, uniform_grid(20), Clues.none(x0_bar), Noise.first(1, count)
    ):
        t = torch.full((1, 1, 1), snapshot.t)
        residual = (snapshot.x - path.alpha(t) * x0_bar).double()
        beta = float(path.beta(t))
        assert abs(residual.mean()) <= 5 * beta / residual.numel() ** 0.5 + 1e-7
        assert abs(residual.square().mean() - beta**2) <= 5 * beta**2 * (2 / residual.numel()) ** 0.5 + 1e-7


def test_the_loop_is_lazy_and_can_be_left_early() -> None:
    denoise = Recorder()
    steps = trajectory(denoise, CosinePath(), euler, uniform_grid(100), some_clues(2), Noise.first(0, 2))
    assert not denoise.seen
    next(steps)
    next(steps)
    assert len(denoise.seen) == 2


def test_sampling_keeps_no_gradient() -> None:
    weight = torch.ones((), requires_grad=True)
    clues = some_clues(2)
    for snapshot in trajectory(lambda x, t: weight * x, CosinePath(), ddpm, uniform_grid(3), clues, Noise.first(0, 2)):
        assert not snapshot.x.requires_grad
        assert not snapshot.x0_hat.requires_grad


@pytest.mark.parametrize("rule", [ddpm, heun])
def test_a_network_is_reminded_of_what_it_returned_the_step_before(rule: Rule) -> None:
    """Heun's second look at a step meets the memory of the first, and what it would remember is dropped."""
    told: list[tuple[float, float | None]] = []

    def denoise(x_t: Tensor, t: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor]:
        told.append((float(t), None if memory is None else float(memory[0])))
        return Recorder()(x_t, t), torch.full((len(x_t),), float(t))

    snapshots = list(trajectory(denoise, CosinePath(), rule, uniform_grid(3), some_clues(2), Noise.first(0, 2)))
    times = [float(t) for t in uniform_grid(3)]
    looks = [
        [(t, told), (s, told)][: 2 if rule is heun else 1]
        for t, s, told in zip(times, times[1:], [None, *times], strict=False)
    ]
    assert told == [look for step in looks for look in step]
    assert [float(snapshot.walk.memory[0]) for snapshot in snapshots if snapshot.walk.memory is not None] == times[:3]


def test_noise_that_does_not_serve_every_board_is_refused() -> None:
    for rows in (1, 2, 4):
        with pytest.raises(LetgoError, match=f"noise for {rows} boards cannot serve 3"):
            next(trajectory(Recorder(), CosinePath(), ddpm, uniform_grid(2), some_clues(3), Noise.first(0, rows)))


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_network_whose_answer_is_not_finite_is_named_by_the_step(wrong: float) -> None:
    def denoise(x_t: Tensor, t: Tensor) -> Tensor:
        return x_t.masked_fill(t < 0.6, wrong)

    steps = trajectory(denoise, CosinePath(), ddpm, uniform_grid(4), some_clues(3), Noise.first(0, 3))
    next(steps)
    next(steps)
    with pytest.raises(LetgoError, match="not finite at step 3; check its weights"):
        next(steps)


def test_a_sampler_that_diverges_by_itself_is_no_fault_of_the_network() -> None:
    rule = Sampler("em", 9, sigma=1e30).build()
    x = last(trajectory(lambda x, t: x, CosinePath(), rule, uniform_grid(9), some_clues(3), Noise.first(0, 3)))
    assert not x.isfinite().all()


def test_a_state_beyond_a_million_is_the_samplers_fault_and_not_the_networks() -> None:
    done = torch.tensor([6])
    for size, says in ((1e6, "the network's prediction is not finite at step 7"), (1e6 + 0.5, "diverged at step 7")):
        with pytest.raises(LetgoError, match=says):
            refuse_nan(torch.tensor([[[-size, 1.0]]], dtype=torch.float64), torch.full((1, 1, 2), math.nan), done)
    infinite = torch.tensor([[[math.inf]]])
    refuse_nan(infinite, infinite * 0, done)  # it has diverged already, and goes on as it likes
    refuse_nan(torch.tensor([[[2e6]]]), torch.tensor([[[3e6]]]), done)


def test_an_implausible_answer_is_told_once_with_its_step() -> None:
    """Only from step 3 of 4 on, at t = .5: alpha is cos(pi / 4) = .71 there."""

    def denoise(x_t: Tensor, t: Tensor) -> Tensor:
        return torch.full_like(x_t, 1234.0 if t < 0.6 else 0.5)

    nothing = Clues.none(torch.zeros(2, *SHAPE))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in trajectory(denoise, CosinePath(), tweedie, uniform_grid(4), nothing, Noise.first(0, 2)):
            pass
    assert len(told) == 1
    assert str(told[0].message).startswith("x0_hat reaches 1,234 at step 3, where alpha is 0.71: no data")


def test_of_several_boards_the_one_with_the_largest_entry_is_told_by_its_own_step() -> None:
    x0_hat = torch.zeros(3, 2, 2)
    x0_hat[0, 1, 1], x0_hat[1, 0, 0], x0_hat[2, 0, 1] = 300.0, -900.0, 500.0
    walk = Walk(torch.zeros(3, 2, 2), done=torch.tensor([3, 2, 0]))
    with pytest.warns(UserWarning, match=r"reaches 900 at step 3, where alpha is 0\.71: "):
        assert check_proposal(CosinePath(), uniform_grid(4), walk, x0_hat)


def test_what_is_infinite_from_a_state_that_is_no_number_is_no_size_to_tell() -> None:
    walk = Walk(torch.full((1, 1, 2), math.nan), done=1)
    assert not check_proposal(CosinePath(), uniform_grid(4), walk, torch.full((1, 1, 2), math.inf))


def test_implausible_is_more_than_a_hundred_from_a_state_that_is_not() -> None:
    def told(size: float, largest: float, path: GaussianPath | Absorbing | None = None) -> str | None:
        x_t = torch.tensor([[[-size, 1.0]]])
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            walk = Walk(x_t, done=4)
            said = check_proposal(path or CosinePath(), torch.ones(6), walk, torch.full_like(x_t, largest))
        assert said == bool(found)
        return str(found[0].message) if found else None

    assert told(100.0, 100.0) is None
    assert told(100.5, 1e4) is None
    assert told(100.0, 100.5) is not None
    assert "reaches 5,000 at step 5, where alpha is 0: " in str(told(1.0, 5e3))
    assert "reaches 5,000 at step 5: " in str(told(1.0, 5e3, Absorbing()))


def test_belief_is_the_log_probability_of_open_cells(path: GaussianPath) -> None:
    """A network that holds every board for equally likely, cell by cell: a closed form."""
    chances = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.1, 0.8]])
    symbols = torch.tensor([[0, 2], [1, 0], [2, 1]])
    board = torch.nn.functional.one_hot(symbols, 3).float()
    clues = Clues(board, torch.tensor([[False, False], [True, False], [False, True]]))
    asked = []

    def denoise(x_t: Tensor, t: Tensor) -> Tensor:
        asked.append((x_t, t))
        return chances.expand(len(x_t), 2, 3)

    noise = Noise.first(0, 3)
    sure = belief(denoise, path, clues, board, noise)
    assert sure.tolist() == pytest.approx([math.log(0.5 * 0.8), math.log(0.1), math.log(0.2)])
    assert [float(t) for _, t in asked] == pytest.approx([0.05, 0.1, 0.15, 0.2] * 2)  # marks were found with these
    for draw, (x_t, t) in enumerate(asked, start=1):  # noise of step 0 is that of x_T
        noised = path.alpha(t) * board + path.beta(t) * noise.normal(draw, START, 2, 3)
        assert_close(x_t, torch.where(clues.given[..., None], board, noised))


def test_belief_is_never_above_0_nor_below_a_ten_thousandth_and_keeps_no_gradient() -> None:
    """A network may answer more than 1 or less than 0 for the symbol of a cell."""
    answers = torch.tensor([[1.7, 0.0], [0.0, 0.4], [-0.3, 0.2]], requires_grad=True)
    board = torch.tensor([1.0, 0.0]).expand(3, 1, 2)
    sure = belief(lambda x, t: answers[:, None], CosinePath(), Clues.none(board), board, Noise.first(0, 3))
    assert sure.tolist() == pytest.approx([0, math.log(1e-4), math.log(1e-4)])
    assert not sure.requires_grad
