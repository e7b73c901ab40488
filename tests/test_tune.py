"""Tuning: the checkpoint by Euler, the grids, and that test instances play no part."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import letgo
from letgo import tune as tuning
from letgo.cli import main
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.progress import Voice
from letgo.rng import Noise
from letgo.runs import Run, load_weights, locate, locked, save_weights
from letgo.samplers import Sampler
from letgo.sampling import Diverged
from letgo.solver import Solver, load
from letgo.tasks import Problem
from letgo.tune import (
    LONG_SIGMAS,
    SIGMAS,
    TAU_STARTS,
    advice,
    best_of,
    check_count,
    find_sure,
    grid_of,
    pick_checkpoint,
    sure_early,
    together,
    tune,
    walked,
)

FAST = ["--batch", "4", "--boards", "20", "--validate", "0", "--device", "cpu", "--quiet"]
TUNE = ["--count", "20", "--steps", "20", "--device", "cpu", "--quiet"]


@pytest.fixture(autouse=True)
def cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of training know nothing, but the raw weights kept at step 1 are those of the shipped model."""
    out = tmp_path_factory.mktemp("runs") / "run"
    assert main(["train", "sudoku-mini", "--out", str(out), "--steps", "2", "--keep", "1,2", *FAST]) == 0
    path = out / "checkpoints" / "1.safetensors"
    shipped = load_weights(locate("sudoku-mini")[0] / "model.safetensors")
    untrained = load_weights(path, "ema.")
    save_weights(path, {f"ema.{k}": v for k, v in untrained.items()} | {f"raw.{k}": v for k, v in shipped.items()})
    return out


@pytest.fixture
def run(tmp_path: Path, trained: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "run")


def table(run: Path, *words: str) -> dict[str, Any]:
    assert main(["tune", str(run), "--rule", "em", "--sigmas", "0.1", *TUNE, *words]) == 0
    return json.loads((run / "tune-em.json").read_text())


def test_the_checkpoint_that_euler_does_best_with_becomes_the_model(run: Path, tmp_path: Path) -> None:
    picked = table(run)["checkpoint"]
    assert (picked["step"], picked["weights"], picked["count"]) == (1, "raw", 20)
    assert [(row["step"], row["weights"]) for row in picked["scores"]] == [
        (2, "ema"),
        (2, "raw"),
        (1, "ema"),
        (1, "raw"),
    ]
    assert picked["validity"] > 0.5  # of untrained weights, hardly one board in a thousand is valid
    assert json.loads((run / "config.json").read_text())["weights"] == "raw"
    assert json.loads((run / "validation.json").read_text())["checkpoint"] == picked
    report = tmp_path / "report.json"
    assert main(["evaluate", str(run), "--rule", "em", *TUNE, "--out", str(report)]) == 0
    assert json.loads(report.read_text())["validity"]["value"] > 0.5


def test_with_as_is_or_another_file_the_weights_stay(run: Path, tmp_path: Path) -> None:
    before = (run / "model.safetensors").read_bytes()
    assert table(run, "--as-is")["checkpoint"] is None
    words = ["tune", str(run), "--rule", "em", "--sigmas", "0.1", *TUNE, "--out", str(tmp_path / "t.json")]
    assert main(words) == 0
    assert json.loads((tmp_path / "t.json").read_text())["checkpoint"]["step"] == 1
    assert (run / "model.safetensors").read_bytes() == before


@pytest.mark.slow
def test_settings_found_for_other_weights_are_dropped(run: Path) -> None:
    table(run, "--as-is")
    other = run / "tune-em-decay.json"
    other.write_text("{}")
    table(run, "--as-is")
    assert other.exists()
    table(run)  # Euler prefers another checkpoint
    assert not other.exists()
    other.write_text("{}")
    table(run)
    assert other.exists()


