"""Analyses of settings, steps and trajectories: what they report is what `letgo evaluate` and the task say."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import letgo
from letgo.analysis import curves, fields, lines, sweep, trajectory
from letgo.analysis.study import Study, Wish
from letgo.data.source import source_of
from letgo.evaluation import evaluate
from letgo.presets import PRESETS
from letgo.samplers import Sampler
from letgo.sampling import diverged
from letgo.solver import Solver, load
from letgo.tasks import Problem
from letgo.tune import tune


def study(model: str = "sudoku-mini", count: int = 9, **wish: object) -> Study:
    solver = load(model, "cpu")
    problem = source_of(solver.task).draw("valid", None, count, 0)
    return Study(Wish(**{"steps": 8, **wish}), count, solver, problem)  # pyright: ignore[reportArgumentType]


@pytest.mark.fast
def test_rows_are_what_evaluate_measures_with_an_error_over_three_parts() -> None:
    part = study()
    samplers = [Sampler("ddpm", 8), Sampler("tweedie", 5, ahead=1.0)]
    rows = sweep.measured(part, samplers)
    for row, sampler in zip(rows, samplers, strict=True):
        assert row["validity"] == evaluate(part.solver, part.problem, sampler).validity.as_dict()
        assert (row["rule"], row["steps"], row["settings"]) == (sampler.rule, sampler.steps, sampler.settings)
    valid = torch.tensor([True] * 2 + [False] + [True] * 3 + [False] * 3)  # 2/3, 1 and 0: deviation .5092
    assert sweep.row_of(samplers[0], valid)["standard_error"] == pytest.approx(0.50918 / math.sqrt(3), abs=1e-4)
    assert sweep.row_of(samplers[0], valid[:2])["standard_error"] is None


def test_of_200_steps_the_counts_are_table_10s_and_a_call_is_a_call() -> None:
    assert sweep.counts(study(steps=200), lines.STEPS) == [25, 50, 100, 200, 500, 1000, 2000, 5000]
    assert sweep.counts(study(steps=200, quick=True), lines.STEPS) == [25, 50, 100, 200]
    assert sweep.counts(study(steps=200, quick=True), lines.STEPS, lines.QUICK)[-2:] == [500, 1000]
    assert sweep.counts(study(steps=1000), lines.CALLS)[-1] == 5000
    rows = lines.calls.run(study(count=2, quick=True))["rows"]
    by_rule = {row["rule"]: row for row in rows if row["calls"] == 8}
    assert by_rule["heun"]["steps"] == 4
    assert by_rule["tweedie"]["steps"] == 8
    assert not {"em", "em-decay"} & set(by_rule)
    by_rule = sweep.by_setting(rows, "calls")
    assert {"tweedie", "tweedie, ahead 1", "heun"} <= set(by_rule)
    assert [row["calls"] for row in by_rule["ddpm"]] == sorted(row["calls"] for row in rows if row["rule"] == "ddpm")


def test_the_field_of_em_decay_is_the_grid_of_tune() -> None:
    found = fields.decay.run(study(count=3, quick=True))
    settings = {(row["settings"]["sigma"], row["settings"]["tau_start"]) for row in found["rows"]}
    assert settings == {(s, t) for s in (3.0, 5.0, 7.0, 10.0, 14.0) for t in (0.6, 0.7, 0.8)}
    assert found["tweedie"]["n"] == 3


def test_the_field_of_times_has_the_usual_grid_and_every_pair_that_falls() -> None:
    part = study(count=6, quick=True)
    found = fields.times.run(part)["rows"]
    pairs = [(row["settings"].get("t_max", 1.0), row["settings"].get("t_min", 0.0)) for row in found]
    assert pairs == [(t, s) for t in (1, 0.5, 0.2, 0.1) for s in (0, 0.02, 0.1) if s < t]
    usual, last = found[0], found[-1]
    assert usual["validity"] == evaluate(part.solver, part.problem, Sampler("tweedie", 8)).validity.as_dict()
    assert last["settings"] == {"t_max": 0.1, "t_min": 0.02}
    sampler = Sampler("tweedie", 8, t_max=0.1, t_min=0.02)
    assert last["validity"] == evaluate(part.solver, part.problem, sampler).validity.as_dict()
    assert fields.by_times(study("sudoku-extreme-looped", quick=True))[0].rule == "resample"


def test_a_setting_that_diverges_is_a_setting_without_valid_boards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of EM decay's grid the greatest sigma may; the others are still measured, and `tune` takes another."""
    whole = Solver.sample

    def sample(solver: Solver, problem: Problem, sampler: Sampler, *args: object, **words: object) -> torch.Tensor:
        if sampler.sigma == 14:
            raise diverged(7)
        return whole(solver, problem, sampler, *args, **words)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(Solver, "sample", sample)
    part = study(count=6)
    samplers = [Sampler("em-decay", 40, sigma=sigma, tau_start=0.7) for sigma in (14.0, 3.0)]
    gone, other = sweep.measured(part, samplers)
    assert (gone["validity"]["value"], gone["validity"]["n"], gone["diverged"]) == (0, 6, True)
    assert "diverged" not in other
    assert sweep.line(gone).endswith(" diverged")
    table = tune(part.solver, part.problem, samplers)
    assert table["grid"][0]["validity"] == 0 < table["grid"][1]["validity"]
    assert table["best"]["sigma"] == 3


