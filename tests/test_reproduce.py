"""`letgo reproduce`: what it measures, that it never measures twice, and what it leaves out by name."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch

from letgo.cli import build_parser, main
from letgo.config import Config
from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.estimates import ESTIMATES
from letgo.metrics import board_keys
from letgo.presets import ABLATIONS, PRESETS
from letgo.reproduce import measure
from letgo.reproduce.coverage import ambiguous_puzzles, coverage_report, distinct_boards, solutions_report
from letgo.reproduce.experiments import EXPERIMENTS
from letgo.reproduce.measure import Need, Session, trained_steps
from letgo.reproduce.own_runs import RUNS, config_of, how_to_train
from letgo.reproduce.paper import TABLE1, TABLES
from letgo.reproduce.store import Store, stale
from letgo.solver import Solver, load
from letgo.tasks import Problem, get
from letgo.tasks.queens import all_boards, train_split

TINY = ["--steps", "2", "--batch", "4", "--boards", "20", "--validate", "0", "--device", "cpu", "--quiet"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Latin models of two steps: both objectives, and a second seed of one."""
    folder = tmp_path_factory.mktemp("runs")
    for name, preset, seed in (
        ("latin", "latin", 0),
        ("latin-baseline", "latin-baseline", 0),
        ("latin.s1", "latin", 1),
    ):
        assert main(["train", preset, "--out", str(folder / name), "--seed", str(seed), *TINY]) == 0
    return folder


@pytest.fixture
def away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place outside of any checkout."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def quick(runs: Path, *words: str) -> int:
    return main(
        ["reproduce", "table1", "--quick", "--tasks", "latin", "--models", str(runs), "--device", "cpu", *words]
    )


# What is needed


def test_tables_share_their_reports_at_the_papers_size_and_a_quick_one_has_sixteen_instances(tmp_path: Path):
    def needs_of(*names: str, **limits: Any) -> list[Need]:
        return Session(Store(tmp_path), **limits).needed(need for name in names for need in EXPERIMENTS[name].needs)

    alone = [need for need in needs_of("table1") if need.kind == "evaluate"]
    more = [need for need in needs_of("table1", "table12", "table13", "table14") if need.kind == "evaluate"]
    assert len(more) == len(alone)
    own = [need for need in alone if need.model in PRESETS and need.model.removesuffix("-baseline") == need.task]
    assert len(own) == 10 * 10  # Sudoku-Extreme's two columns are one report
    assert {(n.file, n.steps, n.count) for n in needs_of("table1")} == {(True, 1000, 2000), (False, 200, 2000)}
    assert {n.passes for n in alone if n.file} == {10}
    assert {(n.count, n.passes) for n in needs_of("table7") if n.kind == "evaluate"} == {(1000, 10)}
    small = {(n.kind, n.rule, n.count, n.passes) for n in needs_of("table1", "table7", "solve", quick=True)}
    assert small == {("evaluate", "ddpm", 16, 1), ("evaluate", "tweedie", 16, 1), ("solve", "tweedie", 4, 1)}


def test_columns_name_models_and_regimes_that_exist():
    for table in TABLES.values():
        for cell in table.cells():
            config = config_of(cell.model)
            task = config.build_task()
            assert (task.name, cell.column.regime in task.regimes) == (cell.column.task, True)
            assert cell.column.steps in (config.sample_steps, 500)
    assert [cell.paper.value for cell in TABLES["table8"].cells() if cell.model == "sudoku-corrupt-20"] == [64.0, 99.6]
    assert len(list(TABLE1.cells())) == 110


# Where models are


