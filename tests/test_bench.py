"""Benchmarks: what they count, compare and report. Nothing here depends on how fast the machine is."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from itertools import count
from pathlib import Path
from unittest import mock

import pytest
import torch
from torch import Tensor

from letgo import cli
from letgo.answers import Answer
from letgo.bench import clock
from letgo.bench import scheduler as theirs
from letgo.bench.speed import board_flops, step_flops, trained_by
from letgo.data.source import source_of
from letgo.engines.plain import Plain
from letgo.presets import PRESETS
from letgo.rng import KERNEL, START, Noise
from letgo.solver import Solver, load
from letgo.tasks import Problem

CPU = torch.device("cpu")
QUICK = ["--device", "cpu", "--batch", "8", "--steps", "2", "--repeats", "1"]


def first_instances(name: str) -> Problem:
    return source_of(PRESETS[name].build_task()).draw("test", None, 1, 0)


# ---------------------------------------------------------------- counting


def transformer_flops(cells: int, dim: int, width: int = 128, hidden: int = 512, depth: int = 4) -> int:
    """Two FLOPs per multiply-add: the projections of each cell, scores and mixing, the two-layer time MLP."""
    projections = 3 * width * width + width * width + 2 * width * hidden
    attention = 2 * cells * width
    ends = cells * 2 * dim * width + 64 * width + width * width
    return 2 * (depth * cells * (projections + attention) + ends)


@pytest.mark.parametrize(("name", "cells", "dim"), [("sudoku", 81, 9), ("queens", 14, 14), ("latin", 49, 7)])
def test_the_flops_of_the_papers_network_are_counted_exactly(name: str, cells: int, dim: int) -> None:
    config, problem = PRESETS[name], first_instances(name)
    assert board_flops(config, problem) == transformer_flops(cells, dim)
    no_input_gradient = 2 * (cells * dim * 128 + 64 * 128)  # of the first layers
    assert board_flops(config, problem, backward=True) == 3 * transformer_flops(cells, dim) - no_input_gradient


def test_a_step_of_the_papers_sudoku_run_is_a_tenth_of_a_teraflop() -> None:
    config = PRESETS["sudoku-baseline"]
    assert sum(weight.numel() for weight in config.build_model().parameters()) == 824_073  # Table 11
    assert step_flops(config, first_instances("sudoku")) == pytest.approx(0.109e12, rel=0.01)


@pytest.mark.fast
def test_self_correction_adds_a_forward_pass_and_a_tenth_of_the_rows() -> None:
    config, problem = PRESETS["sudoku-mini"], first_instances("sudoku-mini")
    forward, both = board_flops(config, problem), board_flops(config, problem, backward=True)
    assert step_flops(config, problem) == 64 * forward + 70 * both
    assert step_flops(replace(config, full_gradient=True), problem) == 2 * 64 * both
    assert step_flops(replace(config, objective="simple"), problem) == 64 * both


@pytest.mark.fast
@pytest.mark.parametrize("name", ["connectivity-looped", "sudoku-looped"])
def test_cross_entropy_at_every_turn_multiplies_as_often_as_self_correction(name: str) -> None:
    """Each turn answers through the head in both; what is held against the solution differs."""
    config, problem = replace(PRESETS[name], batch=10), first_instances(name)
    forward, both = board_flops(config, problem), board_flops(config, problem, backward=True)
    assert step_flops(config, problem) == 10 * forward + 11 * both
    assert step_flops(trained_by(config, "self-correction"), problem) == step_flops(config, problem)


@pytest.mark.fast
def test_options_of_an_objective_stay_with_it() -> None:
    config = replace(PRESETS["sudoku"], objective_options={"reenter": "ddpm-step"})
    assert trained_by(config, "self-correction") is config
    assert trained_by(config, "simple").build_objective() == PRESETS["sudoku-baseline"].build_objective()


def test_every_compilation_is_counted() -> None:
    before = clock.builds()
    doubled = torch.compile(lambda x: x * 2, backend="eager", dynamic=False)
    doubled(torch.ones(2))
    assert clock.builds() == before + 1
    doubled(torch.ones(2))
    assert clock.builds() == before + 1
    doubled(torch.ones(3))
    assert clock.builds() == before + 2


def test_a_race_takes_turns_and_times_each_runner() -> None:
    order: list[str] = []

    def slow() -> None:
        order.append("slow")
        time.sleep(0.02)

    taken = clock.race({"slow": slow, "idle": lambda: order.append("idle")}, 3, CPU)
    assert order == ["slow", "idle"] * 3
    assert min(taken["slow"]) >= 0.02 > min(taken["idle"])


# ---------------------------------------------------------------- the peer


def end_of_scheduler_loop(solver: Solver, problem: Problem, noise: Noise, steps: int) -> Tensor:
    """The scheduler's loop with our keyed noise in the place of its own."""
    clues, scheduler = solver.clues(problem), theirs.make_scheduler(solver.config, steps)

    def draw(step: int) -> Tensor:
        return noise.normal(step, KERNEL if step else START, *clues.values.shape[1:])

    draws = map(draw, count(1))
    module = sys.modules[type(scheduler).__module__]
    with mock.patch.object(module, "randn_tensor", side_effect=lambda *_, **__: next(draws)):
        return theirs.scheduler_loop(solver, scheduler, problem, clues, draw(0))


