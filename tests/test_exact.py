"""Samplers without a network: the exact denoiser over all 288 4x4 Sudoku boards."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Tensor
from torch.testing import assert_close

import letgo
from letgo.codecs import OneHot
from letgo.kernels import Rule, ddpm, euler, tweedie
from letgo.models.denoiser import Denoiser, ExactDenoiser
from letgo.paths import CosinePath, GaussianPath, LinearPath
from letgo.pinning import Clues
from letgo.rng import Noise
from letgo.samplers import RULES, Sampler
from letgo.sampling import trajectory, uniform_grid

SETTINGS = {"em": {"sigma": 0.3}, "em-decay": {"sigma": 7.0, "tau_start": 0.7}}
GAUSSIAN = [name for name, kind in RULES.items() if kind.family == "gaussian"]
ALL_RULES: dict[str, Rule] = {name: Sampler(name, **SETTINGS.get(name, {})).build() for name in GAUSSIAN}
CODEC = OneHot(4)


def puzzles(boards: Tensor, count: int, clues: int | Tensor, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Random boards with this many randomly placed clues."""
    rng = torch.Generator().manual_seed(seed)
    solution = boards[torch.randint(len(boards), (count,), generator=rng)]
    return solution, torch.rand(count, 16, generator=rng).argsort(1).argsort(1) < clues


def solved(boards: Tensor, rule: Rule, path: GaussianPath, count: int, clues: int | Tensor, told: bool) -> int:
    """How many of the puzzles end on one of the 288 boards with their clues kept. `told`: the denoiser knows clues."""
    solution, given = puzzles(boards, count, clues)
    pinned = Clues(CODEC.encode(solution), given)
    exact = ExactDenoiser(CODEC.encode(boards), path, pinned if told else None)
    *_, final = trajectory(exact, path, rule, uniform_grid(200), pinned, Noise.first(0, count))
    answers = CODEC.decode(final.x)
    valid = {tuple(board) for board in boards.tolist()}
    kept = ((answers == solution) | ~given).all(1).tolist()
    return sum(tuple(answer) in valid and keeps for answer, keeps in zip(answers.tolist(), kept, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("rule", ALL_RULES.values(), ids=ALL_RULES)
def test_every_sampler_always_solves_with_the_true_posterior(mini_boards: Tensor, rule: Rule) -> None:
    """From nothing, from 4 clues and from 8."""
    clues = torch.tensor([0, 4, 8]).repeat_interleave(12)[:, None]
    assert solved(mini_boards, rule, CosinePath(), count=36, clues=clues, told=True) == 36


@pytest.mark.parametrize("name", ["ddpm", "tweedie", "euler"])
def test_the_linear_path_always_solves_with_the_true_posterior_too(mini_boards: Tensor, name: str) -> None:
    assert solved(mini_boards, ALL_RULES[name], LinearPath(), count=32, clues=4, told=True) == 32


def test_pinning_alone_shows_the_gap_between_ddpm_and_tweedie(mini_boards: Tensor) -> None:
    """A denoiser that does not know the clues sees them only in x_t, as a network does.

    With 2000 puzzles DDPM solved .31 and Tweedie .88 (docs/without-a-network.md). The bands are those rates +- 5
    standard errors of 400 puzzles, so for a new seed the odds of a false alarm are about 1e-6.
    """
    count = 400
    rates = {rule: solved(mini_boards, rule, CosinePath(), count, 4, told=False) / count for rule in (ddpm, tweedie)}
    for rule, expected in ((ddpm, 0.31), (tweedie, 0.88)):
        assert abs(rates[rule] - expected) < 5 * (expected * (1 - expected) / count) ** 0.5
    assert rates[tweedie] - rates[ddpm] > 0.35


def test_without_clues_there_is_no_gap(mini_boards: Tensor) -> None:
    for rule in (ddpm, tweedie):
        assert solved(mini_boards, rule, CosinePath(), count=32, clues=0, told=False) == 32


@pytest.mark.slow
@pytest.mark.parametrize("rule", [ddpm, euler])
def test_generated_boards_are_uniform_over_all_288(mini_boards: Tensor, rule: Rule) -> None:
    """Exact scores and small steps sample the data's own law. Fixed seed; a new one fails with odds of 1e-4."""
    count, codec = 2880, OneHot(4)
    nothing = Clues.none(torch.zeros(count, 16, 4))
    exact = ExactDenoiser(codec.encode(mini_boards), CosinePath())
    *_, final = trajectory(exact, CosinePath(), rule, uniform_grid(100), nothing, Noise.first(0, count))
    index = {tuple(board): i for i, board in enumerate(mini_boards.tolist())}
    found = torch.tensor([index[tuple(board)] for board in codec.decode(final.x).tolist()])
    assert stats.chisquare(found.bincount(minlength=288).numpy()).pvalue > 1e-4


@pytest.mark.fast
def test_the_denoiser_that_is_told_the_clues_proposes_only_boards_that_keep_them(mini_boards: Tensor) -> None:
    solution, given = puzzles(mini_boards, 20, clues=4)
    clues = Clues(CODEC.encode(solution), given)
    exact = ExactDenoiser(CODEC.encode(mini_boards), CosinePath(), clues)
    assert isinstance(exact, Denoiser)
    x_t = torch.randn(20, 16, 4, generator=torch.Generator().manual_seed(0))
    proposal = exact(x_t, torch.full((1, 1, 1), 0.8))
    assert_close(proposal[given], clues.values[given])
    agreeing = [((mini_boards == board) | ~mask).all(1) for board, mask in zip(solution, given, strict=True)]
    assert torch.equal(torch.stack(agreeing), ~exact.contradicts)
    averages = torch.stack([CODEC.encode(mini_boards[keep]).mean(0) for keep in agreeing])
    assert_close(exact(x_t, torch.ones(1, 1, 1)), averages)  # pure noise: every agreeing board counts alike


@pytest.mark.slow
def test_the_example_of_the_docs_runs() -> None:
    script = Path(__file__).parents[1] / "examples" / "exact_denoiser.py"
    command = [sys.executable, str(script), "--count", "20", "--steps", "20"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout.count("| tweedie |") == 2
    assert "n = 20 each, 20 steps, seed 0" in result.stdout
    assert result.stderr == ""


def test_tweedie_keeps_half_of_a_gaussians_variance_and_ddpm_nearly_all() -> None:
    """The denoiser of N(0, c^2) is linear, so the last variance is known. Bounds are 5 deviations of 40,000: 1e-6."""
    path, c, steps = CosinePath(), 0.3, 200

    def denoise(x_t: Tensor, t: Tensor) -> Tensor:
        alpha, beta = path.alpha(t), path.beta(t)
        return alpha * c**2 / (alpha**2 * c**2 + beta**2) * x_t

    variance = torch.ones(1, 1, 1)
    for t, s in pairwise(uniform_grid(steps).view(-1, 1, 1, 1)):
        gain = denoise(torch.ones(1, 1, 1), t)
        variance = (path.alpha(s) * gain) ** 2 * variance + path.beta(s) ** 2
    kept = float(variance) / c**2
    assert kept == pytest.approx(0.475, abs=1e-3)
    drawn = {rule: letgo.sample(denoise, (40, 1000, 1), rule=rule, steps=steps) for rule in ("tweedie", "ddpm")}
    assert float(drawn["tweedie"].var()) / c**2 == pytest.approx(kept, abs=0.018)
    assert float(drawn["ddpm"].var()) / c**2 == pytest.approx(0.945, abs=0.036)  # 1 in the limit of many steps
