"""The reverse loop: grids, what it yields, which states the denoiser sees, and independence of the batch."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from letgo.errors import LetgoError
from letgo.kernels import Rule, ddim, ddpm, euler, heun, tweedie
from letgo.paths import CosinePath, GaussianPath
from letgo.pinning import Clues
from letgo.rng import START, Noise
from letgo.samplers import Sampler
from letgo.sampling import BELIEF_TIMES, Snapshot, belief, trajectory, uniform_grid

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

    sure = belief(denoise, path, clues, board, Noise.first(0, 3))
    assert sure.tolist() == pytest.approx([math.log(0.5 * 0.8), math.log(0.1), math.log(0.2)])
    assert [float(t) for _, t in asked] == pytest.approx(BELIEF_TIMES)
    for x_t, _ in asked:
        assert torch.equal(x_t[clues.given], board[clues.given])
        assert not torch.equal(x_t, board)
    assert len({x_t[0, 0, 0].item() for x_t, _ in asked}) == len(BELIEF_TIMES)  # new noise for each
