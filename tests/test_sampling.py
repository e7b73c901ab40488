"""The reverse loop: grids, what it yields, which states the denoiser sees, and independence of the batch."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from letgo.codecs import OneHot
from letgo.errors import LetgoError
from letgo.kernels import Rule, Transition, ddim, ddpm, euler, heun, tweedie
from letgo.models.denoiser import ExactDenoiser
from letgo.paths import CosinePath, GaussianPath
from letgo.pinning import Clues
from letgo.rng import PIN, START, Noise
from letgo.samplers import RULES, Sampler
from letgo.sampling import BELIEF_TIMES, Snapshot, Walk, belief, starting_state, trajectory, uniform_grid

SETTINGS = {"em": {"sigma": 0.3}, "em-decay": {"sigma": 7.0, "tau_start": 0.7}}
ALL_RULES: dict[str, Rule] = {
    name: Sampler(name, **SETTINGS.get(name, {})).build() for name, kind in RULES.items() if kind.family == "gaussian"
}
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


@pytest.mark.parametrize("rule", ALL_RULES.values(), ids=ALL_RULES)
@pytest.mark.parametrize("soft_until", [float("inf"), 0.5])
def test_every_turn_is_algorithm_1(path: GaussianPath, rule: Rule, soft_until: float) -> None:
    """Propose, update, pin, with the noise that belongs to the step; each turn replayed by hand, bit for bit."""
    clues, noise, denoise = some_clues(3, soft_until), Noise.first(4, 3), Recorder()
    times = torch.tensor([1.0, 0.9, 0.55, 0.5, 0.2, 0.0])
    x_t = clues.pin_at(noise.normal(0, START, *SHAPE), torch.ones(1, 1, 1), path, noise.normal(0, PIN, *SHAPE))
    assert torch.equal(starting_state(noise, clues, path), x_t)
    snapshots = list(trajectory(denoise, path, rule, times, clues, noise))
    assert [snapshot.step for snapshot in snapshots] == [1, 2, 3, 4, 5]
    assert [snapshot.t for snapshot in snapshots] == times[1:].tolist()
    for i, snapshot in enumerate(snapshots, start=1):
        t, s = times[i - 1].view(1, 1, 1), times[i].view(1, 1, 1)
        assert torch.equal(snapshot.x0_hat, denoise(x_t, t))
        kernel = rule(Transition(path, lambda x, t: denoise(clues.pin(x), t), x_t, snapshot.x0_hat, t, s))
        x_s = kernel.sample(lambda purpose, i=i: noise.normal(i, purpose, *SHAPE))
        x_t = clues.pin_at(x_s, s, path, noise.normal(i, PIN, *SHAPE))
        assert torch.equal(snapshot.x, x_t)


@pytest.mark.parametrize("rule", ALL_RULES.values(), ids=ALL_RULES)
def test_the_denoiser_only_ever_sees_pinned_states(path: GaussianPath, rule: Rule) -> None:
    """Heun looks a second time, at a state of its own making: that one is pinned too."""
    clues, denoise = some_clues(3), Recorder()
    list(trajectory(denoise, path, rule, uniform_grid(4), clues, Noise.first(0, 3)))
    for x, _ in denoise.seen:
        assert torch.equal(x, clues.pin(x))
    looks = [1.0, 0.75, 0.75, 0.5, 0.5, 0.25, 0.25, 0.0] if rule is heun else [1.0, 0.75, 0.5, 0.25]
    assert [t for _, t in denoise.seen] == looks


@pytest.mark.parametrize("rule", ALL_RULES.values(), ids=ALL_RULES)
def test_the_last_state_keeps_every_clue(path: GaussianPath, rule: Rule) -> None:
    for soft_until in (float("inf"), 0.5, 0.0):
        clues = some_clues(3, soft_until)
        x = last(trajectory(Recorder(), path, rule, uniform_grid(10), clues, Noise.first(0, 3)))
        assert torch.equal(x, clues.pin(x))


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


@pytest.mark.parametrize("rule", ALL_RULES.values(), ids=ALL_RULES)
def test_an_answer_does_not_depend_on_its_batch(path: GaussianPath, rule: Rule) -> None:
    clues, noise = some_clues(13, soft_until=0.5), Noise.first(2, 13)
    together = last(trajectory(Recorder(), path, rule, uniform_grid(10), clues, noise))
    for part in (slice(0, 1), slice(5, 12), torch.tensor([12, 3])):
        alone = last(trajectory(Recorder(), path, rule, uniform_grid(10), clues[part], noise[part]))
        assert torch.equal(alone, together[part])


@pytest.mark.parametrize("rule", [ddpm, tweedie])
def test_an_exactly_denoised_board_does_not_depend_on_its_batch(rule: Rule, mini_boards: Tensor) -> None:
    """Matrix products may round by batch size, but 200 steps on the decoded boards are the same."""
    codec, path, noise = OneHot(4), CosinePath(), Noise.first(0, 12)
    given = torch.rand(12, 16, generator=torch.Generator().manual_seed(0)) < 0.25
    clues = Clues(codec.encode(mini_boards[::24]), given)
    exact = ExactDenoiser(codec.encode(mini_boards), path)
    together = last(trajectory(exact, path, rule, uniform_grid(200), clues, noise))
    parts = [slice(i, i + 1) for i in range(0, 12, 4)]
    alone = [last(trajectory(exact, path, rule, uniform_grid(200), clues[part], noise[part])) for part in parts]
    assert torch.equal(codec.decode(torch.cat(alone)), codec.decode(together[::4]))


@pytest.mark.parametrize("rule", [ddpm, tweedie], ids=["ddpm", "tweedie"])
def test_a_run_that_goes_on_from_its_own_state_ends_as_it_would_have(rule: Rule) -> None:
    clues, noise, path = some_clues(3, soft_until=0.5), Noise.first(0, 3), CosinePath()
    whole = list(trajectory(Recorder(), path, rule, uniform_grid(6), clues, noise))
    for done in (1, 4, 5):
        walk = Walk(whole[done - 1].x, done=done)
        rest = list(trajectory(Recorder(), path, rule, uniform_grid(6), clues, noise, walk))
        assert [(snapshot.step, snapshot.t) for snapshot in rest] == [(s.step, s.t) for s in whole[done:]]
        assert torch.equal(rest[-1].x, whole[-1].x)


def test_seeds_and_tries_give_other_answers_and_repeating_gives_the_same() -> None:
    clues, noise = some_clues(2), Noise.first(0, 2)

    def run(noise: Noise) -> Tensor:
        return last(trajectory(Recorder(), CosinePath(), tweedie, uniform_grid(5), clues, noise))

    first = run(noise)
    assert torch.equal(first, run(noise))
    assert not torch.equal(first, run(Noise(1, noise.instance, noise.attempt)))
    assert not torch.equal(first, run(Noise(0, noise.instance, noise.attempt + 1)))


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


@pytest.mark.parametrize("rule", ALL_RULES.values(), ids=ALL_RULES)
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


@pytest.mark.parametrize("rule", ALL_RULES.values(), ids=ALL_RULES)
@pytest.mark.parametrize("remembers", [False, True])
def test_a_walk_that_is_cut_by_rows_goes_on_to_the_same_bits(path: GaussianPath, rule: Rule, remembers: bool) -> None:
    def denoise(x_t: Tensor, t: Tensor, memory: Tensor | None = None) -> tuple[Tensor, Tensor] | Tensor:
        if not remembers:
            return Recorder()(x_t, t)
        memory = (0 if memory is None else memory) + x_t.clamp(-1, 1)
        return Recorder()(x_t + memory, t), memory

    clues, noise, kept = some_clues(5, soft_until=0.5), Noise.first(3, 5), torch.tensor([4, 1])
    whole = list(trajectory(denoise, path, rule, uniform_grid(6), clues, noise))
    assert (whole[2].walk.memory is not None) == remembers
    rest = list(trajectory(denoise, path, rule, uniform_grid(6), clues[kept], noise[kept], whole[2].walk[kept]))
    assert [(s.step, s.t) for s in rest] == [(s.step, s.t) for s in whole[3:]]
    for ours, theirs in zip(rest, whole[3:], strict=True):
        assert torch.equal(ours.x, theirs.x[kept])
        assert torch.equal(ours.x0_hat, theirs.x0_hat[kept])


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
