"""`letgo analyze`: the verb, and what the analyses count, held against straightforward recounts."""

from __future__ import annotations

import base64
import json
import math
import re
import shlex
import subprocess
import sys
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor

from letgo import tasks
from letgo.analysis import ANALYSES, analysis_of, lines, states, toy, work
from letgo.analysis.changes import of_rule as changes_of
from letgo.analysis.record import Record, bins, by_bin, record
from letgo.analysis.study import Piece, Study, Wish, run_analysis
from letgo.cli import build_parser, main
from letgo.config import Config
from letgo.data.source import source_of
from letgo.estimates import rate
from letgo.evaluation import Doubt, evaluate
from letgo.presets import PRESETS
from letgo.reproduce.experiments import EXPERIMENTS
from letgo.reproduce.measure import Session
from letgo.reproduce.own_runs import RUNS
from letgo.reproduce.pictures import Picture, analyze_missing, show_commitment, show_pictures, show_work
from letgo.reproduce.results import Results
from letgo.reproduce.store import Store
from letgo.rng import Noise
from letgo.runs import save_weights, write_json
from letgo.solver import load

ROOT = Path(__file__).parents[1]
EXTREME = (  # a well-known puzzle and its answer
    "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79",
    "534678912672195348198342567859761423426853791713924856961537284287419635345286179",
)
COMMON = ("analysis", "n", "seed", "device", "seconds", "version")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tasks, "TASKS", dict(tasks.TASKS))
    monkeypatch.setattr("letgo.analysis.drawing.available", lambda: False)  # pictures have a test of their own
    return tmp_path


def study(model: str, count: int, steps: int) -> Study:
    solver = load(model, "cpu")
    return Study(Wish(steps=steps), count, solver, source_of(solver.task).draw("valid", None, count, 0))


# The verb