def test_a_runs_curve_has_a_point_for_every_kept_checkpoint(tmp_path: Path) -> None:
    out = tmp_path / "run"
    letgo.train("sudoku-mini", out=out, steps=6, keep=(2, 4), validate=0, device="cpu", batch=4, boards=16)
    part = study(str(out), count=3)
    rows = curves.run(part)["rows"]
    assert [(row["training_steps"], row["rule"]) for row in rows] == [
        (step, rule) for step in (2, 4, 6) for rule in curves.RULES
    ]
    earlier = evaluate(load(f"{out}@2", "cpu"), part.problem, Sampler("tweedie", 8)).validity.as_dict()
    assert rows[1]["validity"] == earlier
    assert part.solver.folder == out  # the study is handed back as it was
    assert [row["training_steps"] for row in curves.run(study(count=2))["rows"]] == [4000, 4000]  # the card's


@pytest.mark.fast
def test_a_trajectory_shows_the_states_of_the_loop_and_the_first_instance_that_tells_the_rules_apart() -> None:
    part = study(count=12, steps=20)
    found = trajectory.run(part)
    ends = {rule: part.solver.sample(part.problem, Sampler(rule, 20)).argmax(-1) for rule in ("ddpm", "tweedie")}
    valid = {rule: part.solver.task.validate(boards, part.problem) for rule, boards in ends.items()}
    telling = (~valid["ddpm"] & valid["tweedie"]).nonzero().flatten().tolist()
    assert found["telling"] == len(telling) > 0
    assert found["instance"] == telling[0]
    for rule, walk in found["walks"].items():
        assert [frame["step"] for frame in walk] == trajectory.kept_steps(20)
        last, number = walk[-1], torch.tensor([found["instance"]])
        assert last["tau"] == 1
        assert last["state"]["symbols"] == ends[rule][number[0]].tolist()
        board = torch.tensor([last["state"]["symbols"]])
        broken = part.solver.task.violations(board, part.problem[number])[0].nonzero().flatten().tolist()
        assert last["state"]["broken"] == broken
        assert (rule == "tweedie") == (not broken)


def test_a_states_certainty_is_bayes_rule_for_the_cell_alone() -> None:
    """One-hot and equal chances: the posterior of symbol k is proportional to exp(alpha x_k / beta^2)."""
    part = study(count=1)
    [piece] = part.pieces()
    x = torch.randn(1, 16, 4, generator=torch.Generator().manual_seed(0))
    board = trajectory.board_of(piece, x, 0.4)
    alpha, beta = math.cos(math.pi * 0.2), math.sin(math.pi * 0.2)
    expected = (alpha * x / beta**2).softmax(-1).amax(-1)[0].tolist()
    assert board["certainty"] == pytest.approx(expected, abs=0.006)


@pytest.mark.extras
@pytest.mark.parametrize("name", ["queens", "connectivity", "maze", "latin", "sudoku-d3pm"])
def test_boards_of_every_kind_are_drawn(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    config = PRESETS[name]
    small = {"width": 8} if config.network == "nlm" else {"width": 16, "depth": 1, "heads": 2, "hidden": 16}
    solver = Solver(replace(config, network_options=small), replace(config, network_options=small).build_model())
    problem = source_of(solver.task).draw("valid", None, 1, 0)
    part = Study(Wish(steps=3), 1, solver, problem)
    report = {"model": name, "split": "valid", "seed": 0, "n": 1, **trajectory.run(part)}
    figure = trajectory.plot([report])
    figure.savefig(tmp_path / "strip.png")
    assert (tmp_path / "strip.png").stat().st_size > 4000
    drawn = sum(len(axis.patches) + len(axis.texts) + len(axis.images) + len(axis.lines) for axis in figure.axes)
    assert drawn > 4 * len(figure.axes) or name == "maze"