def test_a_model_is_a_run_a_seed_of_it_or_a_shipped_name(runs: Path, tmp_path: Path, monkeypatch: Any):
    session = Session(Store(tmp_path), runs)
    assert session.find("latin", 0) == str(runs / "latin")
    assert session.find("latin", 1) == str(runs / "latin.s1")
    assert session.skipped == {}
    for model, seed in (("latin", 2), ("chess", 2), ("chess", 0), ("sudoku", 0)):  # shipped, but not asked for
        assert session.find(model, seed) is None
    why = f"no run of it in {runs}"
    assert session.skipped == {
        "latin.s2": f"{why}; `letgo train latin --seed 2 --out {runs}/latin.s2` trains it", "chess": why,
        "sudoku": f"{why}; `letgo train sudoku --out {runs}/sudoku` trains it",
    }  # fmt: skip
    assert Session(Store(tmp_path)).find("sudoku", 0) == "sudoku"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sudoku").symlink_to(runs / "latin")  # a run in the present folder is not the shipped model
    assert load(str(Session(Store(tmp_path), Path()).find("sudoku", 0))).task.name == "latin"
    (tmp_path / "latin").mkdir()
    (tmp_path / "latin" / "s1").symlink_to(runs / "latin.s1")  # seeds that were trained together lie in one folder
    assert Session(Store(tmp_path / "r"), tmp_path).find("latin", 1) == str(tmp_path / "latin" / "s1")


def test_the_line_that_trains_a_missing_model_is_one_that_letgo_takes():
    parser = build_parser()
    for name in (*RUNS, "sudoku-digits", "sudoku-extreme-consistency", "mnist-sudoku-baseline"):
        said = parser.parse_args(shlex.split(how_to_train(name).split("`")[1])[1:])
        assert (said.command, said.out) == ("train", Path("runs") / name)
        assert said.preset in PRESETS
        assert (said.data is not None) == ("extreme" in name)
        assert (said.digits is not None) == ("digits" in name or "mnist" in name)
        assert said.ablation is None or said.ablation in ABLATIONS
    assert how_to_train("chess") == ""


def test_steps_are_those_of_the_weights_that_tuning_went_back_to(runs: Path, tmp_path: Path):
    assert trained_steps(runs / "latin") == 2
    (tmp_path / "metrics.jsonl").write_text('{"step": 100}\n{"step": 400}\n')
    assert trained_steps(tmp_path) == 400
    (tmp_path / "validation.json").write_text('{"step": 300, "checkpoint": {"step": 300}}')
    assert trained_steps(tmp_path) == 300


# A real run


