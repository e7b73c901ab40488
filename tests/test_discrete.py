"""Absorbing diffusion against the exact posterior of the 288 boards: no network, so every rate has a closed form."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import letgo
from letgo.codecs import OneHot
from letgo.config import Config
from letgo.discrete import Absorbing, ExactUnmasker, Masked, MaskedCrossEntropy, uniform
from letgo.engines.graph import Graph
from letgo.errors import LetgoError
from letgo.objectives import Batch
from letgo.pinning import Clues
from letgo.rng import Noise
from letgo.samplers import Sampler
from letgo.sampling import Snapshot, trajectory

CODEC, PATH = Masked(4), Absorbing()
DECODERS = ("ancestral", "confidence", "remask")


def puzzles(boards: Tensor, count: int, clues: int, seed: int = 0) -> Clues:
    """So many clues of random boards."""
    rng = torch.Generator().manual_seed(seed)
    solution = boards[torch.randint(len(boards), (count,), generator=rng)]
    return Clues(CODEC.encode(solution), torch.rand(count, 16, generator=rng).argsort(1).argsort(1) < clues)


def walk(boards: Tensor, rule: str, steps: int, clues: Clues, seed: int = 0) -> list[Snapshot]:
    noise, sampler = Noise.first(seed, len(clues.values)), Sampler(rule, steps)
    return list(trajectory(ExactUnmasker(boards, 4), PATH, sampler.build(), sampler.times(), clues, noise))


def numbers(boards: Tensor, answers: Tensor) -> Tensor:
    """Each answer's place in the list of all boards, -1 where it is none of them."""
    same = (answers[:, None] == boards).all(-1)
    return torch.where(same.any(1), same.int().argmax(1), -1)


def masked(x: Tensor) -> Tensor:
    return x[..., -1] > 0.5


@pytest.mark.fast
def test_the_share_of_masked_cells_is_the_time(mini_boards: Tensor) -> None:
    """16 * 2880 cells at each time, five standard deviations; fixed seed. Open cells keep their symbols."""
    x0 = CODEC.encode(mini_boards.repeat(10, 1))
    noise = torch.randn(x0.shape, generator=torch.Generator().manual_seed(0))
    for time in (0.0, 0.05, 0.3, 0.8, 1.0):
        x_t = PATH.sample(x0, torch.full((1, 1, 1), time), noise)
        hidden = masked(x_t)
        assert abs(hidden.float().mean() - time) <= 5 * (time * (1 - time) / hidden.numel()) ** 0.5
        assert torch.equal(x_t[~hidden], x0[~hidden])
        assert (x_t.sum(-1) == 1).all()


@pytest.mark.fast
def test_the_exact_posterior_is_the_share_of_agreeing_boards(mini_boards: Tensor) -> None:
    clues = puzzles(mini_boards, 20, 4)
    x_t = clues.pin(PATH.start(clues.values, lambda purpose: clues.values))
    chances = ExactUnmasker(mini_boards, 4)(x_t, torch.ones(1, 1, 1))
    for board, given, chance in zip(CODEC.decode(clues.values), clues.given, chances, strict=True):
        agreeing = mini_boards[((mini_boards == board) | ~given).all(1)]
        expected = torch.stack([(agreeing == symbol).float().mean(0) for symbol in range(4)], -1)
        torch.testing.assert_close(chance[:, :4], expected)
        assert not chance[:, 4].any()


def test_ancestral_sampling_opens_cells_at_the_rate_of_the_path(mini_boards: Tensor) -> None:
    """At every time of its own grid the share of masked cells is t again: five standard deviations each."""
    nothing = Clues.none(torch.zeros(600, 16, 5))
    for snapshot in walk(mini_boards, "ancestral", 8, nothing):
        share, t = float(masked(snapshot.x).float().mean()), snapshot.t
        assert abs(share - t) <= 5 * (t * (1 - t) / (600 * 16)) ** 0.5


