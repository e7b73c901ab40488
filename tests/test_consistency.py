"""Consistency training against closed forms, and its numbers against those that were published."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from refusals import fault
from torch import Tensor, nn

import letgo
from letgo import consistency
from letgo.cli import main
from letgo.consistency import ConsistencyTraining, interval_chances, intervals, noise_levels, stage_of, time_of
from letgo.engines.cpu import PackedTransformer
from letgo.kernels import tweedie
from letgo.objectives import Batch, averaged
from letgo.paths import CosinePath, LinearPath
from letgo.pinning import Clues
from letgo.presets import PRESETS
from letgo.rng import KERNEL, START, Noise
from letgo.sampling import trajectory, uniform_grid
from letgo.training.train import configured

pytestmark = pytest.mark.fast

PATH = CosinePath()
SPREAD = 0.5  # of the toy's data, N(0, SPREAD^2)


def variance(t: Tensor) -> Tensor:
    """Of x_t in the toy."""
    return PATH.alpha(t) ** 2 * SPREAD**2 + PATH.beta(t) ** 2


def test_levels_double_seven_times_in_equal_parts_of_the_run() -> None:
    """The published schedule: s0 = 10, s1 = 1280, N doubles every 50,000 of 400,000 steps."""
    steps = 400_000
    found = [intervals(int(stage_of(torch.tensor(step / steps)))) for step in range(0, steps, 25_000)]
    assert found == [n for n in (10, 20, 40, 80, 160, 320, 640, 1280) for _ in range(2)]
    for step in (49_999, 50_000, 349_999, 350_000):
        whole = min(10 * 2 ** (step // (steps // 8)), 1280)
        assert intervals(int(stage_of(torch.tensor(step / steps)))) == whole
    assert int(stage_of(torch.tensor(1.0))) == 7


def test_noise_levels_are_karras_and_their_chances_lognormal() -> None:
    """sigma in [.002, 80], rho = 7; log sigma ~ N(-1.1, 2^2) within the levels."""
    levels = noise_levels(7)
    assert len(levels) == 1281
    assert (round(float(levels[0]), 6), round(float(levels[-1]), 3)) == (0.002, 80.0)
    roots = levels ** (1 / 7)
    torch.testing.assert_close(roots.diff(), roots.diff().mean().expand(1280))
    chances, middle = interval_chances(7), (levels[1:].log() + levels[:-1].log()) / 2
    assert float(chances.sum()) == pytest.approx(1)
    mean = float((chances * middle).sum())
    normal = torch.distributions.Normal(-1.1, 2.0)
    low, high = (normal.cdf(torch.tensor(math.log(s))) for s in (0.002, 80.0))
    density = [normal.log_prob(torch.tensor(math.log(s))).exp() for s in (0.002, 80.0)]
    assert mean == pytest.approx(-1.1 - 4 * float((density[1] - density[0]) / (high - low)), abs=1e-3)  # truncated


def test_times_are_those_of_the_noise_levels() -> None:
    sigma = noise_levels(3)
    t = time_of(sigma)
    torch.testing.assert_close(PATH.beta(t) / PATH.alpha(t), sigma)


def test_the_model_answers_the_earliest_time_with_its_state_whatever_its_weights() -> None:
    network = PRESETS["sudoku-mini-consistency"].build_model()
    x = torch.randn(3, 16, 4)
    for t in (consistency.EARLIEST, consistency.EARLIEST / 2, 0.0):
        torch.testing.assert_close(network(x, torch.full((3, 1, 1), t)), x, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(network(x, torch.full((3, 1, 1), 0.01)), x, atol=1e-3)
    assert network(x, torch.ones(3, 1, 1)).isfinite().all()


def test_the_boundary_is_edms_preconditioning() -> None:
    """f = c_skip x~ + c_out F of the state x~ = x / alpha with noise sigma (Karras et al.; Song et al.)."""
    sigma, scale = noise_levels(2)[1:-1].float().view(-1, 1, 1), 0.5
    t = time_of(sigma)
    x, raw = torch.randn(len(t), 2, 3), torch.randn(len(t), 2, 3)
    skip = scale**2 / ((sigma - 0.002) ** 2 + scale**2)
    out = scale * (sigma - 0.002) / (sigma**2 + scale**2).sqrt()
    expected = skip * x / PATH.alpha(t) + out * raw
    torch.testing.assert_close(consistency.Boundary(scale)(x, t, raw), expected, rtol=1e-4, atol=1e-4)


class Gains(nn.Module):
    """f(x, t) = a(t) x with a number of its own for each level; that of the first is 1."""

    def __init__(self, stage: int) -> None:
        super().__init__()
        self.times = time_of(noise_levels(stage)).float()
        self.gains = nn.Parameter(torch.full((len(self.times) - 1,), 0.5))

    def forward(self, x: Tensor, t: Tensor, context: Tensor | None = None) -> Tensor:
        index = (t.flatten()[:, None] - self.times).abs().argmin(1)
        return torch.cat([torch.ones(1), self.gains])[index].view(-1, 1, 1) * x


def regression(stage: int) -> Tensor:
    """The exact minimiser on a grid: f(x_n+1) = E[f(x_n) | x_n+1], for Gaussian data a product of slopes."""
    t = time_of(noise_levels(stage))
    low, high = t[:-1], t[1:]
    shared = PATH.alpha(low) * PATH.alpha(high) * SPREAD**2 + PATH.beta(low) * PATH.beta(high)
    return (shared / variance(high)).cumprod(0)


def test_training_finds_the_consistency_function_of_a_gaussian() -> None:
    """Ten intervals; each gain is learned from the one before. The last steps' noise leaves errors of about .01."""
    torch.manual_seed(0)
    network, objective = Gains(0), ConsistencyTraining()
    adam = torch.optim.Adam(network.parameters(), 0.03)
    symbols = torch.zeros(256, 1, dtype=torch.long)
    for step in range(250):
        adam.param_groups[0]["lr"] = 0.1 * (1 - step / 250)
        x0 = SPREAD * torch.randn(256, 1, 1)
        batch = Batch(symbols, x0, Clues.none(x0), progress=torch.tensor(0.0))
        loss = averaged(objective(network, PATH, batch), objective.weights)["loss"].sum()
        adam.zero_grad()
        loss.backward()
        adam.step()
    torch.testing.assert_close(network.gains.detach().double(), regression(0), rtol=0.05, atol=0.02)