@pytest.mark.parametrize("name", ["sudoku-mini", "connectivity"])
def test_the_scheduler_loop_ends_where_ours_ends(name: str) -> None:
    torch.manual_seed(0)
    config, noise = PRESETS[name], Noise.first(0, 3)
    solver = Solver(config, config.build_model(), "cpu", fast=False)
    problem = source_of(solver.task).draw("test", None, 3, 0)
    *_, last = solver.walk(problem, noise, solver.sampler("ddpm", 20))
    assert (last.x - end_of_scheduler_loop(solver, problem, noise, 20)).abs().max() < 1e-4


def test_the_scheduler_loop_follows_its_noise_and_solves() -> None:
    solver = load("sudoku-mini")
    problem = source_of(solver.task).draw("test", None, 3, 0)
    first, second = (end_of_scheduler_loop(solver, problem, Noise.first(seed, 3), 20) for seed in (0, 1))
    assert (first - second).abs().max() > 0.1
    clues = solver.clues(problem)
    drawn = theirs.scheduler_loop(solver, theirs.make_scheduler(solver.config, 20), problem, clues)
    assert torch.equal(drawn[problem.given], clues.values[problem.given])
    assert (solver.codec.decode(drawn) == problem.solution).float().mean() > 0.5


# ---------------------------------------------------------------- reports


def test_sampling_is_compared_three_ways_in_one_object(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "bench.json"
    words = ["bench", "sample", "sudoku-mini", *QUICK, "--json", "--out", str(out)]
    assert cli.main(words) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads(out.read_text())
    assert report["command"] == "letgo " + " ".join(words)
    assert {"device", "torch", "rows", "ratios", "matmul_peak_tflops"} <= set(report)
    rows = {row["path"]: row for row in report["rows"]}
    assert list(rows) == ["ours", "plain", "diffusers"]
    speed = {name: row["board_steps_per_second"] for name, row in rows.items()}
    assert report["ratios"] == {
        "ours / plain": speed["ours"] / speed["plain"],
        "ours / diffusers": speed["ours"] / speed["diffusers"],
    }
    for row in rows.values():
        assert row["low"] <= row["board_steps_per_second"] <= row["high"]
        assert row["board_steps_per_second"] == pytest.approx(8 / (row["ms"] / 1e3))
        assert row["tflops"] * 1e12 == pytest.approx(report["board_step_flops"] * row["board_steps_per_second"])
        assert row["rebuilt"] == 0
    assert report["weights"] == "shipped"


def test_a_bench_says_what_it_times_also_where_there_is_no_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("letgo.progress.HOLD", 0.0)
    monkeypatch.setattr("letgo.progress.LIVE", 0.01)
    assert cli.main(["bench", "sample", "sudoku-mini", *QUICK]) == 0
    assert "timing: sample sudoku-mini, on cpu\n" in capsys.readouterr().err


def test_without_diffusers_the_rest_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "diffusers.schedulers.scheduling_ddpm", None)
    assert cli.main(["bench", "sample", "sudoku-mini", *QUICK]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("diffusers left out: diffusers is not installed; `pip install") for line in lines)
    assert any(line.startswith("ours / plain: ") for line in lines)
    assert not any(line.startswith("ours / diffusers") for line in lines)


def test_a_path_that_the_scheduler_cannot_follow_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="variance-preserving"):
        theirs.make_scheduler(PRESETS["sudoku-flow"], 5)


def test_a_looped_network_is_measured_with_its_own_objective_and_names_its_turns(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = tmp_path / "bench.json"
    assert cli.main(["bench", "train", "connectivity-looped", *QUICK, "--out", str(out)]) == 0
    report, said = json.loads(out.read_text()), capsys.readouterr().out
    ms = {row["objective"]: row["ms"] for row in report["rows"]}
    assert list(ms) == ["simple", "self-correction", "cross-entropy"]
    assert {row["turns"] for row in report["rows"]} == {4}
    assert report["ratios"]["cross-entropy / simple, plain"] == ms["cross-entropy"] / ms["simple"]
    assert "\ncross-entropy, plain, 4 turns " in said
    assert cli.main(["bench", "sample", "connectivity-looped", *QUICK, "--out", str(out)]) == 0
    assert [row["turns"] for row in json.loads(out.read_text())["rows"]] == [8, 8, 8]
    assert "\nplain, fp32, 8 turns " in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sudoku-mini", "connectivity"])
def test_training_is_measured_with_both_objectives(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "train", name, *QUICK, "--json", "--seeds", "2"]) == 0
    report = json.loads(capsys.readouterr().out)
    rows = {row["objective"]: row for row in report["rows"] if row["path"] == "plain"}
    assert list(rows) == ["simple", "self-correction"]
    ratios = report["ratios"]
    assert ratios["self-correction / simple, plain"] == rows["self-correction"]["ms"] / rows["simple"]["ms"]
    assert ratios["self-correction / simple, App. C"] == 1.43
    for objective, row in rows.items():
        assert row["rebuilt"] == 0
        assert row["tflops"] * 1e12 == pytest.approx(report["step_flops"][objective] / (row["ms"] / 1e3))
        assert 0 < row["share_of_peak"] < 1
    assert cli.main(["bench", "train", name, *QUICK]) == 0
    assert "self-correction / simple, App. C: 1.43" in capsys.readouterr().out


