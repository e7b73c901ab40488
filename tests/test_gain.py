"""The gain of a push, a run's kept weights and a data set's sources: against formulas and plain recounts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import letgo
from letgo.analysis import analysis_of, gain, sources, weights
from letgo.analysis.study import Piece, Study, Wish, run_analysis
from letgo.data.source import source_of
from letgo.evaluation import evaluate
from letgo.presets import PRESETS
from letgo.samplers import Sampler
from letgo.solver import Solver, load
from letgo.tasks import Problem


def study(model: str = "sudoku-mini", count: int = 4, **wish: object) -> Study:
    solver = load(model, "cpu")
    problem = source_of(solver.task).draw("valid", None, count, 0)
    return Study(Wish(**{"steps": 10, **wish}), count, solver, problem)  # pyright: ignore[reportArgumentType]


@pytest.mark.fast
def test_a_network_that_halves_what_it_is_shown_keeps_half_of_a_push_times_alpha(monkeypatch: pytest.MonkeyPatch):
    """f(x, t) = x / 2: a push p of the blur b comes back as alpha p / 2, whatever the noise."""
    told: list[float] = []

    def halves(piece: Piece, x_t: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        told.append(float(t))
        return x_t / 2

    monkeypatch.setattr(Piece, "propose", halves)
    found = gain.measured(study(), ahead=2.0)
    alpha = torch.cos(torch.tensor(gain.TIMES) * torch.pi / 2)
    assert found["gain"] == pytest.approx((alpha / 2).tolist(), abs=1e-4)
    assert (found["crossing"], found["growth"]) == (None, 0.0)
    assert told[0] == 1  # the blur is proposed from noise alone
    assert sorted(set(told[1:])) == pytest.approx(sorted({max(t - 0.2, 0) for t in gain.TIMES}), abs=1e-6)


@pytest.mark.fast
def test_clued_cells_are_neither_pushed_nor_counted(monkeypatch: pytest.MonkeyPatch):
    """A network that answers with the clean board leaves the blur by its distance from the board: by one."""
    part = study()

    def knows(piece: Piece, x_t: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        clean = piece.clues.values + 5.0 * piece.clues.given[..., None]
        return torch.full_like(x_t, 0.25) if float(t) == 1 else clean

    monkeypatch.setattr(Piece, "propose", knows)
    found = gain.measured(part)
    assert found["left"][:-1] == pytest.approx([1.0] * (gain.LEVELS - 1), abs=1e-5)
    assert found["gain"] == pytest.approx([0.0] * gain.LEVELS, abs=1e-5)


@pytest.mark.fast
def test_where_a_push_begins_to_grow_and_by_how_much():
    assert gain.crossing([0.1, 0.2, 0.4], [3.0, 2.0, 0.0]) == pytest.approx(0.3)
    assert gain.crossing([0.1, 0.2], [0.9, 0.5]) is None
    assert gain.crossing([0.1, 0.2], [2.0, 1.5]) == 0.2
    e = 2.718281828
    assert gain.growth([0.0, 0.1, 0.2], [e, e, 0.2], 100) == pytest.approx(15, abs=1e-3)  # 10 steps of e, 10 halved


def test_kept_weights_are_measured_as_they_are_kept(tmp_path: Path):
    out = tmp_path / "run"
    letgo.train("sudoku-mini", out=out, steps=6, keep=(3,), validate=0, device="cpu", batch=4, boards=16)
    solver = load(str(out), "cpu", fast=False)
    part = Study(Wish(steps=10), 3, solver, source_of(solver.task).draw("valid", None, 3, 0))
    rows = weights.run(part)["rows"]
    assert [(row["training_steps"], row["weights"]) for row in rows] == [(3, "ema"), (3, "raw"), (6, "ema"), (6, "raw")]
    last = evaluate(solver, part.problem, Sampler("tweedie", 10)).validity.as_dict()
    assert rows[2]["rules"]["tweedie"]["validity"] == last  # a run's model is its last average
    assert rows[0]["gain"] != rows[1]["gain"]
    best = {"rules": {"euler": {"validity": {"value": 0.5}}}}
    assert weights.picked([{"rules": {"euler": {"validity": {"value": 0.2}}}}, best]) is best


def test_as_many_puzzles_of_every_source_and_each_under_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Of 8, 3 and 1 puzzles seven are 3, 3 and 1; a sampler that is right about one source is right there alone."""
    config = replace(PRESETS["sudoku-extreme"], network_options={"width": 16, "depth": 1, "heads": 2, "hidden": 16})
    solver = Solver(config, config.build_model(), "cpu")
    boards, _ = solver.task.solved(12, np.random.default_rng(0))
    names = ["hard"] * 8 + ["unbiased"] * 3 + ["17_clue"]
    answers = solver.task.format(boards, Problem(boards, torch.ones_like(boards, dtype=torch.bool)))
    lines = [f"{name},{answer[:40]}{'.' * 41},{answer},1" for name, answer in zip(names, answers, strict=True)]
    (tmp_path / "test.csv").write_text("\n".join(["source,question,answer,rating", *lines]))
    right = {tuple(board) for board in boards[8:11].tolist()}

    def sample(problem: Problem, *_: object, **__: object) -> torch.Tensor:
        known = torch.tensor([[tuple(board) in right] for board in problem.solution.tolist()])
        return torch.nn.functional.one_hot(problem.solution.where(known, problem.solution * 0), 9).float()

    monkeypatch.setattr(solver, "sample", sample)
    wish = Wish(count=7, split="test", data=str(tmp_path), quick=True)
    report = run_analysis(analysis_of("sources"), solver, wish)
    assert report["n"] == 7
    assert report["shares"] == {"hard": 8 / 12, "unbiased": 3 / 12, "17_clue": 1 / 12}
    for row in report["rows"]:
        assert {name: (found["value"], found["n"]) for name, found in row["sources"].items()} == {
            "hard": (0, 3), "unbiased": (1, 3), "17_clue": (0, 1),
        }  # fmt: skip
        assert row["mixed"] == pytest.approx(0.25)
    assert {row["rule"] for row in report["rows"]} == {"ddpm", "tweedie"}
    assert "hard 0.000 (n = 3); unbiased 1.000 (n = 3); 17_clue" in sources.tell(report)  # few everywhere: all are told
    report["rows"][0]["sources"]["hard"]["n"] = 5
    assert sources.told(report) == ["hard"]