def test_with_all_levels_the_minimiser_is_the_probability_flow() -> None:
    """x_eps = x_t std(x_eps) / std(x_t); the error of a grid falls with its intervals."""
    errors = []
    for stage in (3, 7):
        t = time_of(noise_levels(stage))
        exact = (variance(t[:1]) / variance(t[1:])).sqrt()
        errors.append(float((regression(stage) / exact - 1).abs().max()))
    assert errors[1] < 0.01
    assert errors[1] < errors[0] / 8  # a sixteenth of the intervals' length


def test_the_target_has_no_gradient_and_pairs_share_their_noise() -> None:
    seen: list[tuple[Tensor, Tensor, bool]] = []

    def network(x: Tensor, t: Tensor, context: Tensor | None) -> Tensor:
        seen.append((x, t, torch.is_grad_enabled()))
        return x

    x0 = torch.randn(64, 3, 2, generator=torch.Generator().manual_seed(0))
    given = torch.zeros(64, 3, dtype=torch.bool)
    given[:, 0] = True
    objective = ConsistencyTraining()
    terms = objective(network, PATH, Batch(torch.zeros(64, 3, dtype=torch.long), x0, Clues(x0, given)))
    (x_low, low, learns_low), (x_high, high, learns_high) = seen
    assert (learns_low, learns_high) == (False, True)
    assert (low < high).all()
    ratio = PATH.beta(high) / PATH.alpha(high) / (PATH.beta(low) / PATH.alpha(low))
    assert ratio.max() < 20
    noise = (x_low - PATH.alpha(low) * x0) / PATH.beta(low)
    again = (x_high - PATH.alpha(high) * x0) / PATH.beta(high)
    torch.testing.assert_close(noise[:, 1:], again[:, 1:], rtol=1e-2, atol=1e-2)
    assert torch.equal(x_low[:, 0], x0[:, 0])
    assert torch.equal(x_high[:, 0], x0[:, 0])  # clues are pinned at both
    levels = noise_levels(0).float()
    pairs = torch.stack([levels[:-1], levels[1:]], 1)
    sigmas = torch.cat([PATH.beta(t) / PATH.alpha(t) for t in (low, high)], 1)[..., 0]
    assert ((sigmas[:, None] - pairs).abs() / pairs).amax(-1).amin(1).max() < 1e-3  # neighbours, always
    c, square = 0.00054 * math.sqrt(6), (x_high - x_low).flatten(1).square().sum(1)
    expected = ((square + c**2).sqrt() - c) / (sigmas[:, 1] - sigmas[:, 0])  # pseudo-Huber, weighted as published
    torch.testing.assert_close(terms["loss"], expected, rtol=1e-2, atol=1e-3)