def test_solving_is_measured_from_text_to_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Solver, "sure", property(lambda self: -0.5))
    monkeypatch.setattr(Solver, "short_try", 4)
    words = ["bench", "solve", "sudoku-mini", "--count", "5", "--images", "2", "--tries", "3", "--device", "cpu"]
    assert cli.main([*words, "--repeats", "2", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["puzzles"], report["images"], report["steps"], report["tries"]) == (10, 2, 4, 3)
    assert report["low"] <= report["puzzles_per_second"] <= report["high"]
    assert report["solved"]["n"] == 10
    assert report["calls_per_puzzle"] == pytest.approx(report["tries_per_puzzle"] * (4 + 8))
    assert report["rows_per_puzzle"] == report["calls_per_puzzle"]  # on a CPU nothing is padded
    assert report["rebuilt"] == 0
    assert cli.main([*words, "--repeats", "1"]) == 0
    assert "10 puzzles (2 images each), tweedie, up to 3 tries of 4 steps" in capsys.readouterr().out


@pytest.mark.fast
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["solve", "sudoku-mini"], "model 'sudoku-mini' does not know when it is sure of a board; give --tries 1"),
        (["solve", "sudoku-mini", "--seeds", "2"], "--seeds is for `letgo bench train`"),
        (
            ["sample", "sudoku-mini", "--images", "2"],
            "--data, --count, --images and --tries are for `letgo bench solve`",
        ),
    ],
)
def test_what_a_bench_cannot_take_is_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", *words, "--device", "cpu"]) == 2
    assert said in capsys.readouterr().err


# ---------------------------------------------------------------- early exit


@pytest.fixture(scope="module")
def mini() -> Solver:
    return load("sudoku-mini", fast=False)


def some_puzzles(solver: Solver, count: int) -> Problem:
    """About five clues of 16: some boards are found at once, some late, some never."""
    given = torch.rand(count, 16, generator=torch.Generator().manual_seed(0)) < 0.3
    return Problem(source_of(solver.task).draw("test", None, count, 0).solution, given)


def untimed(answers: list[Answer]) -> list[Answer]:
    return [replace(answer, seconds=0.0) for answer in answers]


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["tweedie", "ddpm", "heun"])
def test_finished_boards_leave_the_batch_and_no_answer_changes(
    rule: str, mini: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, sizes = some_puzzles(mini, 32), []
    hook = mini.network.register_forward_pre_hook(lambda _, inputs: sizes.append(len(inputs[0])))
    answers = untimed(mini.solve(problem, rule, steps=20, batch=16))
    assert len({a.calls for a in answers}) > 5
    assert sum(sizes) == sum(a.calls for a in answers)  # the network saw no board after its answer was found
    sizes.clear()
    monkeypatch.setattr(mini.engine, "smaller", lambda whole, size, left, cells: size)
    assert untimed(mini.solve(problem, rule, steps=20, batch=16)) == answers
    assert set(sizes) == {16}
    assert sum(sizes) > sum(a.calls for a in answers)
    hook.remove()


def test_tries_and_padded_batches_give_the_same_answers_when_boards_leave(
    mini: Solver, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = some_puzzles(mini, 41)
    answers = untimed(mini.solve(problem, "ddpm", steps=6, tries=3, batch=16))
    assert {a.tries for a in answers} == {1, 2, 3}
    monkeypatch.setattr(mini.engine, "smaller", lambda whole, size, left, cells: size)
    assert untimed(mini.solve(problem, "ddpm", steps=6, tries=3, batch=16)) == answers


def test_the_cpus_own_chunks_stay_whole_and_a_gpu_has_few_sizes(mini: Solver) -> None:
    assert mini.default_batch() == 8
    assert mini.engine.smaller(8, 8, 1, 16) == 8
    assert mini.engine.smaller(16, 16, 9, 16) == 9
    assert mini.engine.smaller(16, 5, 2, 16) == 2
    gpu = Plain(mini.network, mini.path, torch.device("meta"), "fp32")
    lefts = (4074, 2049, 2048, 513, 512, 3)
    assert [gpu.smaller(4074, 4074, left, 81) for left in lefts] == [4074, 4074, 2048, 2048, 512, 64]
    assert gpu.smaller(50, 50, 1, 81) == 50