def test_ancestral_sampling_in_small_steps_is_uniform_over_all_288(mini_boards: Tensor) -> None:
    """One cell at a time the law is the data's own. In 120 steps 16 cells rarely open two at once, where symbols that
    were drawn apart may clash: some boards. The chi-square of the others fails for a new seed with odds of 1e-4."""
    nothing = Clues.none(torch.zeros(864, 16, 5))
    found = numbers(mini_boards, CODEC.decode(walk(mini_boards, "ancestral", 120, nothing)[-1].x))
    valid = found >= 0
    assert valid.float().mean() > 0.75
    assert stats.chisquare(found[valid].bincount(minlength=288).numpy()).pvalue > 1e-4


def test_one_ancestral_step_draws_every_cell_by_itself(mini_boards: Tensor) -> None:
    """So P(valid) is a sum over boards of products of marginals; 40 puzzles x 100 draws, five standard deviations."""
    few = puzzles(mini_boards, 40, 4)
    x_1 = few.pin(PATH.start(few.values, lambda purpose: few.values))
    chances = ExactUnmasker(mini_boards, 4)(x_1, torch.ones(1, 1, 1))
    products = torch.stack([chances[:, torch.arange(16), board].prod(1) for board in mini_boards], 1)
    exact = products.sum(1).double()  # a board that breaks a clue has probability 0
    assert 0.01 < exact.mean() < 0.9
    draws = few[torch.arange(40).repeat(100)]
    found = numbers(mini_boards, CODEC.decode(walk(mini_boards, "ancestral", 1, draws)[-1].x))
    expected, deviation = 100 * float(exact.sum()), float((100 * exact * (1 - exact)).sum()) ** 0.5
    assert abs(int((found >= 0).sum()) - expected) < 5 * deviation
    nothing = Clues.none(torch.zeros(1000, 16, 5))  # 288 / 4^16: one of 1000 is valid with odds of 7e-5
    assert (numbers(mini_boards, CODEC.decode(walk(mini_boards, "ancestral", 1, nothing)[-1].x)) == -1).all()


@pytest.mark.parametrize(("rule", "steps"), [("confidence", 64), ("remask", 100)])
@pytest.mark.parametrize("clues", [0, 6])
def test_one_cell_at_a_time_always_ends_in_a_valid_board(
    mini_boards: Tensor, rule: str, steps: int, clues: int
) -> None:
    problem = puzzles(mini_boards, 64, clues)
    snapshots = walk(mini_boards, rule, steps, problem)
    x = snapshots[-1].x
    assert (numbers(mini_boards, CODEC.decode(x)) >= 0).all()
    assert torch.equal(x, problem.pin(x))
    hidden = torch.stack([masked(snapshot.x).sum(1) for snapshot in snapshots])
    opened = -hidden.diff(dim=0)
    assert opened.max() == 1
    assert (opened.min() < 0) == (rule == "remask")  # its sweeps hide open cells again
    assert len(numbers(mini_boards, CODEC.decode(x)).unique()) > 30


def test_the_sweeps_hide_a_fifth_of_the_open_cells_four_times(mini_boards: Tensor) -> None:
    """With 40 steps the last eight are four sweeps of two: one hides 3 of 16 cells, the other opens them."""
    hidden = [masked(snapshot.x).sum(1).unique().tolist() for snapshot in walk(
        mini_boards, "remask", 40, Clues.none(torch.zeros(5, 16, 5))
    )]  # fmt: skip
    assert hidden[31:] == [[0], *[[3], [0]] * 4]
    assert all(later <= earlier for earlier, later in pairwise(hidden[:32]))


class Guess(nn.Module):
    """Unsure of everything, and of another opinion at every time."""

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        logits = (3 * x_t.roll(1, 1) - 2 * t * x_t.roll(5, 1))[..., :-1]
        return nn.functional.pad(logits.softmax(-1), (0, 1))