def test_its_multistep_sampling_is_tweedie_reprojection() -> None:
    """Song et al.'s Algorithm 1 on this path, x <- alpha f(x, t) + beta z, with the same noise."""
    network, noise = PRESETS["sudoku-mini-consistency"].build_model().eval(), Noise.first(0, 3)
    clues = Clues.none(torch.zeros(3, 16, 4))
    *_, last = trajectory(network, PATH, tweedie, uniform_grid(5), clues, noise)
    x, times = noise.normal(0, START, 16, 4), uniform_grid(5).view(-1, 1, 1, 1)
    with torch.no_grad():
        for step, (t, s) in enumerate(pairwise(times), start=1):
            x = PATH.alpha(s) * network(x, t) + PATH.beta(s) * noise.normal(step, KERNEL, 16, 4)
    torch.testing.assert_close(last.x, x)


def test_the_packed_network_is_the_network() -> None:
    network = PRESETS["sudoku-mini-consistency"].build_model().eval()
    x, t = torch.randn(2, 16, 4), torch.full((1, 1, 1), 0.4)
    with torch.no_grad():
        torch.testing.assert_close(PackedTransformer(network)(x, t), network(x, t), rtol=1e-4, atol=1e-5)


def test_a_run_trains_by_its_own_schedule_and_every_verb_knows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[float] = []
    small = {"network_options": {"width": 16, "depth": 1, "heads": 2, "hidden": 16, "dropout": 0.0}}
    config = PRESETS["sudoku-mini-consistency"].changed(**small)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consistency, "stage_of", lambda p: (seen.append(float(p)), stage_of(p))[1])
        letgo.train(config, tmp_path / "r", steps=4, batch=8, boards=16, validate=2, device="cpu")
    assert seen == [0.0, 0.25, 0.5, 0.75]
    assert main(["evaluate", str(tmp_path / "r"), "--rule", "tweedie", "--steps", "5", "--count", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 5


def test_what_does_not_go_together_is_refused() -> None:
    assert "is for networks of its own" in fault(lambda: configured("sudoku-mini", objective="consistency"))
    x0 = torch.zeros(2, 1, 1)
    batch = Batch(torch.zeros(2, 1, dtype=torch.long), x0, Clues.none(x0))
    assert "for the cosine path" in fault(ConsistencyTraining(), nn.Identity(), LinearPath(), batch)
    assert PRESETS["sudoku-extreme-consistency"].learning_rate == 1e-4
    network = PRESETS["sudoku-extreme-consistency"].build_model()
    assert sum(p.numel() for p in network.parameters()) == 824_073  # "0.82M", the paper's own Transformer