@pytest.mark.journey
def test_a_second_run_measures_nothing_and_a_lost_report_alone_is_measured_again(
    runs: Path, away: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    calls: list[tuple[str, str]] = []
    real = measure.evaluate

    def counted(solver: Any, problem: Problem, sampler: Any, *rest: Any) -> Any:
        calls.append((solver.config.name, sampler.rule))
        return real(solver, problem, sampler, *rest)

    monkeypatch.setattr(measure, "evaluate", counted)
    (away / "runs").mkdir()
    (away / "runs" / "latin").symlink_to(runs / "latin")
    runs = away / "runs"
    assert quick(runs, "--out", "r", "--count", "2") == 0
    assert Counter(calls) == {("latin", "ddpm"): 2, ("latin", "tweedie"): 2}  # random and gen
    printed = capsys.readouterr()
    assert "A quick look, not a reproduction" in printed.out
    assert "left out: latin-baseline (no run of it in " in printed.err
    assert "there already" not in printed.err
    first = (away / "r" / "latin.json").read_text()
    reports = json.loads(first)
    assert [(r["regime"], r["rule"]) for r in reports] == [
        (regime, rule) for regime in ("random", "gen") for rule in ("ddpm", "tweedie")
    ]
    assert {(r["model"], r["training_steps"], r["count"], r["seed"]) for r in reports} == {("latin", 2, 2, 0)}

    calls.clear()
    assert quick(runs, "--out", "r", "--count", "2") == 0
    assert calls == []
    assert "4 reports were there already, of as many instances or more; --force" in capsys.readouterr().err
    assert (away / "r" / "latin.json").read_text() == first

    (away / "r" / "latin.json").write_text(json.dumps(reports[1:]))
    assert quick(runs, "--out", "r", "--count", "2", "--quiet") == 0
    assert calls == [("latin", "ddpm")]

    calls.clear()
    assert quick(runs, "--out", "r", "--count", "3", "--rules", "ddpm", "--quiet") == 0
    assert len(calls) == 2  # more instances are another measurement
    assert {r["count"] for r in json.loads((away / "r" / "latin.json").read_text()) if r["rule"] == "ddpm"} == {3}


@pytest.mark.journey
def test_the_command_in_a_report_repeats_it_and_is_printed_when_asked_for(
    runs: Path, away: Path, capsys: pytest.CaptureFixture[str]
):
    assert quick(runs, "--out", "r", "--count", "2", "--rules", "tweedie", "--quiet") == 0
    [report, _] = json.loads((away / "r" / "latin.json").read_text())
    assert report["command"].startswith(f"letgo evaluate {runs}/latin --rule tweedie --regime random --steps 200")
    capsys.readouterr()
    assert main(["reproduce", "table1", "--commands", "--out", "r"]) == 0
    assert report["command"] in capsys.readouterr().out.splitlines()
    assert main([*report["command"].split()[1:], "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    same = ("validity", "violation_rate", "codeword_distance", "uniqueness", "settings", "steps", "count", "seed")
    assert {key: again[key] for key in same} == {key: report[key] for key in same}


def test_a_dry_run_prints_commands_and_writes_nothing(runs: Path, away: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["reproduce", "table1", "--tasks", "latin", "--models", str(runs), "--dry-run"]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert f"letgo evaluate {runs}/latin.s1 --rule ddpm --regime gen --steps 200 --count 2000 --seed 1" in lines
    assert f"letgo reproduce solve --tasks latin --count 2000 --models {runs}" in lines
    ten = {line.split()[2].rpartition("/")[2]: "--passes 10" in line for line in lines
           if "--rule tweedie --regime random" in line}  # fmt: skip
    assert ten == {"latin": True, "latin-baseline": True, "latin.s1": False}  # pass@10 is for the first seed alone
    assert "em-decay (not tuned yet: `letgo tune" in said.err
    assert list(away.iterdir()) == []


def test_other_recipes_go_through_the_cells_of_their_task(away: Path, capsys: pytest.CaptureFixture[str]):
    board = "".join(str((3 * (row % 3) + row // 3 + column) % 9 + 1) for row in range(9) for column in range(9))
    (away / "test.csv").write_text(f"source,question,answer,rating\nx,{'.' + board[1:]},{board},3\n")
    words = ["--tasks", "sudoku-extreme", "--data", "test.csv", "--rules", "tweedie,em-decay", "--count", "1"]
    assert main(["reproduce", "table1", *words, "--seeds", "0", "--dry-run"]) == 0
    said = capsys.readouterr().out.splitlines()
    rest = "--regime test --steps 1000 --count 1 --seed 0 --passes 10"
    assert f"letgo evaluate sudoku-extreme-deep --rule tweedie {rest} --data test.csv" in said
    assert f"letgo evaluate sudoku-extreme --rule em-decay {rest} --sigma 20 --tau-start 0.7 --data test.csv" in said
    assert "letgo reproduce solve --tasks sudoku-extreme --count 1 --data sudoku-extreme=test.csv" in said
    assert main(["reproduce", "table7", "--rules", "tweedie", "--seeds", "0", "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "letgo evaluate maze-muon --rule tweedie --regime test --steps 200 --count 1000 --seed 0" in said.out
    assert "left out: maze (no weights of it are shipped" in said.err


def test_figures_of_ones_own_runs_show_those_that_are_there_and_name_the_rest(
    away: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["train", "sudoku-mini", "--out", "runs/lambda-0", "--keep", "1,2", *TINY]) == 0
    capsys.readouterr()
    words = ["--quick", "--count", "2", "--models", "runs", "--out", "r", "--device", "cpu"]
    assert main(["reproduce", "fig9", *words, "--quiet"]) == 0
    said = capsys.readouterr()
    assert "left out: baseline (no run of it in runs; `letgo train sudoku-baseline --steps 100000" in said.err
    report = json.loads((away / "r" / "analysis" / "curves-lambda-0.json").read_text())
    assert (report["model"], report["n"]) == ("lambda-0", 2)
    assert [(row["training_steps"], row["rule"]) for row in report["rows"]] == [
        (1, "ddpm"), (1, "tweedie"), (2, "ddpm"), (2, "tweedie"),
    ]  # fmt: skip
    assert report["command"].startswith("letgo analyze curves runs/lambda-0 --count 2")


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("fig9", "baseline: no weights of it are shipped; name a folder of runs with --models; `letgo train "),
        ("fig10", "`letgo train sudoku-baseline --steps 100000 --keep 20000,60000,100000 --out runs/baseline`"),
    ],
)
def test_where_no_model_is_at_hand_one_line_says_what_trains_it(
    name: str, line: str, away: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["reproduce", name, "--quick", "--device", "cpu", "--quiet"]) == 2
    said = capsys.readouterr()
    assert line in said.err
    assert (said.err.count("\n"), said.out) == (1, "")
    assert list(away.iterdir()) == []


def test_solving_is_recorded_with_its_share_and_calls(runs: Path, tmp_path: Path):
    session = Session(Store(tmp_path), runs, device="cpu", count=3, say=lambda text: None)
    needs = [n for n in EXPERIMENTS["solve"].needs if (n.model, n.kind) == ("latin", "solve")]
    for held in range(2):  # the second time it is there
        measure.measure_all(session, [replace(need, steps=3) for need in needs])
        assert session.held == held
    [report] = json.loads((tmp_path / "solve.json").read_text())
    assert (report["puzzles"], report["tries"], report["share"]["n"]) == (3, 10, 3)
    assert report["solved"] == 0  # it knows nothing, so all tries are spent
    assert (report["mean_calls"], report["needed_more_than_one_try"]) == (30, 3)


# When a report still holds


def test_a_report_serves_until_the_model_its_settings_or_its_data_change():
    facts: dict[str, Any] = {"settings": {}, "training_steps": 2}
    need, key = Need("latin", "latin", "gen", "ddpm", 200, 3), {"regime": "gen", "steps": 200, "seed": 0}
    report = {"model": "latin", **key, "rule": "ddpm", "count": 3, "pass_at_k": {"k": 1}, **facts}

    def serves(need: Need = need, **change: Any) -> bool:
        return measure.serves({**report, **change}, need, key, facts)

    assert serves()
    assert serves(count=4)
    others: list[dict[str, Any]] = [{"count": 2}, {"seed": 1}, {"steps": 100}, {"training_steps": 1}]
    for change in (*others, {"settings": {"sigma": 7.0}}):
        assert not serves(**change), change
    facts["weights_sha256"] = "0123456789ab"
    assert serves()  # an older report does not say
    assert not serves(weights_sha256="ba9876543210")
    ten = replace(need, passes=10)
    assert [serves(ten, pass_at_k={"k": k}) for k in (1, 10, 20)] == [False, True, False]  # no pass@10 in @20
    facts["settings"] = {"variance": 0.5}
    assert not serves(settings={"variance": 0.5})  # another sampler
    both: list[dict[str, Any]] = [{"training_steps": 2}, {"training_steps": 2, "data": {"sha256": "1"}}]
    assert [stale(old, new) for old in both for new in both] == [False, True, True, False]


def test_a_report_displaces_only_what_it_is_worth_more_than(tmp_path: Path):
    def report(count: int, k: int = 1, **more: Any) -> dict[str, Any]:
        known = {"model": "latin", "rule": "em", "count": count, "pass_at_k": {"k": k}, "settings": {}}
        return {**known, "training_steps": 2, **more}

    def kept(*reports: dict[str, Any]) -> list[dict[str, Any]]:
        (tmp_path / "latin.json").unlink(missing_ok=True)
        store = Store(tmp_path)
        for one in reports:
            store.add("latin", one, ("rule",))
        return Store(tmp_path).reports("latin")

    assert [r["count"] for r in kept(report(10), report(5), report(20), report(3, training_steps=9))] == [3]
    assert [r["count"] for r in kept(report(20), report(2))] == [20, 2]  # the larger one still holds
    tens = kept(report(10, 1), report(10, 10), report(10, 1), report(20, 1))
    assert [(r["count"], r["pass_at_k"]["k"]) for r in tens] == [(10, 10), (20, 1)]
    settings = ({"sigma": 0.1}, {"sigma": 0.1, "variance": 0.5}, {"sigma": 0.2}, {"sigma": 0.2, "soft_until": 0.5})
    others = kept(*(report(9, settings=s) for s in settings))
    assert [r["settings"] for r in others] == [settings[1], settings[2], settings[3]]  # other samplers stay


# Words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "name a table; `letgo reproduce --list` shows table1"),
        ("table2", "unknown table 'table2'"),
        ("table1 --models nowhere", "--models nowhere: no such folder"),
        ("table1 --tasks chess", "unknown task 'chess'"),
        ("table1 --rules heun", "unknown rule 'heun'"),
        ("table1 --data nowhere.csv", "--data nowhere.csv: no such file or folder for sudoku-extreme"),
        ("table1 --data maze=nowhere.csv", "--data nowhere.csv: no such file or folder for maze"),
        ("page", "is no results folder of a letgo checkout; say where with --page FILE"),
        (
            "table1 --out r",
            "r/config.json is no list of reports: it is dict; expected a list; restore it or move it away",
        ),
    ],
)
def test_bad_words_are_one_line_and_exit_2(words: str, message: str, away: Path, capsys: pytest.CaptureFixture[str]):
    (away / "r").mkdir()
    (away / "r" / "config.json").write_text('{"name": "x"}')
    assert main(["reproduce", *words.split()]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("sudoku", {"validity": 3}),
        ("sudoku", {"count": "many"}),
        ("sudoku", {"settings": []}),
        ("analysis/steps-sudoku", {"rows": [1.5]}),
        ("analysis/steps-sudoku", {"n": "3"}),
    ],
)
def test_a_damaged_report_is_refused_by_name_and_no_page_is_written(
    name: str, damage: dict[str, Any], away: Path, capsys: pytest.CaptureFixture[str]
):
    (away / "r" / "analysis").mkdir(parents=True)
    whole = json.loads((Path(__file__).parents[1] / "results" / f"{name}.json").read_text())
    damaged = [{**report, **damage} for report in whole] if isinstance(whole, list) else {**whole, **damage}
    (away / "r" / f"{name}.json").write_text(json.dumps(damaged))
    assert main(["reproduce", "page", "--out", "r", "--page", "page.md"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("letgo: r")
    assert said.err.count("\n") == 1
    assert not (away / "page.md").exists()


@pytest.mark.journey
def test_a_quick_run_in_a_checkout_leaves_the_page_alone(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "letgo"\n')
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "results.md"
    page.write_text("the full page")
    monkeypatch.chdir(tmp_path / "docs")
    assert quick(runs, "--count", "1", "--rules", "ddpm", "--quiet") == 0
    assert page.read_text() == "the full page"
    assert (tmp_path / "results" / "quick" / "latin.json").is_file()
    assert (tmp_path / "results" / "quick" / ".gitignore").read_text() == "*\n"  # git leaves it alone
    assert main(["reproduce", "page", "--quiet"]) == 2  # it would overwrite what it did not write
    assert "no <!-- results:begin -->" in capsys.readouterr().err
    page.write_text("by hand\n<!-- results:begin --><!-- results:end -->\nby hand too\n")
    assert main(["reproduce", "page", "--quiet"]) == 0
    text = page.read_text()
    assert text.startswith("by hand\n<!-- results:begin -->\n<!-- made from")
    assert text.endswith("<!-- results:end -->\nby hand too\n")
    assert {path.stem for path in (tmp_path / "docs" / "results").iterdir()} == set(EXPERIMENTS)


# Data files


def test_a_data_file_is_known_by_name_hash_and_rows_and_the_hub_means_the_tasks_own(away: Path):
    for folder in ("sudoku-extreme", "maze-hard"):
        (away / "data" / folder).mkdir(parents=True)
        for name in ("train.csv", "test.csv"):  # both are there, so nothing is fetched
            (away / "data" / folder / name).write_text(f"head of {folder}\n" + "a,b,c,0\n" * 3)
    for task, folder in (("sudoku-extreme", "sudoku-extreme"), ("maze", "maze-hard")):
        path = Path("data") / folder / "test.csv"
        known = {"file": "test.csv", "sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "rows": 3}
        for data in ("hub", str(path.parent), str(path)):
            assert source_of(get(task), data).identity("test") == known
    for task, data, message in (("latin", "hub", "the hub has no data set for latin"), ("maze", "x", "no test file")):
        with pytest.raises(LetgoError, match=message):
            source_of(get(task), data).identity("test")


def test_graphs_of_a_file_have_the_size_of_the_regime(tmp_path: Path):
    task, path = get("connectivity"), tmp_path / "graphs.npz"
    assert main(["data", "make", "connectivity", "--regime", "18", "--count", "3", "--out", str(path)]) == 0
    assert source_of(task, str(path)).draw("test", "18", 2, 0).solution.shape == (2, 18 * 18)
    for regime in (None, "12"):
        with pytest.raises(LetgoError, match="holds graphs of 18 nodes, not of 12; give --regime 18"):
            source_of(task, str(path)).draw("test", regime, 2, 0)


# Coverage (Table 15)


def stub(boards: torch.Tensor, task: str, **options: int) -> Solver:
    """A solver whose samples are these boards in turn, as sample number (try, instance) says."""
    small = {"width": 8, "depth": 1, "heads": 1, "hidden": 8}
    config = Config(task, task, task_options=options, network_options=small)
    solver = Solver(config, config.build_model())

    def sample(
        problem: Problem, sampler: Any, seed: int, tries: int = 1, attempt: int = 0, *_: Any, **__: Any
    ) -> torch.Tensor:
        index = (attempt * len(problem) + torch.arange(len(problem))) % len(boards)
        return solver.codec.encode(boards[index])

    solver.sample = sample  # pyright: ignore[reportAttributeAccessIssue]
    return solver


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_distinct_boards_do_not_depend_on_the_chunk(chunk: int):
    rng = torch.Generator().manual_seed(0)
    boards = torch.cat([all_boards(6)[torch.randint(4, (30,), generator=rng)], torch.zeros(20, 6, dtype=torch.long)])
    found, valid = distinct_boards(stub(boards, "queens", size=6), "tweedie", 50, 0, chunk)
    assert valid == 30
    assert found.tolist() == sorted({int(key) for key in board_keys(boards[:30], 6)})


def test_coverage_inside_and_outside_of_the_training_split_counts_each_board_once():
    every = all_boards(8)  # 92 of them
    training = {tuple(b) for b in train_split(8, 92 * 168_000 // 365_596)[0].tolist()}
    drawn = every[:50].repeat(3, 1)
    report = coverage_report(stub(drawn, "queens", size=8), "tweedie", 150)
    inside = len(training & {tuple(b) for b in every[:50].tolist()})
    assert report["distinct"] == {"inside": inside, "outside": 50 - inside}
    assert report["coverage"]["total"]["value"] == pytest.approx(50 / 92)
    assert report["coverage"]["inside"]["n"] + report["coverage"]["outside"]["n"] == 92
    assert report["validity"]["value"] == 1
    assert report["if_uniform"] == pytest.approx(1 - (91 / 92) ** 150)


# Several solutions (App. O.3)


def test_ambiguous_puzzles_have_two_to_twelve_solutions_and_all_are_listed(mini_boards: torch.Tensor):
    puzzles, solutions = ambiguous_puzzles(get("sudoku", box=2), 8, 0)  # pyright: ignore[reportArgumentType]
    for i, listed in enumerate(solutions):
        given, clues = puzzles.given[i], puzzles.solution[i]
        agree = mini_boards[(mini_boards[:, given] == clues[given]).all(1)]
        assert 2 <= len(agree) <= 12
        assert sorted(listed.tolist()) == sorted(agree.tolist())
        assert 6 <= int(given.sum()) <= 8


def test_clues_of_full_boards_are_the_papers():
    puzzles, solutions = ambiguous_puzzles(get("sudoku"), 12, 0)  # pyright: ignore[reportArgumentType]
    assert all(32 <= clues <= 38 for clues in puzzles.given.sum(1).tolist())
    assert all(2 <= len(s) <= 12 for s in solutions)


def test_draws_are_counted_by_solution(mini_boards: torch.Tensor):
    task = get("sudoku", box=2)
    puzzles, solutions = ambiguous_puzzles(task, 2, 1)  # pyright: ignore[reportArgumentType]
    broken = torch.zeros(1, 16, dtype=torch.long)
    draws = torch.cat([solutions[0][[0, 0, 0, 1]], solutions[1][[1, 1]], broken, broken])
    solver = stub(draws, "sudoku", box=2)
    report = solutions_report(solver, puzzles, solutions, 4)
    assert report["counts"][0][:2] == [3, 1]
    assert report["counts"][1][:2] == [0, 2]
    assert (report["found"], report["solutions"]) == (3, len(solutions[0]) + len(solutions[1]))
    assert report["validity"]["value"] == 6 / 8


def test_the_shipped_small_model_finds_several_solutions_of_one_puzzle():
    """30 draws a puzzle; a model that knew one answer only would find 4 of at least 8."""
    solver = load("sudoku-mini")
    puzzles, solutions = ambiguous_puzzles(solver.task, 4, 0)  # pyright: ignore[reportArgumentType]
    report = solutions_report(solver, puzzles, solutions, 30)
    assert 4 < report["found"] <= report["solutions"] <= 48
    assert 0 <= report["uneven"] < 1


# What evaluation adds for graphs and mazes


def extra_scores(task: Any, tries: list[torch.Tensor], problem: Problem) -> dict[str, Any]:
    outcomes = task.outcomes(tries, problem)
    return {name: ESTIMATES[column.kind](column.values) for name, column in outcomes.items()}


def test_the_floor_of_graphs_is_the_share_that_is_connected():
    task = get("connectivity")
    problem = task.generate(60, np.random.default_rng(3), "12")
    assert problem.context is not None
    connected = [networkx.is_connected(networkx.from_numpy_array(a.numpy())) for a in problem.context]
    assert 0 < sum(connected) < 60
    assert extra_scores(task, [problem.solution], problem)["all_joined"].value == sum(connected) / 60


def test_a_maze_is_solved_at_k_if_any_try_is_shortest():
    task = get("maze", size=8)
    problem = task.generate(2, np.random.default_rng(0), "test")
    blank = torch.where(problem.given, problem.solution, torch.ones_like(problem.solution))
    second = torch.stack([problem.solution[0], blank[1]])
    scores = extra_scores(task, [blank, second], problem)
    assert (scores["length"].value, scores["length_at_k"].more["k"], scores["length_at_k"].value) == (0, 2, 0.5)