@pytest.mark.parametrize("rule", DECODERS)
def test_no_mask_is_left_whatever_the_number_of_steps(mini_boards: Tensor, rule: str) -> None:
    clues = puzzles(mini_boards, 8, 3)
    for steps in (1, 2, 7, 20, 39, 41):
        sampler = Sampler(rule, steps)
        engine = Graph(Guess(), PATH, torch.device("cpu"), "fp32", compiled=False)
        x = engine.finish(sampler, clues, Noise.first(0, 8))
        assert not masked(x).any()
        assert (x.sum(-1) == 1).all()
        assert torch.equal(x, clues.pin(x))


class Unmasking(nn.Module):
    def __init__(self, boards: Tensor):
        super().__init__()
        self.exact = ExactUnmasker(boards, 4)

    def forward(self, x_t: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        return self.exact(x_t, t)


@pytest.mark.parametrize("rule", DECODERS)
def test_the_captured_loop_ends_in_the_same_boards(mini_boards: Tensor, rule: str) -> None:
    clues, noise, sampler = puzzles(mini_boards, 6, 4), Noise.first(0, 6), Sampler(rule, 25)
    loop = Graph(Unmasking(mini_boards), PATH, torch.device("cpu"), "fp32", compiled=False)
    assert torch.equal(loop.finish(sampler, clues, noise), walk(mini_boards, rule, 25, clues)[-1].x)


def test_rules_of_the_other_family_are_refused() -> None:
    with pytest.raises(LetgoError, match=r"Absorbing and Masked; choose one of confidence, ancestral, remask"):
        Sampler("tweedie").check(PATH, CODEC)
    with pytest.raises(LetgoError, match="rule 'confidence' does not fit"):
        Sampler("confidence").check(PATH, OneHot(4))  # whose last channel is a symbol, not the mask


@pytest.mark.fast
def test_the_objective_is_the_mean_of_minus_log_p_over_masked_cells(mini_boards: Tensor) -> None:
    """By hand: the true symbol of cell i gets probability 1 / (i + 2), at the objective's own times and masks."""
    x0, clues = CODEC.encode(mini_boards[:50]), puzzles(mini_boards, 50, 2)
    clues = Clues(x0, clues.given)
    chances = x0 / torch.arange(2, 18).view(1, 16, 1)
    batch = Batch(mini_boards[:50], x0, clues)
    torch.manual_seed(3)
    terms = MaskedCrossEntropy()(lambda x_t, t, context: chances, PATH, batch)
    torch.manual_seed(3)
    t = torch.rand(50, 1, 1)
    hidden = (uniform(torch.randn_like(x0))[..., 0] >= 1 - t[..., 0]) & ~clues.given
    for i in range(50):
        costs = [math.log(cell + 2) for cell in range(16) if hidden[i, cell]]
        assert float(terms["loss"][i]) == pytest.approx(sum(costs) / max(len(costs), 1))
    assert hidden.any()


def test_a_masked_model_is_trained_measured_and_solves_by_its_names(tmp_path: Path) -> None:
    small = {"width": 32, "depth": 2, "heads": 2, "hidden": 64}
    config = Config(
        "masked", "sudoku", {"box": 2}, "masked", path="absorbing", network="categorical", network_options=small,
        objective="masked", batch=32, boards=2000, steps=200, learning_rate=3e-3, warmup=20, decay=0.3, sample_steps=20,
    )  # fmt: skip
    run = letgo.train(config, tmp_path / "run", device="cpu", validate=0)
    losses = [json.loads(line)["loss"] for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    assert losses[-1] < 0.8 * losses[0] < math.log(4)
    solver = letgo.load(run.folder, "cpu")
    for rule in DECODERS:
        report = letgo.evaluate(solver, rule=rule, regime="14", count=10, steps=5)
        assert (report.rule, report.count, report.calls) == (rule, 10, 50)
    *_, final = solver.trajectory(".234341221434321", rule="confidence")
    assert solver.codec.decode(final.x)[0, 1:].tolist() == [int(c) - 1 for c in "234341221434321"]