def test_a_tie_goes_to_the_latest_average(tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert main(["train", "sudoku-mini", "--out", str(out), "--steps", "3", "--keep", "1,2", *FAST]) == 0
    picked = table(out)["checkpoint"]  # nothing is learned yet, so all of them fail alike
    assert (picked["step"], picked["weights"]) == (3, "ema")
    assert [step for step, _ in Run.load(out).candidates()] == [3, 3, 2, 2, 1, 1]


def test_a_model_without_kept_steps_is_tuned_as_it_is(tmp_path: Path) -> None:
    out = tmp_path / "t.json"
    assert main(["tune", "sudoku-mini", "--rule", "em-decay", "--sigmas", "5,10", *TUNE, "--out", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["checkpoint"] is None
    assert [(row["sigma"], row["tau_start"]) for row in found["grid"]] == [
        (sigma, tau) for sigma in (5.0, 10.0) for tau in TAU_STARTS
    ]


@pytest.mark.fast
def test_default_grids_hold_what_the_paper_found() -> None:
    """Table 5's settings (App. F.3), for 200 steps and for Sudoku-Extreme's 1000; sigma near .3 and .18 for EM."""
    assert 7.0 in SIGMAS["em-decay"]
    assert {14.0, 20.0} <= set(LONG_SIGMAS["em-decay"])
    assert {0.7, 0.8} <= set(TAU_STARTS)
    assert 0.3 in SIGMAS["em"]
    assert 0.18 in LONG_SIGMAS["em"]
    assert max(SIGMAS["em"]) < 0.4  # the last of 200 steps are unstable from there on


@pytest.mark.fast
def test_the_best_mean_over_folds_wins_not_the_best_fold_nor_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two boards in each of five folds; pass@1 averaged over all folds decides (section 4)."""
    valid = {
        0.1: [1, 1, 0, 0, 0, 0, 0, 0, 0, 0],  # the best first fold
        0.2: [0, 0, 0, 0, 0, 0, 0, 0, 1, 1],  # a best fold, the last
        0.3: [1, 0, 1, 0, 1, 0, 1, 0, 1, 0],
    }
    monkeypatch.setattr(
        tuning, "_valid", lambda solver, problem, sampler, *_: torch.tensor(valid[sampler.sigma]).float()
    )
    solver = load("sudoku-mini")
    problem = Problem(torch.zeros(10, 16, dtype=torch.long), torch.zeros(10, 16, dtype=torch.bool))
    table = tune(solver, problem, [solver.sampler("em", 5, sigma=sigma) for sigma in valid])
    assert table["best"] == {"sigma": 0.3, "tau_start": None, "validity": 0.5}
    assert [row["validity"] for row in table["grid"]] == [0.2, 0.2, 0.5]
    assert table["grid"][0]["folds"] == [1, 0, 0, 0, 0]


def blank(count: int) -> Problem:
    return Problem(torch.zeros(count, 16, dtype=torch.long), torch.zeros(count, 16, dtype=torch.bool))


@pytest.mark.fast
def test_default_grids_are_even() -> None:
    """EM from .05 to .35 by .05, and from .06 to .26 by .04; EM decay by factors of sqrt 2 up to 14 and 28, rounded,
    but for the two below the paper's 7; and tau_start by .1."""
    assert SIGMAS["em"] == pytest.approx([0.05 * i for i in range(1, 8)])
    assert LONG_SIGMAS["em"] == pytest.approx([0.06 + 0.04 * i for i in range(6)])
    assert SIGMAS["em-decay"] == (3, 5, *(round(7 * 2 ** (i / 2)) for i in range(3)))
    assert LONG_SIGMAS["em-decay"] == tuple(round(7 * 2 ** (i / 2)) for i in range(5))
    assert pytest.approx([0.6, 0.7, 0.8]) == TAU_STARTS


@pytest.mark.fast
def test_the_grid_has_every_pair_of_settings_the_smaller_sigma_first() -> None:
    """Of the long grids from 500 steps on: Sudoku-Extreme has 1000, the others 200 or fewer."""
    solver = load("sudoku-mini")

    def pairs(rule: str, **options: Any) -> list[tuple[float | None, float | None]]:
        samplers = grid_of(solver, rule, **options)
        assert {(s.rule, s.steps) for s in samplers} == {(rule, options.get("steps") or solver.config.sample_steps)}
        return [(s.sigma, s.tau_start) for s in samplers]

    for steps, sigmas in ((None, SIGMAS), (499, SIGMAS), (500, LONG_SIGMAS)):
        assert pairs("em", steps=steps) == [(sigma, None) for sigma in sigmas["em"]]
        assert pairs("em-decay", steps=steps) == [(sigma, tau) for sigma in sigmas["em-decay"] for tau in TAU_STARTS]
    assert pairs("em", sigmas=(0.5, 0.1), tau_starts=(0.2,), steps=3) == [(0.1, None), (0.5, None)]
    assert pairs("em-decay", sigmas=(9.0, 2.0), tau_starts=(0.9, 0.3)) == [(2, 0.9), (2, 0.3), (9, 0.9), (9, 0.3)]
    bands = grid_of(solver, "tweedie", t_maxs=(1.0, 0.3), t_mins=(0.0, 0.4))
    assert [(s.t_max, s.t_min) for s in bands] == [(1, 0), (1, 0.4), (0.3, 0)]
    assert (grid_of(solver, "resample")[0].settings, len(grid_of(solver, "resample"))) == ({}, 12)


def test_times_are_tuned_and_kept_with_the_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["tune", str(run), "--rule", "tweedie", "--as-is", "--count", "10", "--steps", "3", "--device", "cpu"]
    assert main([*words, "--t-maxs", "1,0.5", "--t-mins", "0.1", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)
    assert [(row["t_max"], row["t_min"]) for row in table["grid"]] == [(1, 0.1), (0.5, 0.1)]
    best = table["best"]
    assert best["validity"] == max(row["validity"] for row in table["grid"])
    solver = load(str(run), "cpu")
    assert solver.tuned("tweedie") == {"t_max": best["t_max"], "t_min": best["t_min"]}
    assert solver.sampler("tweedie", t_max=0.9).settings == {"t_max": 0.9, "t_min": 0.1}
    assert solver.sampler("resample").settings == {}
    assert solver.sampler("tweedie", t_max=1.0, t_min=0.0).settings == {}


@pytest.mark.fast
def test_folds_of_uneven_size_count_alike_and_progress_is_told_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of eleven boards the first fold has three, the others two; 1/3 in one of five folds is .0667."""

    def valid(solver: Solver, problem: Problem, sampler: Any, seed: int, batch: int, told: Any) -> torch.Tensor:
        asked.append((seed, batch))
        for done in (0, 4, 11):
            told(done, 11)
        return torch.tensor([1.0] + [0.0] * 10) if sampler.sigma == 0.1 else torch.zeros(11)

    asked, said = [], []
    monkeypatch.setattr(tuning, "_valid", valid)
    solver = load("sudoku-mini")
    samplers = [solver.sampler("em", 5, sigma=sigma) for sigma in (0.2, 0.1)]
    found = tune(solver, blank(11), samplers, seed=3, batch=7, progress=lambda done, total: said.append((done, total)))
    assert asked == [(3, 7)] * 2
    assert said == [(0, 2), (4 / 11, 2), (1, 2), (1, 2), (1 + 4 / 11, 2), (2, 2)]
    assert found == {
        "rule": "em",
        "best": {"sigma": 0.1, "tau_start": None, "validity": 0.0667},
        "count": 11,
        "folds": 5,
        "steps": 5,
        "seed": 3,
        "grid": [
            {"sigma": 0.2, "tau_start": None, "validity": 0.0, "folds": [0.0] * 5},
            {"sigma": 0.1, "tau_start": None, "validity": 0.0667, "folds": pytest.approx([1 / 3, 0, 0, 0, 0])},
        ],
        "torch": torch.__version__,
    }
    monkeypatch.setattr(tuning, "_valid", lambda *inputs: asked.append(inputs[3:5]) or torch.zeros(11))
    assert tune(solver, blank(11), samplers[:1])["seed"] == 0
    assert asked[-1] == (0, None)


@pytest.mark.fast
def test_five_folds_need_five_instances() -> None:
    check_count(blank(5))
    with pytest.raises(LetgoError, match="5 folds need 5 instances or more, got 4; give a larger --count"):
        check_count(blank(4))


@pytest.mark.fast
def test_several_tables_become_one_with_the_mean_of_their_rows() -> None:
    """Three runs: (.1 + .2 + .2) / 3 = .1667, (.5 + 0 + 0) / 3 is the same, and the first of equals wins."""
    shares = {0.1: (0.0, 0.0, 0.4), 0.2: (0.1, 0.2, 0.2), 0.3: (0.5, 0.0, 0.0)}
    tables = [
        {"rule": "em", "seed": run, "grid": [
            {"sigma": sigma, "tau_start": None, "validity": each[run], "folds": [each[run], run]}
            for sigma, each in shares.items()
        ]}
        for run in range(3)
    ]  # fmt: skip
    found = together(tables)
    assert [row["validity"] for row in found["grid"]] == [0.1333, 0.1667, 0.1667]
    assert found["best"] == {"sigma": 0.2, "tau_start": None, "validity": 0.1667}
    assert found["grid"][1]["folds"] == [0.1, 0, 0.2, 1, 0.2, 2]
    assert (found["rule"], found["seed"]) == ("em", 0)
    tables[1]["grid"].pop()  # no row may be left out in silence
    with pytest.raises(ValueError, match="shorter"):
        together(tables)


class Judged:
    """Boards of one's own, right ones first, and their likelihoods in the place of a solver's."""

    def __init__(self, patch: pytest.MonkeyPatch, right: list[float], wrong: list[float]) -> None:
        self.solver, likelihood = load("sudoku-mini"), torch.tensor(right + wrong)
        self.asked: list[Any] = []
        board = torch.tensor([int(symbol) for symbol in "0123230110323210"])
        boards = torch.cat([board.expand(len(right), 16), torch.zeros(len(wrong), 16, dtype=torch.long)])
        patch.setattr(self.solver, "sample", lambda *inputs, **more: self.asked.append((inputs[2:], more)))
        patch.setattr(self.solver, "read", lambda x, problem: boards)
        patch.setattr(self.solver, "self_likelihood", lambda *inputs: self.asked.append(inputs[2:]) or likelihood)
        self.count = len(likelihood)

    def find(self, **more: Any) -> dict[str, Any]:
        return find_sure(self.solver, blank(self.count), self.solver.sampler("euler", 5), **more)


@pytest.mark.fast
def test_the_mark_is_the_geometric_mean_of_a_tenth_of_the_right_and_the_best_of_the_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Right boards at -1, -2, ... -21: the tenth from below is -19. Wrong ones at -76 and below: sqrt(19 * 76) = 38."""
    judged = Judged(monkeypatch, [-float(i) for i in range(1, 22)], [-76.0 - i for i in range(21)])
    found = judged.find(seed=4, batch=8)
    assert found == {
        "best": {"sure": pytest.approx(-38)},
        "right": {"count": 21, "tenth": -19.0, "least": -21.0},
        "wrong": {"count": 21, "most": -76.0, "median": -86.0},
        "rule": "euler",
        "steps": 5,
        "count": 42,
        "seed": 4,
        "torch": torch.__version__,
    }
    assert judged.asked == [((4,), {"batch": 8}), (4, 8)]
    judged.find()
    assert judged.asked[2:] == [((0,), {"batch": None}), (0, None)]


@pytest.mark.fast
def test_there_is_no_mark_where_right_and_wrong_overlap_or_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Judged(monkeypatch, [-2.0] * 20, [-2.0] * 20).find()["best"] == {"sure": None}
    assert Judged(monkeypatch, [-3.0] * 20, [-2.0] * 20).find()["best"] == {"sure": None}
    certain = Judged(monkeypatch, [0.0] * 20, [-10.0] * 20).find()["best"]  # as if it were -1/1000
    assert certain == {"sure": pytest.approx(-0.1)}
    for right, wrong in ((19, 40), (40, 19)):
        with pytest.raises(LetgoError, match=f"{right} right and {wrong} wrong boards are too few .*20 of each"):
            Judged(monkeypatch, [-1.0] * right, [-2.0] * wrong).find()


@pytest.mark.fast
def test_what_is_seen_on_the_way_is_what_each_puzzle_walked_alone_shows() -> None:
    """The likelihood of a proposal's board is that of its open cells under the next proposal."""
    solver = load("sudoku-mini", "cpu", precision="fp32")
    problem, sampler = source_of(solver.task).draw("valid", None, 3, 0), solver.sampler("tweedie", 9)
    for numbers in (None, torch.tensor([7, 2**40, 0])):
        known = Problem(problem.solution, problem.given, None, numbers)
        last, asked, right = walked(solver, known, sampler, 6, batch=2)
        for i, number in enumerate(range(3) if numbers is None else numbers.tolist()):
            one, noise = problem[i : i + 1], Noise(6, torch.tensor([number]), torch.tensor([0]))
            shots = list(solver.sample_engine.walk(sampler, solver.clues(one), noise))
            boards = [one.with_clues(solver.read(shot.x0_hat, one))[0] for shot in shots]
            chances = [shot.x0_hat[0].gather(1, board[:, None]) for shot, board in zip(shots[1:], boards, strict=False)]
            likely = [chance[~one.given[0]].clamp(1e-4, 1).log().sum() for chance in chances]
            torch.testing.assert_close(asked[i], torch.stack(likely), rtol=1e-4, atol=1e-5)
            assert right[i].tolist() == [bool(solver.task.validate(board[None], one)) for board in boards[:-1]]
            assert torch.equal(last[i], solver.read(shots[-1].x, one)[0])
        assert 0 < right.sum() < right.numel()


@pytest.mark.fast
def test_on_the_way_the_mark_is_a_hundredth_of_the_likeliest_wrong_board() -> None:
    asked = torch.tensor([[-9.0, -3.0, -0.001], [-2.0, -0.01, -0.001], [-8.0, -4.0, -7.0]])
    right = torch.tensor([[False, False, True], [False, True, True], [False, False, False]])
    assert sure_early(asked, right) == pytest.approx(-0.02)
    asked[1, 1:] = -0.05  # one of the two tries that propose a right board still ends
    assert sure_early(asked, right) == pytest.approx(-0.02)
    asked[0, 2] = -0.03
    assert sure_early(asked, right) is None
    assert sure_early(asked, torch.ones_like(right)) is None  # where no board was wrong nothing tells


@pytest.mark.fast
@pytest.mark.parametrize(("ended", "tries", "most", "kept"), [
    (2, 4, -0.001, True), (1, 4, -0.001, False), (1, 3, -0.001, False), (1, 1, -0.001, True), (1, 1, -0.02, False),
])  # fmt: skip
def test_a_mark_that_ends_fewer_than_half_of_the_right_tries_is_none(ended: int, tries: int, most: float, kept: bool):
    """All right boards are those of the last step; the mark is -0.02, and what lies on it is not above it."""
    asked, right = torch.full((tries, 3), -9.0), torch.zeros(tries, 3, dtype=torch.bool)
    right[:, 2], asked[:, 2], asked[0, 0] = True, -0.5, -2.0
    asked[:ended, 2] = most
    assert (sure_early(asked, right) is not None) == kept


def test_a_setting_at_which_the_sampler_diverges_solves_nothing() -> None:
    solver = load("sudoku-mini", "cpu")
    problem = source_of(solver.task).draw("valid", None, 3, 0)
    sampler = Sampler("em", 8, sigma=1e5)
    with pytest.raises(Diverged):
        solver.sample(problem, sampler, 0)
    valid = tuning._valid(solver, problem, sampler, 0, None, lambda done, total: None)
    assert valid.tolist() == [0, 0, 0]


@pytest.mark.fast
def test_candidates_are_measured_one_by_one_by_euler_and_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """2 of 3 boards against 1: led by .33, where the first has a standard error of sqrt(1/3 * 2/3 / 3) = .27."""

    def valid(solver: Solver, problem: Problem, sampler: Any, seed: int, batch: int, told: Any) -> torch.Tensor:
        asked.append((sampler.rule, sampler.steps, seed, batch))
        if told:
            told(1, 4)
            told(4, 4)
        return torch.tensor([1.0, 0.0, 0.0] if len(asked) % 2 else [1.0, 1.0, 0.0])

    asked, said, run, solver = [], [], object.__new__(Run), load("sudoku-mini")
    monkeypatch.setattr(tuning, "_valid", valid)
    monkeypatch.setattr(Run, "network", lambda self, step, kind: solver.network)
    candidates = [(20, "ema"), (10, "raw")]
    more = {"steps": 6, "seed": 3, "batch": 9, "progress": lambda done, total: said.append((done, total))}
    found = pick_checkpoint(run, candidates, lambda network: solver, blank(3), **more)
    assert found == {
        "step": 10,
        "weights": "raw",
        "validity": 0.6667,
        "rule": "euler",
        "count": 3,
        "seed": 3,
        "scores": [
            {"step": 20, "weights": "ema", "validity": 0.3333},
            {"step": 10, "weights": "raw", "validity": 0.6667},
        ],
    }
    assert asked == [("euler", 6, 3, 9)] * 2
    assert said == [(0.25, 2), (1, 2), (1.25, 2), (2, 2)]
    assert pick_checkpoint(run, candidates[:1], lambda network: solver, blank(3))["seed"] == 0
    assert asked[-1] == ("euler", solver.config.sample_steps, 0, None)


@pytest.mark.fast
def test_a_checkpoint_must_lead_by_more_than_a_standard_error() -> None:
    """Of a share p of n boards it is sqrt(p (1 - p) / n): .05 at a half of 100, .005 of 10,000."""
    assert best_of([0.5, 0.54], 100) == 0
    assert best_of([0.5, 0.56], 100) == 1
    assert best_of([0.5, 0.51], 10_000) == 1
    assert best_of([0.5, 0.504], 10_000) == 0
    assert best_of([0.5, 0.9, 0.7], 100) == 1
    assert best_of([0.0, 0.01], 100) == 0  # none of 100: the error of one board
    assert best_of([0.0, 0.02], 100) == 1
    assert best_of([1.0, 0.5], 100) == 0
    assert best_of([0.5, 0.56, 0.0], 100) == 1


@pytest.mark.fast
def test_settings_at_the_edge_of_the_grid_are_named() -> None:
    def said(sigma: float, tau: float | None, validity: float = 0.5) -> str:
        taus = (None,) if tau is None else (0.6, 0.7, 0.8)
        grid = [{"sigma": s, "tau_start": t} for s in (3.0, 5.0, 7.0) for t in taus]
        return advice({"grid": grid, "best": {"sigma": sigma, "tau_start": tau, "validity": validity}})

    assert said(5.0, 0.7) == said(5.0, None) == ""
    assert said(7.0, None) == "sigma 7 is the largest that was tried; others may do better: --sigmas"
    both = "sigma 3 is the least that was tried; tau_start 0.6 is the least that was tried; others may do better: "
    assert said(3.0, 0.6) == f"{both}--sigmas, --tau-starts"
    for sigmas, words in (
        ((3.0,), ""),
        ((3.0, 5.0), "sigma 3 is the least that was tried; others may do better: --sigmas"),
    ):
        grid = [{"sigma": sigma, "tau_start": None} for sigma in sigmas]
        assert advice({"grid": grid, "best": {"sigma": 3.0, "tau_start": None, "validity": 0.5}}) == words
    assert said(5.0, 0.8) == "tau_start 0.8 is the largest that was tried; others may do better: --tau-starts"
    assert said(3.0, 0.6, validity=0.0) == "no setting gave a valid board; train longer, or sample with more --steps"


def test_tuning_refuses_test_files_by_name(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "test.npz"
    assert main(["data", "make", "sudoku", "--size", "4", "--count", "20", "--out", str(path)]) == 0
    assert main(["tune", str(run), "--rule", "em", "--data", str(path)]) == 2
    assert "never looks at test instances; give valid.csv" in capsys.readouterr().err
    assert not (run / "tune-em.json").exists()


def test_tuning_refuses_training_files_with_a_validation_file_beside(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("train", "valid"):
        path = str(tmp_path / f"{name}.npz")
        assert main(["data", "make", "sudoku", "--size", "4", "--count", "20", "--out", path]) == 0
    assert main(["tune", str(run), "--rule", "em", "--data", str(tmp_path / "train.npz")]) == 2
    assert "never looks at training instances; give the valid file beside it" in capsys.readouterr().err


def test_the_table_names_the_data_behind_it(run: Path, tmp_path: Path) -> None:
    assert table(run, "--as-is")["data"] == "generated"
    path = tmp_path / "valid.npz"
    assert main(["data", "make", "sudoku", "--size", "4", "--count", "20", "--out", str(path)]) == 0
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    for data in (path, tmp_path):
        found = table(run, "--as-is", "--data", str(data))["data"]
        assert found == {"file": "valid.npz", "sha256": digest, "rows": 20}


def test_a_shipped_model_is_tuned_into_a_file_only(capsys: pytest.CaptureFixture[str]) -> None:
    before = (locate("sudoku-mini")[0] / "tune-em.json").read_bytes()
    for name in ("sudoku-mini", "maze", "hub:someone/model"):  # a task is one of its shipped models
        assert main(["tune", name, "--rule", "em", "--sigmas", "0.1", *TUNE]) == 2
        assert f"'{name}' keeps the settings it came with" in capsys.readouterr().err
    assert (locate("sudoku-mini")[0] / "tune-em.json").read_bytes() == before


def test_sudoku_extreme_is_not_tuned_on_easier_puzzles(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    small = ["--steps", "1", "--batch", "2", "--boards", "4", "--validate", "0", "--device", "cpu", "--quiet"]
    assert main(["train", "sudoku-extreme", "--out", str(out), *small]) == 0
    assert main(["tune", str(out), "--rule", "em", *TUNE]) == 2
    assert "sudoku-extreme is tuned on its data set: give --data FOLDER" in capsys.readouterr().err


def test_validation_instances_are_no_test_instances(monkeypatch: pytest.MonkeyPatch, run: Path) -> None:
    seen: list[Problem] = []
    row = {"sigma": 0.1, "tau_start": None, "validity": 0.0, "folds": [0.0] * 5}
    found = {"best": row, "grid": [row]}
    monkeypatch.setattr("letgo.tune.tune", lambda solver, problem, *_: seen.append(problem) or found)
    assert main(["tune", str(run), "--rule", "em", "--as-is", "--regime", "6", *TUNE]) == 0
    test = source_of(load(str(run)).task).draw("test", "6", 20, 0)
    assert len(seen[0]) == 20
    assert not torch.equal(seen[0].given, test.given)


def test_settings_of_another_regime_are_kept_apart_and_used_there_alone(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    usual = table(run, "--sigmas", "0.1")
    model = (run / "model.safetensors").read_bytes()
    assert main(["tune", str(run), "--rule", "em", "--regime", "hard", "--sigmas", "0.2", *TUNE[:-1]]) == 0
    assert "letgo: the checkpoint is picked in regime 4 alone; the model is tuned as it is" in capsys.readouterr().err
    assert json.loads((run / "tune-em.json").read_text()) == usual
    assert json.loads((run / "tune-em-hard.json").read_text())["regime"] == "hard"
    assert (run / "model.safetensors").read_bytes() == model, "only the usual regime picks the checkpoint"
    used = {}
    for regime in (usual["regime"], "hard", "medium"):
        out = tmp_path / "report.json"
        assert main(["evaluate", str(run), "--rule", "em", "--regime", regime, *TUNE, "--out", str(out)]) == 0
        used[regime] = json.loads(out.read_text())["settings"]["sigma"]
    assert used == {usual["regime"]: 0.1, "hard": 0.2, "medium": 0.1}


def test_into_a_file_another_regime_picks_its_own_checkpoint(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.name: path.read_bytes() for path in run.glob("*.[jms]*")}
    regime = ["--regime", "hard", "--sigmas", "0.2", "--out", str(tmp_path / "hard.json")]
    assert main(["tune", str(run), "--rule", "em", *regime, *TUNE[:-1]]) == 0
    assert "picked in regime" not in capsys.readouterr().err
    found = json.loads((tmp_path / "hard.json").read_text())
    assert (found["regime"], found["checkpoint"]["rule"]) == ("hard", "euler")
    assert {(row["step"], row["weights"]) for row in found["checkpoint"]["scores"]} == set(Run.load(run).candidates())
    assert {path.name: path.read_bytes() for path in run.glob("*.[jms]*")} == before


def test_several_runs_get_the_setting_with_the_best_mean_over_all_of_them(run: Path, tmp_path: Path) -> None:
    """Section 4: one setting for all seeds. The other model here is the shipped one."""
    words = ["--rule", "em", "--sigmas", "0.05,0.3,3", *TUNE, "--as-is"]
    names, alone = (str(run), "sudoku-mini"), []
    for name in names:
        assert main(["tune", name, *words, "--out", str(tmp_path / "one.json")]) == 0
        alone.append(json.loads((tmp_path / "one.json").read_text()))
    assert main(["tune", *names, *words, "--out", str(tmp_path / "both.json")]) == 0
    both = json.loads((tmp_path / "both.json").read_text())
    for row, first, second in zip(both["grid"], *(one["grid"] for one in alone), strict=True):
        assert row["folds"] == first["folds"] + second["folds"]
        assert row["validity"] == pytest.approx((first["validity"] + second["validity"]) / 2, abs=1e-4)
    assert both["best"]["validity"] == max(row["validity"] for row in both["grid"]) > 0
    assert both["runs"] == list(names)
    assert not (run / "tune-em.json").exists()


def test_runs_tuned_as_one_all_keep_the_table_and_are_of_one_task(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = tmp_path / "twin"
    shutil.copytree(run, twin)
    assert main(["tune", str(run), str(twin), "--rule", "em", "--sigmas", "0.1", *TUNE]) == 0
    first, second = (json.loads((folder / "tune-em.json").read_text()) for folder in (run, twin))
    assert first == second
    capsys.readouterr()
    monkeypatch.setattr("letgo.tune.tune", lambda *_: pytest.fail("refused after the work, not before it"))
    assert main(["tune", str(run), "queens", "--rule", "em", *TUNE, "--out", str(tmp_path / "out.json")]) == 2
    assert "queens is not of the same task and steps as" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()


@pytest.mark.slow
def test_a_run_that_another_process_works_on_is_tuned_into_a_file_only(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("fcntl")
    twin = tmp_path / "twin"
    shutil.copytree(run, twin)
    words = ["--rule", "em", "--sigmas", "0.1", *TUNE]
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with locked(twin):
        assert main(["tune", str(run), str(twin), *words]) == 2
        assert capsys.readouterr().err.startswith(f"letgo: another process is training or tuning in {twin}; wait")
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
        assert main(["tune", str(twin), *words, "--out", str(tmp_path / "t.json")]) == 0
    assert main(["tune", str(run), str(twin), str(twin.resolve()), *words]) == 0


def test_a_run_is_neither_trained_nor_tuned_while_it_is_tuned(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fcntl")
    tuning, codes = ["tune", str(run), "--rule", "em", "--sigmas", "0.1", "--as-is", *TUNE], []

    def meanwhile(*_: object) -> dict[str, Any]:
        codes.append(main(tuning))
        codes.append(main(["train", "sudoku-mini", "--out", str(run), "--steps", "3", *FAST]))
        codes.append(main(["evaluate", str(run), "--rule", "ddpm", *TUNE]))  # who only reads is not kept waiting
        row = {"sigma": 0.1, "tau_start": None, "validity": 0.0, "folds": [0.0] * 5}
        return {"best": row, "grid": [row]}

    monkeypatch.setattr("letgo.tune.tune", meanwhile)
    assert main(tuning) == 0
    assert codes == [2, 2, 0]


def test_tuning_refuses_test_instances(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", str(run), "--rule", "em", "--regime", "test"]) == 2
    assert "never looks at test instances" in capsys.readouterr().err


@pytest.mark.fast
def test_a_mark_is_kept_with_the_model_and_read_in_every_regime(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run, said, asked = shutil.copytree(locate("sudoku-mini")[0], tmp_path / "run"), [], []

    def found(solver: Solver, problem: Problem, sampler: Sampler, *rest: Any) -> dict[str, Any]:
        asked.append((len(problem), int(problem.given[0].sum()), sampler.rule, rest))
        return {"best": {"sure": None, "sure_early": -0.25}, "steps": sampler.steps}

    monkeypatch.setattr("letgo.tune.find_sure", found)
    monkeypatch.setattr(Voice, "announce", lambda self, text: said.append(text))
    words = ["tune", str(run), "--belief", "--steps", "7", "--count", "9", "--regime", "6", "--device", "cpu"]
    assert main([*words, "--seed", "4"]) == 0
    assert asked == [(9, 6, "tweedie", (4, None))]
    assert said[-1] == f"tuning tweedie for {run} by 9 instances, on cpu"
    assert json.loads(capsys.readouterr().out) == {"sure": None, "sure_early": -0.25}
    table = json.loads((run / "tune-belief.json").read_text())
    assert (table["regime"], table["data"], table["command"][:10]) == ("6", "generated", "letgo tune")
    for regime in ("4", "6"):
        report = letgo.evaluate(run, rule="resample", regime=regime, count=2, until_sure=True, device="cpu")
        assert (report.steps, report.settings) == (7, {"sure_early": -0.25})
    assert main([*words, "--out", str(tmp_path / "mark.json")]) == 0
    assert "overlapping" not in capsys.readouterr().err  # boards on the way tell