@pytest.mark.fast
def test_the_list_names_every_analysis_and_where_it_stands_in_the_paper(capsys: pytest.CaptureFixture[str]):
    assert main(["analyze", "--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(ANALYSES)
    for line, analysis in zip(lines, ANALYSES.values(), strict=True):
        assert analysis.paper in line
        assert ("no MODEL" in line) != analysis.needs_model


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, analysis in ANALYSES.items() if analysis.needs_model])
def test_every_analysis_of_a_model_reports_what_it_was_run_on(
    name: str, here: Path, capsys: pytest.CaptureFixture[str]
):
    words = [
        "analyze",
        name,
        "sudoku-mini",
        "--count",
        "3",
        "--steps",
        "3",
        "--seed",
        "5",
        "--device",
        "cpu",
        "--quiet",
        "--quick",
    ]
    assert main([*words, "--out", "out"]) == 0
    said = capsys.readouterr()
    assert said.err == ""
    report = json.loads((here / "out" / f"{name}-sudoku-mini.json").read_text())
    assert [path.name for path in (here / "out").iterdir()] == [f"{name}-sudoku-mini.json"]
    assert set(COMMON) <= set(report)
    own = {key: report[key] for key in ("analysis", "model", "task", "n", "seed", "steps", "regime", "split", "data")}
    assert own == {
        "analysis": name, "model": "sudoku-mini", "task": "sudoku", "n": 3, "seed": 5, "steps": 3, "regime": "4",
        "split": "valid", "data": "generated",
    }  # fmt: skip
    assert report["command"] == " ".join(["letgo", *words, "--out", "out"])
    again = json.loads(json.dumps(report))
    assert main([*words, "--out", "again"]) == 0
    repeated = json.loads((here / "again" / f"{name}-sudoku-mini.json").read_text())
    for found in (again, repeated):
        found.pop("took", None)  # seconds, too
        del found["seconds"], found["command"]
    assert again == repeated  # the same seed gives the same report


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "name an analysis"),
        ("mechanisms sudoku-mini", "did you mean mechanism?"),
        ("mechanism", "is of a model; name one"),
        ("mechanism nowhere", "unknown model or run folder"),
        ("mechanism sudoku-mini --regime hardest", "unknown regime"),
        ("mechanism sudoku-mini --count 0", "from 1"),
        ("mechanism sudoku-mini --out file", "cannot be written"),
        ("--plot nowhere.json", "nowhere.json: no such file"),
        ("--plot other.json", "is no report of `letgo analyze`"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(words: str, said: str, here: Path, capsys: pytest.CaptureFixture[str]):
    (here / "file").write_text("")
    (here / "other.json").write_text("[]")
    assert main(["analyze", *words.split()]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert sorted(path.name for path in here.iterdir()) == ["file", "other.json"]


def test_ctrl_c_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("letgo.analysis.mechanism.bins", interrupted)
    assert main(["analyze", "mechanism", "sudoku-mini", "--count", "2", "--steps", "4", "--out", "out"]) == 130
    assert list(here.iterdir()) == []


def test_a_model_without_a_gaussian_path_is_told_which_rules_fit(here: Path, capsys: pytest.CaptureFixture[str]):
    small = {"width": 16, "depth": 1, "heads": 2, "hidden": 16}
    config = replace(PRESETS["sudoku-d3pm"], network_options=small)
    write_json(here / "run" / "config.json", config.as_dict())
    save_weights(here / "run" / "model.safetensors", config.build_model().state_dict())
    assert main(["analyze", "mechanism", "run", "--count", "2", "--quiet"]) == 2
    assert "does not fit a model" in capsys.readouterr().err


def coins(here: Path) -> None:
    """CONTRIBUTING's own task, and a run folder of it with weights that learned nothing."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "CONTRIBUTING.md").read_text(), re.S | re.M)
    (here / "coins.py").write_text(next(block for block in blocks if "class Coins" in block))
    small = {"width": 16, "depth": 1, "heads": 2, "hidden": 16}
    config = Config("coins", tasks.load(f"{here}/coins.py:Coins"), network_options=small, sample_steps=5)
    write_json(here / "runs" / "coins" / "config.json", config.as_dict())
    save_weights(here / "runs" / "coins" / "model.safetensors", config.build_model().state_dict())


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, analysis in ANALYSES.items() if analysis.needs_model])
def test_it_works_on_a_task_of_ones_own(name: str, here: Path):
    coins(here)
    assert main(["analyze", name, "runs/coins", "--task", "coins.py:Coins", "--count", "4", "--quick", "--quiet"]) == 0
    report = json.loads((here / "analysis" / f"{name}-coins.json").read_text())
    assert (report["task"], report["model"], report["regime"], report["n"]) == ("coins", "runs/coins", "gen", 4)


@pytest.mark.slow
def test_it_needs_torch_numpy_safetensors_and_jaxtyping_alone(tmp_path: Path):
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('matplotlib', 'pydantic', 'fastapi', 'scipy', 'sklearn')))\n"
        "from letgo.analysis import drawing; drawing.available = lambda: False\n"
        "from letgo.cli import main\n"
        "sys.exit(main(['analyze', 'mechanism', 'sudoku-mini', '--count', '2', '--steps', '4', '--device', 'cpu']))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "wrote analysis/mechanism-sudoku-mini.json\n" in done.stdout
    assert "`letgo analyze --plot analysis/mechanism-sudoku-mini.json` draws" in done.stderr


@pytest.mark.extras
@pytest.mark.parametrize("name", ANALYSES)
def test_every_analysis_has_a_picture_alone_and_beside_another(name: str, tmp_path: Path):
    pytest.importorskip("matplotlib")
    models = ["sudoku-mini"] if ANALYSES[name].needs_model else []
    few = ["--count", "3", "--steps", "6"] if models else ["--quick"]
    assert main(["analyze", name, *models, *few, "--quiet", "--device", "cpu", "--out", str(tmp_path)]) == 0
    file = tmp_path / f"{'-'.join([name, *models])}.json"
    for kind in ("png", "svg"):
        assert file.with_suffix(f".{kind}").stat().st_size > 2000
    picture = file.with_suffix(".svg").read_bytes()
    assert main(["analyze", "--plot", str(file)]) == 0
    assert file.with_suffix(".svg").read_bytes() == picture  # byte for byte
    (tmp_path / "other.json").write_text(file.read_text())
    assert main(["analyze", "--plot", str(file), str(tmp_path / "other.json"), "--out", str(tmp_path / "both")]) == 0
    assert len(list((tmp_path / "both").iterdir())) == 2


@pytest.mark.extras
@pytest.mark.parametrize("name", ANALYSES)
def test_a_damaged_report_is_drawn_or_refused_in_a_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("matplotlib")
    file, codes = tmp_path / f"{name}.json", set()
    for values in ({}, {"n": [], "rules": 3, "steps": "x", "values": [1], "points": {}}):
        file.write_text(json.dumps({"analysis": name, **values}))
        codes.add(main(["analyze", "--plot", str(file), "--out", str(tmp_path / "out")]))
        said = capsys.readouterr().err
        assert said.count("\n") == said.count("analyse again") == 1
        assert str(file) in said
    assert codes == {2}
    assert not (tmp_path / "out").exists()


@pytest.mark.extras
@pytest.mark.parametrize("fault", ["rows", "columns", "side", "bytes", "more bytes"])
def test_a_report_that_would_be_drawn_without_end_is_refused(
    fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """A billion rows, and an image that does not unpack, or to another size than it says."""
    pytest.importorskip("matplotlib")
    report = json.loads((ROOT / "results" / "analysis" / "self-correction-sudoku-baseline.json").read_text())
    if fault in ("rows", "columns"):
        report["scene"][fault] = 10**9
    else:
        pixels = {"bytes": b"no", "more bytes": zlib.compress(bytes(10**7), 9)}.get(fault, zlib.compress(bytes(4)))
        image = {"side": 10**9 if fault == "side" else 2, "pixels": base64.b85encode(pixels).decode()}
        report["boards"]["clean"]["image"] = image
    file = tmp_path / "one.json"
    file.write_text(json.dumps(report))
    code = main(["analyze", "--plot", str(file), "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err
    if fault == "more bytes":  # those beyond the image are not unpacked
        assert code == 0
    else:
        assert (code, said.count("\n"), said.count("analyse again")) == (2, 1, 1)


# What is counted


def test_a_record_counts_what_a_plain_recount_counts(mini_boards: Tensor):
    """Centers by Proposition K.2's formula in float64, validity by membership in the list of all 288 boards."""
    part = study("sudoku-mini", 6, 20)
    valid = {tuple(board) for board in mini_boards.tolist()}
    problem, solver = part.problem, part.solver

    def broken(x: Tensor) -> list[bool]:
        boards = torch.where(problem.given, problem.solution, x.argmax(-1))
        return [tuple(board) not in valid for board in boards.tolist()]

    for rule in ("tweedie", "ddpm"):
        track = record(part, rule)
        clues = solver.clues(problem)
        noise = Noise.first(0, 6)
        x_t = clues.pin(noise.normal(0, 0, 16, 4)).double()
        states = list(solver.sample_engine.walk(part.sampler(rule), clues, noise, None))
        for i, snapshot in enumerate(states):
            t, s = 1 - i / 20, 1 - (i + 1) / 20
            alpha_t, alpha_s = math.cos(math.pi * t / 2), math.cos(math.pi * s / 2)
            anchor = alpha_t / alpha_s * (1 - alpha_s**2) / (1 - alpha_t**2)  # B_t
            tweedie = alpha_s * snapshot.x0_hat.double()
            ddpm = tweedie + anchor * (x_t - alpha_t * snapshot.x0_hat.double())
            for name, center in (("proposal", snapshot.x0_hat), ("tweedie", tweedie), ("ddpm", ddpm)):
                assert (track.broken[name][i] > 0).tolist() == broken(center), (rule, name, i)
            x_t = snapshot.x.double()
        assert (~track.final).tolist() == broken(states[-1].x)
        proposals = torch.stack([torch.where(problem.given, 0, one.x0_hat.argmax(-1)) for one in states])
        for board in range(6):
            changes = [int((a != b).sum()) for a, b in zip(proposals[1:, board], proposals[:-1, board], strict=True)]
            assert track.changes[:, board].tolist() == [0, *changes]
            last = max([i for i, count in enumerate([0, *changes]) if count], default=0)
            assert track.commitment[board] == pytest.approx(last / 20)
        assert int(track.last_change.max()) == round(20 * float(track.commitment.max()))
        assert not track.last_change[problem.given].any()


def hand_made(broken: list[list[int]], changes: list[list[int]], final: list[bool]) -> Record:
    steps, boards = len(broken), len(broken[0])
    cells = torch.tensor(broken)
    return Record(
        torch.arange(steps) / steps,
        {"proposal": cells, "tweedie": cells, "ddpm": cells},
        torch.tensor(changes),
        torch.zeros(boards, 3, dtype=torch.long),
        torch.ones(boards, 3, dtype=torch.bool),
        torch.tensor(final),
        torch.zeros(boards, dtype=torch.bool),
    )


def test_within_a_budget_is_what_trying_again_while_in_doubt_needed(monkeypatch: pytest.MonkeyPatch):
    seen = study("sudoku-mini", 4, 5)
    assert lines.while_in_doubt(seen) == []  # a model without a mark
    mark, solver, problem = -0.5, seen.solver, seen.problem
    monkeypatch.setattr(type(solver), "tuning", lambda self, name, regime=None: {"steps": 4, "best": {"sure": mark}})
    rows = lines.while_in_doubt(seen)
    assert [row["calls"] for row in rows] == [1, 2, 5, 12, 25, 50, 125]
    assert all(row["settings"]["until sure above"] == mark for row in rows)
    needed = []
    for number in range(4):
        one = replace(problem, number=torch.arange(4))[number : number + 1]
        report = evaluate(solver, one, solver.sampler(solver.best_rule, 4), 125 // 4, doubt=Doubt(mark))
        settled = report.believed.value == 1 and report.validity.value == 1
        needed.append(report.calls_per_instance.value if settled else math.inf)
    within = [sum(calls <= row["calls"] for calls in needed) for row in rows]
    assert [round(4 * row["validity"]["value"]) for row in rows] == within
    assert 0 in within
    assert within[-1] > 1


def test_work_is_passes_and_seconds_of_one_try_and_of_trying_again(monkeypatch: pytest.MonkeyPatch):
    """A call of a looped network of three turns is three passes, so a try of 20 passes has six steps."""
    seen = study("sudoku-mini", 4, 5)
    solver, mark = seen.solver, -0.5
    monkeypatch.setattr(type(solver), "tuning", lambda self, name, regime=None: {"steps": 4, "best": {"sure": mark}})
    monkeypatch.setattr(solver.network, "turns", 3, raising=False)
    report = analysis_of("work").run(seen)
    tries = [row for row in report["rows"] if row["kind"] == "one try"]
    assert (report["turns"], [row["steps"] for row in tries]) == (3, [n // 3 for n in work.PASSES])
    alone = evaluate(solver, seen.problem, solver.sampler(solver.best_rule, 6))
    assert tries[0]["validity"] == alone.validity.as_dict()
    doubted = [row for row in report["rows"] if row["kind"] == "while in doubt"]
    found = evaluate(solver, seen.problem, solver.sampler(solver.best_rule, 4), 1000 // 4, doubt=Doubt(mark))
    assert [row["calls"] for row in doubted] == list(work.BUDGETS)
    assert doubted[-1]["mean_calls"] == found.calls_per_instance.value
    assert doubted[-1]["believed_wrong"] / 4 == found.believed_wrong.value
    assert doubted[0]["mean_calls"] <= 5
    assert len(report["took"]) == len(report["rows"])
    assert all(seconds > 0 for seconds in report["took"])
    spent = [seconds / row["mean_calls"] for seconds, row in zip(report["took"], report["rows"], strict=True)]
    assert spent[-len(doubted) :] == pytest.approx([spent[-1]] * len(doubted))  # of so many calls, so many seconds
    monkeypatch.undo()
    assert {row["kind"] for row in analysis_of("work").run(seen)["rows"]} == {"one try"}  # a model without a mark


@pytest.mark.fast
def test_commitment_is_the_first_progress_after_the_last_change():
    track = hand_made([[1, 0]] * 4, [[0, 0], [2, 0], [1, 0], [0, 0]], [False, True])
    assert track.commitment.tolist() == [0.5, 0.0]
    assert track.found.tolist() == [False, True]


@pytest.mark.fast
def test_failures_are_split_by_whether_a_proposal_was_ever_valid():
    """Boards: valid; failed, once valid; failed, never; failed, never. Changes after tau .5 tell failures exactly."""
    broken = [[3, 3, 3, 3], [0, 0, 2, 2], [0, 1, 2, 2], [0, 1, 1, 1]]
    changes = [[0, 0, 0, 0], [4, 4, 4, 4], [0, 1, 1, 0], [0, 0, 2, 1]]
    found = changes_of(hand_made(broken, changes, [True, False, False, False]))
    assert [found["failures"][kind]["value"] for kind in ("never_valid", "valid_once")] == pytest.approx([2 / 3, 1 / 3])
    assert found["failures"]["never_valid"]["n"] == 3
    assert found["commitment"]["valid"] == {"value": 0.25, "low": None, "high": None, "n": 1}
    assert found["commitment"]["invalid"]["value"] == pytest.approx((0.5 + 0.75 + 0.75) / 3)
    assert found["changes"]["invalid"]["value"] == pytest.approx((5 + 7 + 5) / 3)
    assert found["auroc"]["changes_after_half"]["value"] == 1.0
    assert found["auroc"]["violations_at_half"]["value"] == 1.0
    assert found["auroc"]["last_change"]["value"] == 0.5  # no cell of a hand-made record has a time


@pytest.mark.fast
def test_bins_hold_every_step_once_and_average_over_them():
    for steps in (7, 40, 200, 1000):
        middles, index = bins(torch.arange(steps) / steps)
        assert len(middles) == min(40, steps)
        sizes = index.bincount()
        assert int(sizes.sum()) == steps
        assert sizes.min() >= steps // 40
        assert (index.diff() >= 0).all()
    values = torch.arange(12.0).view(6, 2)
    assert by_bin(values, torch.tensor([0, 0, 1, 1, 1, 2])) == [1.5, 6.5, 10.5]


def test_events_add_up_to_the_validity_of_centers():
    report = run_analysis(analysis_of("mechanism"), load("sudoku-mini", "cpu"), Wish(count=8, steps=10))
    for found in report["along"].values():
        events, valid = found["events"], found["valid"]
        for i in range(len(report["tau"])):
            assert events["both"][i] + events["plus"][i] == pytest.approx(valid["tweedie"][i])
            assert events["both"][i] + events["minus"][i] == pytest.approx(valid["ddpm"][i])
        assert valid["tweedie"] == valid["proposal"]  # a positive factor changes no argmax


@pytest.mark.slow
def test_noised_cells_are_read_right_as_often_as_a_closed_form_says():
    """Of K symbols the right one has the largest entry with probability E[Phi(Z + alpha / beta)^(K - 1)].

    64 boards of 12 open cells, 4 draws each: five standard errors, the odds of a false alarm are 1e-6 a time.
    """
    report = run_analysis(analysis_of("forward-noise"), load("sudoku-mini", "cpu"), Wish(count=64))
    z = np.linspace(-9, 9, 4001)
    for i in range(7, len(report["t"]), 8):
        t = report["t"][i]
        ratio = math.cos(math.pi * t / 2) / math.sin(math.pi * t / 2)
        right = float((stats.norm.pdf(z) * stats.norm.cdf(z + ratio) ** 3).sum() * (z[1] - z[0]))
        error = math.sqrt(right * (1 - right) / (64 * 4 * 12))
        curves = report["curves"]["state"]
        assert abs(curves["accuracy"]["mean"][i] - right) < 5 * error + 1e-4
        assert curves["accuracy"]["low"][i] <= curves["accuracy"]["high"][i]
        assert curves["valid"]["mean"][i] <= curves["accuracy"]["mean"][i] + 1e-9
        assert curves["gap"]["mean"][i] <= curves["margin"]["mean"][i]
    assert report["curves"]["proposal"]["valid"]["mean"][0] == 1.0  # at t = .025 a trained network errs no more


def test_self_corrections_first_time_is_drawn_as_algorithm_2_draws_it_given_the_second(monkeypatch: pytest.MonkeyPatch):
    """t1 and u are uniform and t2 = t1 u. Given t2 = .3 the mean of t1 is .7 / log(1 / .3) = .581; beside it are
    10^6 draws, of which those near .3 are kept. 512 boards, five standard errors."""
    part, seen = study("sudoku-mini", 512, 10), []
    monkeypatch.setattr(Piece, "propose", lambda self, x_t, t: seen.append(t) or x_t)
    for piece in part.pieces():
        states.trained_on(piece, torch.full((1, 1, 1), 0.3), 5)
    times = torch.cat(seen).flatten().double()
    rng = np.random.default_rng(0)
    first, share = rng.random((2, 1_000_000))
    kept = first[np.abs(first * share - 0.3) < 0.005]
    assert len(times) == 512
    assert abs(float(times.mean()) - kept.mean()) < 5 * kept.std() / math.sqrt(512)
    assert kept.mean() == pytest.approx(0.7 / math.log(1 / 0.3), abs=0.01)
    assert abs(float(times.std()) - kept.std()) < 0.03
    assert times.min() >= 0.3


@pytest.mark.parametrize("t", [0.05, 0.3, 0.6, 0.9, 0.99, 1.0])
def test_the_toys_exact_denoiser_and_marginal_are_what_quadrature_says(t: float):
    x0 = np.concatenate([np.linspace(-3, -2, 4001), np.linspace(2, 3, 4001)])
    alpha, beta = math.cos(math.pi * t / 2), math.sin(math.pi * t / 2)
    for y in (-3.1, -1.0, 0.0, 0.4, 2.6):
        weights = np.exp(-((y - alpha * x0) ** 2) / (2 * beta**2))
        ends = np.array([0, 4000, 4001, 8001])
        weights[ends] /= 2  # the trapezoidal rule
        density = weights.sum() / 4000 / 2 / (beta * math.sqrt(2 * math.pi))
        if density < 1e-200:
            continue
        state, time = torch.full((1, 1, 1), y), torch.full((1, 1, 1), t)
        assert float(toy.exact(state, time)) == pytest.approx((weights * x0).sum() / weights.sum(), abs=2e-3)
        log10 = float(toy.log10_marginal(torch.tensor([y]).double(), torch.tensor([t]).double()))
        assert log10 == pytest.approx(math.log10(density), abs=1e-3)


@pytest.mark.slow
def test_in_the_toy_ddpm_stays_lost_where_the_sign_is_always_wrong_and_tweedie_does_not(here: Path):
    """App. J; 200 points, a fifth of its steps, for each is twenty walks."""
    assert main(["analyze", "toy", "--quick", "--quiet", "--steps", "40"]) == 0
    report = json.loads((here / "analysis" / "toy.json").read_text())
    assert (report["n"], report["steps"], report["seed"]) == (200, 40, 0)
    late = {rule: one["between_late"]["value"] for rule, one in report["sampled"]["adversarial"].items()}
    assert late == {"tweedie": 0.0, "ddpm": 1.0}
    for rules in report["sampled"].values():
        assert rules["tweedie"]["between_late"]["value"] < 0.02
        assert rules["tweedie"]["validity"]["value"] == 1.0
    assert report["sampled"]["exact"]["ddpm"]["validity"]["value"] == 1.0
    assert main(["analyze", "toy", "sudoku-mini"]) == 2


@pytest.mark.parametrize(("words", "split"), [({}, "valid"), ({"split": "test"}, "test"), ({"regime": "test"}, "test")])
def test_a_report_names_the_split_that_was_drawn_where_a_regime_is_one(words: dict[str, str], split: str, here: Path):
    files = {"valid": Path("data/valid.csv"), "test": Path("data/test.csv")}
    puzzle, answer = EXTREME
    for name, file in files.items():
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"source,question,answer,rating\n{name},{puzzle},{answer},1\n")
    wish = Wish(count=1, steps=2, data="data", **words)
    report = run_analysis(analysis_of("changes"), load("sudoku-extreme", "cpu"), wish)
    assert (report["regime"], report["split"], report["data"]["file"]) == (split, split, f"{split}.csv")


@pytest.mark.fast
@pytest.mark.parametrize("file", sorted((ROOT / "results" / "analysis").glob("*.json")), ids=lambda file: file.stem)
def test_a_report_of_ours_can_be_repeated_by_its_command(file: Path):
    report = json.loads(file.read_text())
    words = shlex.split(report["command"])
    said = build_parser().parse_args(words[1:])
    assert words[:2] == ["letgo", "analyze"]
    assert said.name == report["analysis"]
    assert set(COMMON) <= set(report)
    sources = len(report.get("shares", []))  # as many of each, so up to one of each more than was asked for
    assert said.count is None or said.count <= report["n"] <= said.count + sources
    assert said.seed == report["seed"]
    assert "model" not in report or report["model"] in said.models
    assert not Path(said.data or "here").is_absolute()


def test_figure_1_noises_the_pinned_proposal_and_judges_both_answers(monkeypatch: pytest.MonkeyPatch):
    """A network that answers ones at first and the clean board then: all of that is noised again, clues but for."""
    seen = study("sudoku-mini", 5, 5)
    given, x0 = seen.problem.given, seen.solver.clues(seen.problem).values
    asked: list[tuple[Tensor, float]] = []

    def propose(piece: Piece, x_t: Tensor, t: Tensor) -> Tensor:
        asked.append((x_t, float(t)))
        return x0 if len(asked) % 2 == 0 else torch.ones_like(x0)

    monkeypatch.setattr(Piece, "propose", propose)
    found = analysis_of("self-correction").run(seen)
    (x_t1, t1), (x_t2, t2) = asked[:2]
    assert (t1, t2) == pytest.approx((found["t1"], found["t2"]))
    for t, center, x in ((t1, x0, x_t1), (t2, torch.ones_like(x0), x_t2)):
        assert torch.equal(x[given], x0[given])
        noise = ((x - math.cos(math.pi * t / 2) * center) / math.sin(math.pi * t / 2))[~given]
        assert abs(float(noise.mean())) < 0.25  # of 240 numbers or more: three standard errors
        assert float(noise.std()) == pytest.approx(1, abs=0.2)
    assert [found["valid"][name]["value"] for name in ("proposal", "answer")] == [0.0, 1.0]
    assert (found["instance"], found["boards"]["answer"]["broken"]) == (0, [])
    assert found["boards"]["clean"]["symbols"] == seen.problem.solution[0].tolist()
    assert found["boards"]["proposal"]["broken"]


# As experiments of `letgo reproduce`


def test_a_picture_is_measured_once_and_shown_with_its_command(here: Path):
    said: list[str] = []
    session = Session(Store(here / "results"), device="cpu", count=2, say=said.append)
    picture = Picture("mechanism", ("sudoku-mini",), steps=4)
    assert "Not measured yet" in show_pictures(Results(session.store), "fig2", (picture,))
    analyze_missing(session, [picture])
    file = here / "results" / "analysis" / "mechanism-sudoku-mini.json"
    report = json.loads(file.read_text())
    assert report["command"] == "letgo analyze mechanism sudoku-mini --count 2 --steps 4 --device cpu"
    assert main([*report["command"].split()[1:], "--quiet"]) == 0
    repeated = json.loads((here / "analysis" / file.name).read_text())
    assert repeated["along"] == report["along"]
    written = file.stat().st_mtime_ns
    analyze_missing(session, [picture])
    assert (session.held, file.stat().st_mtime_ns) == (1, written)
    session.count, session.dry_run = 3, True  # more are asked for than were measured
    analyze_missing(session, [picture])
    assert said[-1] == "letgo analyze mechanism sudoku-mini --count 3 --steps 4 --device cpu"
    results = Results(session.store)
    assert "E_+ above E_-" in show_pictures(results, "fig2", (picture,))
    assert [used["command"] for used in results.used.values()] == [report["command"]]
    asks = Picture("mechanism", ("sudoku-extreme",), file=True)
    analyze_missing(session, [asks])
    assert "--data FOLDER" in session.skipped["sudoku-extreme"]


def test_commitment_times_are_pooled_over_tasks_with_every_board_counted_once(tmp_path: Path):
    """Two tasks: (2 x .5 + 1 x .8) / 3 = .6 of the boards that end valid."""

    def score(value: float, n: int) -> dict[str, float]:
        return {"value": value, "low": 0.0, "high": 1.0, "n": n}

    def report(valid: dict[str, float], never: dict[str, float]) -> dict[str, object]:
        found = {"commitment": {"valid": valid, "invalid": score(0.9, 4)}, "failures": {"never_valid": never},
                 "auroc": {"commitment": score(0.75, 8)}}  # fmt: skip
        about = {"analysis": "changes", "n": 4, "seed": 0, "model": "m", "regime": "r", "objective": "simple"}
        return {**about, "rules": {"ddpm": found, "tweedie": found}}

    pictures = (Picture("changes", ("latin",)), Picture("changes", ("queens",)))
    write_json(tmp_path / "analysis" / "changes-latin.json", report(score(0.5, 2), score(0.25, 4)))
    write_json(tmp_path / "analysis" / "changes-queens.json", report(score(0.8, 1), score(0.5, 4)))
    text = show_commitment(Results(Store(tmp_path)), pictures)
    assert "| DDPM | simple | 0.60, n = 3 | 0.72, n = 1229 | 0.90, n = 8 | 0.92, n = 1075 |" in text
    assert "| DDPM | self-correction | - | 0.88, n = 1755 | - |" in text
    assert "| 0.25 [0.00, 1.00], n = 4 | 0.75 [0.00, 1.00] by commitment |" in text
    assert show_commitment(Results(Store(tmp_path / "none")), pictures) == "Not measured yet."


@pytest.mark.extras
def test_cells_of_table_1_stand_beside_a_picture_pooled_over_training_seeds(tmp_path: Path):
    def report(seed: int, right: int, **changes: object) -> dict[str, object]:
        score = rate(right, 100).as_dict()
        about = {"rule": "tweedie", "regime": "test", "task": "sudoku-extreme", "steps": 1000, "count": 100}
        about |= {"settings": {}, "pass_at_k": {**score, "k": 1}, "validity": score, "data": {"sha256": "abc"}}
        return {**about, "seed": seed, **changes}

    write_json(tmp_path / "sudoku-extreme.json", [report(0, 40)])
    write_json(tmp_path / "sudoku-extreme.s1.json", [report(1, 30)])
    write_json(tmp_path / "sudoku-extreme-d3pm.json", [report(0, 20, rule="ancestral")])
    row = {"kind": "one try", "rule": "tweedie", "steps": 20, "calls": 20, "mean_calls": 20.0, "settings": {}}
    row |= {"validity": rate(1, 4).as_dict(), "standard_error": None}
    about = {"analysis": "work", "n": 4, "seed": 0, "model": "sudoku-extreme", "turns": 1}
    write_json(tmp_path / "analysis" / "work-sudoku-extreme.json", {**about, "rows": [row], "took": [0.0251]})
    picture = Picture("work", ("sudoku-extreme",), file=True, beside="extreme-pass1")
    [found] = picture.reports(Store(tmp_path))
    beside = [(one["model"], one["name"], one["calls"], one["validity"]["value"]) for one in found["beside"]]
    assert beside == [
        ("sudoku-extreme", "Tweedie", 1000, 0.35), ("sudoku-extreme-d3pm", "Ancestral", 1000, 0.2),
    ]  # fmt: skip
    words = "| sudoku-extreme | one try | tweedie | 20 | 20 | 20 | 0.025 | 0.250 [0.046, 0.699] | - | 4 | 0 |"
    assert words in show_work(Results(Store(tmp_path)), picture)[-1]
    assert show_work(Results(Store(tmp_path / "none")), picture) == []
    assert [path.name for path in picture.draw(Store(tmp_path), tmp_path)] == ["work-sudoku-extreme.png"]


@pytest.mark.fast
def test_pictures_are_of_analyses_and_models_that_there_are():
    for experiment in EXPERIMENTS.values():
        for picture in experiment.pictures:
            assert analysis_of(picture.analysis).needs_model == bool(picture.models)
            assert set(picture.models) <= set(PRESETS) | set(RUNS)
