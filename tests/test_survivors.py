"""Deliberate errors in the code that no other test noticed, each with the truth that tells them."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

import letgo
from letgo import tune
from letgo.presets import PRESETS
from letgo.rng import DRAW, KERNEL, PIN, START, Noise
from letgo.samplers import Sampler
from letgo.training.data import TrainingData
from letgo.training.trainer import Trainer

# Presets that are no rows of the paper, and say so where they are defined.
OWN = ("sudoku-mini", "maze-muon", "looped", "consistency", "mnist-sudoku")


@pytest.mark.parametrize("name", [name for name in PRESETS if not any(own in name for own in OWN)])
def test_every_preset_of_the_paper_has_the_hyperparameters_of_table_4(name: str) -> None:
    preset = PRESETS[name]
    small = preset.task in ("connectivity", "maze")  # "Batch size (GC) 64"; mazes: App. D
    assert (preset.optimizer, preset.learning_rate, preset.steps) == ("adam", 1e-3, 2_000_000)
    assert preset.batch == (64 if small else 256)
    if preset.path != "absorbing":  # masked diffusion has no such weight
        assert preset.simple_weight == (0.5 if preset.task == "maze" else 0.1)


def test_adam_has_its_usual_betas() -> None:
    """After a first step of gradient g its moments are (1 - beta1) g and (1 - beta2) g^2 (Kingma and Ba, 2015)."""
    from dataclasses import replace

    from letgo.rng import data_rng

    config = replace(PRESETS["sudoku-mini"], batch=2, boards=4, warmup=1)
    problem = config.build_task().generate(4, data_rng(0, "train"), "train")
    trainer = Trainer.of(config, TrainingData.of(problem, "random", torch.device("cpu")))
    gradients = []
    trainer.flat.register_hook(lambda gradient: gradients.append(gradient.clone()))
    trainer.step()
    torch.testing.assert_close(trainer.adam["exp_avg"], 0.1 * gradients[0])
    torch.testing.assert_close(trainer.adam["exp_avg_sq"], 0.001 * gradients[0] ** 2)


def test_tuning_takes_the_best_mean_over_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the best single fold, nor the first: the second sampler wins neither and has the best mean."""
    valid = {0.1: [1, 1, 0, 0, 0, 0, 0, 0, 0, 0], 0.2: [1, 0] * 5, 0.3: [0, 0, 0, 0, 0, 0, 0, 0, 1, 1]}
    monkeypatch.setattr(
        tune, "_valid", lambda solver, problem, sampler, *_: torch.tensor(valid[sampler.sigma], dtype=torch.float32)
    )
    samplers = [Sampler("em", 2, sigma=sigma) for sigma in valid]
    solver = letgo.load("sudoku-mini")
    found = tune.tune(solver, solver.empty(10), samplers)
    assert found["best"] == {"sigma": 0.2, "tau_start": None, "validity": 0.5}
    assert found["grid"][0]["folds"] == [1.0, 0.0, 0.0, 0.0, 0.0]


def test_another_checkpoint_must_lead_by_more_than_a_standard_error() -> None:
    """With a share p of n boards the standard error is sqrt(p (1 - p) / n): .04 for .8 of 100."""
    assert math.isclose(math.sqrt(0.8 * 0.2 / 100), 0.04)
    assert tune.best_of([0.8, 0.83], 100) == 0
    assert tune.best_of([0.8, 0.85], 100) == 1
    assert tune.best_of([0.8, 0.85, 0.9], 100) == 2
    assert tune.best_of([0.8, 0.83], 10_000) == 1


def test_noise_of_no_purpose_is_that_of_another_step() -> None:
    """Every purpose that there is, at neighbouring steps; the odds of two equal rows of eight values are nil."""
    wanted = itertools.product(range(8), (START, KERNEL, PIN, DRAW))
    draws = torch.cat([Noise.first(0, 1).normal(step, purpose, 2, 4).flatten(1) for step, purpose in wanted])
    assert len(torch.unique(draws, dim=0)) == 32
