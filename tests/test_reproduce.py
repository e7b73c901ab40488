"""`letgo reproduce`: what it measures, that it never measures twice, and what it leaves out by name."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch

from letgo.cli import main
from letgo.cli.reproduce import checkout
from letgo.errors import LetgoError
from letgo.evaluate import extra_scores, instances
from letgo.metrics import board_keys
from letgo.paper import TABLE1, TABLES
from letgo.presets import PRESETS, Config
from letgo.reproduce import measure
from letgo.reproduce.coverage import (
    ambiguous_puzzles,
    coverage_report,
    distinct_boards,
    solutions_report,
    training_boards,
)
from letgo.reproduce.measure import Session, identity, solve_model, trained_steps
from letgo.reproduce.plan import COLUMNS, Limits, merged, solve_columns, solve_needs, table_needs
from letgo.reproduce.store import SOLVE, Store
from letgo.solver import Solver, load
from letgo.tasks import Problem, get
from letgo.tasks.queens import Queens, all_boards

SOURCE = Path(__file__).parents[1] / "src"
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


def test_tables_1_12_13_and_14_share_their_reports():
    limits = Limits()
    alone = table_needs(["table1"], limits)
    assert table_needs(["table1", "table12", "table13", "table14"], limits) == alone
    keys = [(n.model, n.regime, n.rule, n.steps) for n in alone]
    assert len(set(keys)) == len(keys) == 10 * 10  # eleven columns, of which Sudoku-Extreme's two are one report


def test_every_report_of_a_full_table_has_the_papers_size():
    needs = table_needs(["table1"], Limits())
    assert {n.count for n in needs} == {2000}
    assert {n.steps for n in needs if n.task == "sudoku-extreme"} == {1000}
    assert {n.passes for n in needs if n.task == "sudoku-extreme"} == {10}
    assert {n.steps for n in needs if n.task != "sudoku-extreme"} == {200}
    assert {(n.count, n.passes) for n in table_needs(["table7"], Limits())} == {(1000, 10)}


def test_a_quick_run_is_ddpm_and_tweedie_with_sixteen_instances_and_one_pass():
    needs = table_needs(["table1"], Limits(quick=True))
    assert {n.rule for n in needs} == {"ddpm", "tweedie"}
    assert {(n.count, n.passes) for n in needs} == {(16, 1)}
    assert solve_columns(["table1", "table7"], Limits(quick=True)) == []


def test_models_stay_together_so_that_each_is_loaded_once():
    needs = merged(
        table_needs(["table1", "table8"], Limits()), solve_needs(solve_columns(["table1"], Limits()), Limits())
    )
    runs_of = [n.model for i, n in enumerate(needs) if i == 0 or needs[i - 1].model != n.model]
    assert len(runs_of) == len(set(runs_of))


def test_verified_solving_asks_for_ten_passes_of_tweedie_and_mazes_come_with_their_own_table():
    tables = solve_columns(["table1"], Limits())
    assert "maze" not in {c.model for c in tables}
    assert [c.model for c in solve_columns(["table7"], Limits())] == ["maze"]
    assert {(n.rule, n.passes) for n in solve_needs(tables, Limits())} == {("tweedie", 10)}


# Where models are


def test_a_model_is_a_run_a_seed_of_it_or_a_shipped_name(runs: Path, tmp_path: Path):
    session = Session(Store(tmp_path), runs)
    assert session.find("latin", 0) == str(runs / "latin")
    assert session.find("latin", 1) == str(runs / "latin.s1")
    assert session.skipped == {}
    assert session.find("latin", 2) is None
    assert session.find("chess", 2) is None
    assert session.find("chess", 0) is None
    assert session.find("sudoku", 0) is None  # it is shipped, but not what was asked for
    why = f"no run of it in {runs}"
    assert session.skipped == {"latin.s2": why, "chess": why, "sudoku": why}
    alone = Session(Store(tmp_path))
    assert alone.find("sudoku", 0) == "sudoku"
    assert alone.find("chess", 0) is None
    assert alone.skipped == {"chess": "no weights of it are shipped; name a folder of runs with --models"}


def test_a_run_in_the_present_folder_is_not_taken_for_the_shipped_model(away: Path, runs: Path):
    (away / "sudoku").symlink_to(runs / "latin")
    where = Session(Store(away / "results"), Path()).find("sudoku", 0)
    assert where is not None
    assert load(where).task.name == "latin"


def test_seeds_that_were_trained_together_lie_in_one_folder(runs: Path, tmp_path: Path):
    (tmp_path / "latin").mkdir()
    (tmp_path / "latin" / "s0").symlink_to(runs / "latin")
    (tmp_path / "latin" / "s1").symlink_to(runs / "latin.s1")
    session = Session(Store(tmp_path / "results"), tmp_path)
    assert [session.find("latin", seed) for seed in (0, 1)] == [str(tmp_path / "latin" / f"s{s}") for s in (0, 1)]


def test_steps_are_those_of_the_weights_that_tuning_went_back_to(runs: Path, tmp_path: Path):
    assert trained_steps(runs / "latin") == 2
    (tmp_path / "metrics.jsonl").write_text('{"step": 100}\n{"step": 400}\n')
    assert trained_steps(tmp_path) == 400
    (tmp_path / "validation.json").write_text('{"step": 300}')
    assert trained_steps(tmp_path) == 400
    (tmp_path / "validation.json").write_text('{"step": 300, "checkpoint": {"step": 300}}')
    assert trained_steps(tmp_path) == 300


# A real run


def test_a_second_run_measures_nothing_and_a_lost_report_alone_is_measured_again(
    runs: Path, away: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    calls: list[tuple[str, str]] = []
    real = measure.evaluate

    def counted(solver: Any, rule: str, *rest: Any, **more: Any) -> dict[str, Any]:
        calls.append((solver.config.name, rule))
        return real(solver, rule, *rest, **more)

    monkeypatch.setattr(measure, "evaluate", counted)
    (away / "runs").mkdir()
    (away / "runs" / "latin").symlink_to(runs / "latin")
    runs = away / "runs"
    assert quick(runs, "--out", "r", "--count", "2") == 0
    assert Counter(calls) == {("latin", "ddpm"): 2, ("latin", "tweedie"): 2}  # random and gen
    printed = capsys.readouterr().out
    assert "A quick look, not a reproduction" in printed
    first = (away / "r" / "latin.json").read_text()
    reports = json.loads(first)
    assert [(r["regime"], r["rule"]) for r in reports] == [
        (regime, rule) for regime in ("random", "gen") for rule in ("ddpm", "tweedie")
    ]
    assert {(r["model"], r["training_steps"], r["count"], r["seed"]) for r in reports} == {("latin", 2, 2, 0)}

    calls.clear()
    assert quick(runs, "--out", "r", "--count", "2", "--quiet") == 0
    assert calls == []
    assert (away / "r" / "latin.json").read_text() == first

    (away / "r" / "latin.json").write_text(json.dumps(reports[1:]))
    assert quick(runs, "--out", "r", "--count", "2", "--quiet") == 0
    assert calls == [("latin", "ddpm")]

    calls.clear()
    assert quick(runs, "--out", "r", "--count", "3", "--rules", "ddpm", "--quiet") == 0
    assert len(calls) == 2  # more instances are another measurement
    assert {r["count"] for r in json.loads((away / "r" / "latin.json").read_text()) if r["rule"] == "ddpm"} == {3}


def test_the_command_in_a_report_repeats_it(runs: Path, away: Path, capsys: pytest.CaptureFixture[str]):
    assert quick(runs, "--out", "r", "--count", "2", "--rules", "tweedie", "--quiet") == 0
    [report, _] = json.loads((away / "r" / "latin.json").read_text())
    assert report["command"].startswith(f"letgo evaluate {runs}/latin --rule tweedie --regime random --steps 200")
    capsys.readouterr()
    assert main([*report["command"].split()[1:], "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    same = ("validity", "violation_rate", "codeword_distance", "uniqueness", "settings", "steps", "count", "seed")
    assert {key: again[key] for key in same} == {key: report[key] for key in same}


def test_further_seeds_and_other_recipes_are_measured_under_their_own_names(
    runs: Path, away: Path, capsys: pytest.CaptureFixture[str]
):
    (away / "runs").mkdir()
    for name in ("latin", "latin.s1"):
        (away / "runs" / name).symlink_to(runs / name)
    (away / "runs" / "latin-long").symlink_to(runs / "latin")
    words = ["--models", "runs", "--also", "latin-long", "--seeds", "0,1", "--rules", "tweedie", "--count", "2"]
    assert main(["reproduce", "table1", "--quick", "--tasks", "latin", *words, "--out", "r", "--device", "cpu"]) == 0
    said = capsys.readouterr()
    assert sorted(p.name for p in (away / "r").glob("*.json")) == ["latin-long.json", "latin.json", "latin.s1.json"]
    assert json.loads((away / "r" / "latin.s1.json").read_text())[0]["seed"] == 1  # a test seed of its own
    assert "| latin-long | Tweedie |" in said.out
    assert "left out: latin-baseline (no run of it in runs)" in said.err
    assert "left out: latin-long.s1 (no run of it in runs)" in said.err


def test_a_dry_run_prints_commands_and_writes_nothing(runs: Path, away: Path, capsys: pytest.CaptureFixture[str]):
    words = ["--tasks", "latin", "--models", str(runs), "--dry-run"]
    assert main(["reproduce", "table1", *words]) == 0
    said = capsys.readouterr()
    lines = said.out.splitlines()
    assert f"letgo evaluate {runs}/latin.s1 --rule ddpm --regime gen --steps 200 --count 2000 --seed 1" in lines
    assert f"letgo reproduce solve --tasks latin --count 2000 --models {runs}" in lines
    assert "em-decay (not tuned yet: `letgo tune" in said.err
    assert list(away.iterdir()) == []


def test_another_shipped_recipe_goes_through_the_cells_of_its_task(away: Path, capsys: pytest.CaptureFixture[str]):
    board = "".join(str((3 * (row % 3) + row // 3 + column) % 9 + 1) for row in range(9) for column in range(9))
    (away / "test.csv").write_text(f"source,question,answer,rating\nx,{'.' + board[1:]},{board},3\n")
    words = ["--tasks", "sudoku-extreme", "--also", "sudoku-extreme-deep,sudoku-mini", "--data", "test.csv"]
    assert main(["reproduce", "table1", *words, "--rules", "tweedie", "--count", "1", "--seeds", "0", "--dry-run"]) == 0
    said = capsys.readouterr()
    rest = "--regime test --steps 1000 --count 1 --seed 0 --passes 10 --data test.csv"
    assert f"letgo evaluate sudoku-extreme-deep --rule tweedie {rest}" in said.out
    solve = "letgo reproduce solve --tasks sudoku-extreme --count 1"
    assert f"{solve} --data test.csv" in said.out.splitlines()
    assert f"{solve} --also sudoku-extreme-deep --data test.csv" in said.out.splitlines()
    assert "left out: sudoku-mini (other boards, path or representation than the paper's)" in said.err


def test_mazes_are_measured_by_the_recipe_that_is_shipped(away: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["reproduce", "table7", "--rules", "tweedie", "--seeds", "0", "--dry-run"]) == 0
    said = capsys.readouterr()
    words = "--rule tweedie --regime test --steps 200 --count 1000 --seed 0 --passes 10"
    assert f"letgo evaluate maze-muon {words}" in said.out.splitlines()
    assert f"letgo evaluate maze-muon-baseline {words}" in said.out.splitlines()
    assert "left out: maze (no weights of it are shipped" in said.err


def test_a_folder_with_other_files_is_refused_before_anything_is_measured(
    away: Path, capsys: pytest.CaptureFixture[str]
):
    (away / "r").mkdir()
    (away / "r" / "config.json").write_text('{"name": "x"}')
    assert main(["reproduce", "table1", "--quick", "--tasks", "latin", "--count", "1", "--out", "r"]) == 2
    assert "r/config.json is no list of reports; restore it or move it away" in capsys.readouterr().err
    assert [path.name for path in (away / "r").iterdir()] == ["config.json"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("solve --quick", "verified solving (never in a quick run"),
        ("table5 --tasks queens", "table5 (it has sudoku-extreme-baseline, "),
    ],
)
def test_what_cannot_be_measured_is_said(words: str, why: str, away: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["reproduce", *words.split(), "--dry-run", "--out", "r"]) == 0
    assert f"left out: {why}" in capsys.readouterr().err


def test_what_is_there_already_is_said_and_how_to_measure_it_again(away: Path, capsys: pytest.CaptureFixture[str]):
    words = ["reproduce", "table1", "--quick", "--tasks", "queens", "--rules", "ddpm", "--count", "1", "--out", "r"]
    assert main([*words, "--seeds", "0"]) == 0
    assert "there already" not in capsys.readouterr().err
    assert main([*words, "--seeds", "0"]) == 0
    assert (
        "4 reports were there already, of as many instances or more; --force measures again" in capsys.readouterr().err
    )


def test_sudoku_extreme_is_left_out_without_its_file(away: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["reproduce", "table1", "--quick", "--tasks", "sudoku-extreme", "--out", "r"]) == 0
    assert "left out: sudoku-extreme (its test file is not at hand: --data FILE" in capsys.readouterr().err


def test_a_retrained_model_is_measured_again(runs: Path, tmp_path: Path):
    store = Store(tmp_path)
    facts: dict[str, Any] = {"settings": {}, "training_steps": 2}
    [need] = [
        n for n in table_needs(["table1"], Limits(("latin",), ("ddpm",), 3)) if (n.model, n.regime) == ("latin", "gen")
    ]
    report = {"model": "latin", "regime": "gen", "rule": "ddpm", "steps": 200, "seed": 0, "count": 3}
    report |= {"pass_at_k": {"k": 1}, **facts}
    assert measure.serves(store, report, need, 0, facts)
    assert measure.serves(store, {**report, "count": 4}, need, 0, facts)
    for change in ({"count": 2}, {"seed": 1}, {"steps": 100}, {"training_steps": 1}, {"settings": {"sigma": 7.0}}):
        assert not measure.serves(store, {**report, **change}, need, 0, facts), change
    facts["weights_sha256"] = "0123456789ab"
    assert measure.serves(store, report, need, 0, facts)  # an older report does not say
    assert measure.serves(store, {**report, "weights_sha256": "0123456789ab"}, need, 0, facts)
    assert not measure.serves(store, {**report, "weights_sha256": "ba9876543210"}, need, 0, facts)
    ten = replace(need, passes=10)
    assert not measure.serves(store, report, ten, 0, facts)
    assert measure.serves(store, {**report, "pass_at_k": {"k": 10}}, ten, 0, facts)
    assert not measure.serves(store, {**report, "pass_at_k": {"k": 20}}, ten, 0, facts)  # no pass@10 in it
    assert measure.serves(store, {**report, "pass_at_k": {"k": 20}}, need, 0, facts)
    assert not measure.serves(
        store, {**report, "settings": {"variance": 0.5}}, need, 0, {"settings": {"variance": 0.5}}
    )


def test_generated_instances_and_a_file_do_not_stand_for_each_other(tmp_path: Path):
    drawn: dict[str, Any] = {"training_steps": 2, "command": "letgo evaluate latin --rule ddpm"}
    read = {
        "training_steps": 2,
        "data": {"file": "mine.npz", "sha256": "1"},
        "command": "letgo evaluate latin --data mine.npz",
    }
    facts = [{key: one[key] for key in one if key != "command"} for one in (drawn, read)]
    store = Store(tmp_path)
    assert [store.stale(old, new) for old in (drawn, read) for new in facts] == [False, True, True, False]


def test_another_sampler_of_the_same_rule_displaces_nothing(tmp_path: Path):
    def report(**settings: float) -> dict[str, Any]:
        return {"model": "latin", "rule": "em", "count": 9, "settings": settings, "training_steps": 2}

    store = Store(tmp_path)
    for one in (
        report(sigma=0.1),
        report(sigma=0.1, variance=0.5),
        report(sigma=0.2),
        report(sigma=0.2, soft_until=0.5),
    ):
        store.add("latin", one, ("rule",))
    assert [r["settings"] for r in store.reports("latin")] == [
        {"sigma": 0.1, "variance": 0.5},
        {"sigma": 0.2},
        {"sigma": 0.2, "soft_until": 0.5},
    ]


def test_a_smaller_report_does_not_displace_a_larger_one_that_still_holds(tmp_path: Path):
    def report(count: int, **more: Any) -> dict[str, Any]:
        return {"model": "latin", "rule": "ddpm", "count": count, "settings": {}, "training_steps": 2, **more}

    store = Store(tmp_path)
    for one in (report(10), report(5), report(20), report(3, training_steps=9)):
        store.add("latin", one, ("rule",))
    counts = [r["count"] for r in json.loads((tmp_path / "latin.json").read_text())]
    assert counts == [3]  # 20 displaced 10 and 5; another training displaced them all
    store.add("latin", report(2, training_steps=9), ("rule",))
    assert [r["count"] for r in store.reports("latin")] == [3, 2]


def test_one_pass_does_not_displace_ten(tmp_path: Path):
    def report(count: int, passes: int, **more: Any) -> dict[str, Any]:
        known = {"model": "latin", "rule": "ddpm", "count": count, "settings": {}, "training_steps": 2}
        return {**known, "pass_at_k": {"k": passes}, **more}

    store = Store(tmp_path)
    for one in (report(10, 1), report(10, 10), report(10, 1), report(20, 1)):
        store.add("latin", one, ("rule",))
    assert [(r["count"], r["pass_at_k"]["k"]) for r in store.reports("latin")] == [(10, 10), (20, 1)]
    store.add("latin", report(20, 10), ("rule",))
    assert [(r["count"], r["pass_at_k"]["k"]) for r in store.reports("latin")] == [(20, 10)]
    store.add("latin", report(5, 1, training_steps=9), ("rule",))
    assert [(r["count"], r["pass_at_k"]["k"]) for r in store.reports("latin")] == [(5, 1)]


def test_ten_passes_are_for_the_first_seed_alone(runs: Path, away: Path, capsys: pytest.CaptureFixture[str]):
    words = ["--tasks", "latin", "--models", str(runs), "--rules", "tweedie", "--dry-run"]
    assert main(["reproduce", "table1", *words]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if "--regime random" in line]
    assert {line.split()[2].rpartition("/")[2]: "--passes 10" in line for line in lines} == {
        "latin": True,
        "latin-baseline": True,
        "latin.s1": False,
    }


def test_commands_keep_the_path_of_sampling_and_the_name_of_the_data(tmp_path: Path):
    session = Session(Store(tmp_path), plain=True, threads=2, data={"sudoku-extreme": "/x/y", "maze": "hub"})
    assert session.words("evaluate", "latin") == "letgo evaluate latin --plain --threads 2"
    assert session.data_word("sudoku-extreme", {"data": {"file": "test.csv"}}) == "FOLDER/test.csv"
    assert session.data_word("maze", {"data": {"file": "test.csv"}}) == "hub"
    session.dry_run = True
    assert session.data_word("sudoku-extreme", {"data": {"file": "test.csv"}}) == "/x/y"


def test_a_model_is_known_by_its_weights(runs: Path, tmp_path: Path):
    session = Session(Store(tmp_path), runs, device="cpu")
    facts = [measure.about(session, session.solver(str(runs / n)), str(runs / n)) for n in ("latin", "latin.s1")]
    digest = hashlib.sha256((runs / "latin" / "model.safetensors").read_bytes()).hexdigest()
    assert facts[0]["weights_sha256"] == digest[:12] != facts[1]["weights_sha256"]


def test_solving_is_recorded_with_its_share_and_calls(runs: Path, tmp_path: Path):
    session = Session(Store(tmp_path), runs, device="cpu", limits=Limits(count=3), say=lambda text: None)
    column = replace(COLUMNS["latin-random"], steps=3)
    solve_model(session, "latin", str(runs / "latin"), [column])
    [report] = json.loads((tmp_path / "solve.json").read_text())
    assert (report["puzzles"], report["tries"], report["share"]["n"]) == (3, 10, 3)
    assert report["solved"] == 0  # it knows nothing, so all tries are spent
    assert (report["mean_calls"], report["needed_more_than_one_try"]) == (30, 3)
    solve_model(session, "latin", str(runs / "latin"), [column])
    assert len(session.store.reports(SOLVE)) == 1


# Words


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", "name a table; `letgo reproduce --list` shows table1, table5"),
        ("table2", "unknown table 'table2'"),
        ("table1 --models nowhere", "--models nowhere: no such folder"),
        ("table1 --tasks chess", "unknown task 'chess'; choose one of sudoku"),
        ("table1 --rules heun", "unknown rule 'heun'; the tables have ddpm"),
        ("table1 --data nowhere.csv", "--data nowhere.csv: no such file or folder for sudoku-extreme"),
        ("table1 --data maze=nowhere.csv", "--data nowhere.csv: no such file or folder for maze"),
        ("page", "is no results folder of a letgo checkout; say where with --page FILE"),
    ],
)
def test_bad_words_are_one_line_and_exit_2(words: str, message: str, away: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["reproduce", *words.split()]) == 2
    said = capsys.readouterr()
    assert message in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_the_list_names_every_table_with_columns(capsys: pytest.CaptureFixture[str]):
    assert main(["reproduce", "--list"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert set(TABLES) < set(listed)
    assert {"table5", "table15", "solutions", "solve", "page"} < set(listed)


def test_a_quick_run_in_a_checkout_leaves_the_page_alone(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "letgo"\n')
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "results.md").write_text("the full page")
    monkeypatch.chdir(tmp_path / "docs")
    assert checkout() == tmp_path
    assert quick(runs, "--count", "1", "--rules", "ddpm", "--quiet") == 0
    assert (tmp_path / "docs" / "results.md").read_text() == "the full page"
    assert (tmp_path / "results" / "quick" / "latin.json").is_file()
    assert (tmp_path / "results" / "quick" / ".gitignore").read_text() == "*\n"  # git leaves it alone
    assert main(["reproduce", "page", "--quiet"]) == 0
    assert (tmp_path / "docs" / "results.md").read_text().startswith("# Results")


def test_a_data_file_is_known_by_name_hash_and_rows(tmp_path: Path):
    (tmp_path / "test.csv").write_text("source,question,answer,rating\n" + "a,b,c,0\n" * 3)
    known = identity(str(tmp_path))
    assert known == identity(str(tmp_path / "test.csv"))
    assert (known["file"], known["rows"], len(known["sha256"])) == ("test.csv", 3, 64)
    with pytest.raises(LetgoError, match="no test file there"):
        identity(str(tmp_path / "nowhere"))


def test_the_hub_means_the_tasks_own_data_set(away: Path):
    for folder in ("sudoku-extreme", "maze-hard"):
        (away / "data" / folder).mkdir(parents=True)
        for name in ("train.csv", "test.csv"):  # both are there, so nothing is fetched
            (away / "data" / folder / name).write_text(f"head of {folder}\n")
    for task, folder in (("sudoku-extreme", "sudoku-extreme"), ("maze", "maze-hard")):
        assert identity("hub", task)["sha256"] == hashlib.sha256(f"head of {folder}\n".encode()).hexdigest()
    with pytest.raises(LetgoError, match="the hub has no data set for latin"):
        identity("hub", "latin")


def test_graphs_of_a_file_have_the_size_of_the_regime(tmp_path: Path):
    task, path = get("connectivity"), tmp_path / "graphs.npz"
    assert main(["data", "make", "connectivity", "--regime", "18", "--count", "3", "--out", str(path)]) == 0
    assert instances(task, "18", 2, 0, str(path)).solution.shape == (2, 18 * 18)
    for regime in (None, "12"):
        with pytest.raises(LetgoError, match="holds graphs of 18 nodes, not of 12; say --regime 18"):
            instances(task, regime, 2, 0, str(path))


BARE = """
import sys
for name in ("scipy", "matplotlib", "diffusers", "huggingface_hub", "beartype", "fastapi", "pandas"):
    sys.modules[name] = None  # an import of it fails
from letgo.cli import main
quick = ["--quick", "--models", sys.argv[1], "--count", "1", "--rules", "ddpm", "--device", "cpu"]
assert main(["reproduce", "table1", "--tasks", "latin", "--out", sys.argv[2], *quick]) == 0
assert main(["reproduce", "page", "--out", sys.argv[2], "--page", sys.argv[2] + "/page.md"]) == 0
"""


def test_measuring_and_the_page_need_no_matplotlib(runs: Path, tmp_path: Path):
    env = {**os.environ, "PYTHONPATH": str(SOURCE), "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-c", BARE, str(runs), str(tmp_path / "r")]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=300, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r" / "page.md").read_text().startswith("# Results")
    assert not (tmp_path / "r" / "assets").exists()


# Coverage (Table 15)


def stub(boards: torch.Tensor, task: str, **options: int) -> Solver:
    """A solver whose samples are these boards in turn, as sample number (try, instance) says."""
    small = {"width": 8, "depth": 1, "heads": 1, "hidden": 8}
    config = Config(task, task, task_options=options, network_options=small)
    solver = Solver(config, config.build_model())

    def sample(problem: Problem, rule: Any, steps: Any, seed: int, attempt: int, *rest: Any) -> torch.Tensor:
        index = (attempt * len(problem) + torch.arange(len(problem))) % len(boards)
        return solver.codec.encode(boards[index])

    solver.sample = sample  # pyright: ignore[reportAttributeAccessIssue]
    return solver


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_distinct_boards_do_not_depend_on_the_chunk(chunk: int):
    rng = torch.Generator().manual_seed(0)
    boards = torch.cat([all_boards(6)[torch.randint(4, (30,), generator=rng)], torch.zeros(20, 6, dtype=torch.long)])
    found, valid = distinct_boards(stub(boards, "queens", size=6), "tweedie", 50, chunk=chunk)
    assert valid == 30
    assert found.tolist() == sorted({int(key) for key in board_keys(boards[:30], 6)})


def test_coverage_inside_and_outside_of_the_training_split_counts_each_board_once():
    every = all_boards(8)  # 92 of them
    training = {tuple(b) for b in training_boards(Queens(8)).tolist()}
    assert len(training) == 92 * 168_000 // 365_596
    drawn = every[:50].repeat(3, 1)
    report = coverage_report(stub(drawn, "queens", size=8), "tweedie", 150)
    inside = len(training & {tuple(b) for b in every[:50].tolist()})
    assert report["distinct"] == {"inside": inside, "outside": 50 - inside}
    assert report["coverage"]["total"]["value"] == pytest.approx(50 / 92)
    assert report["coverage"]["inside"]["n"] + report["coverage"]["outside"]["n"] == 92
    assert report["validity"]["value"] == 1
    assert report["if_uniform"] == pytest.approx(1 - (91 / 92) ** 150)


def test_coverage_is_for_queens_alone():
    with pytest.raises(LetgoError, match="counted for queens"):
        coverage_report(load("sudoku-mini"), "tweedie", 1)


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


def test_the_floor_of_graphs_is_the_share_that_is_connected():
    task = get("connectivity")
    problem = task.generate(60, np.random.default_rng(3), "12")
    assert problem.context is not None
    connected = [networkx.is_connected(networkx.from_numpy_array(a.numpy())) for a in problem.context]
    assert 0 < sum(connected) < 60
    scores = extra_scores(task, [problem.solution], problem)
    assert scores["all_joined"]["value"] == sum(connected) / 60


def test_a_maze_is_solved_at_k_if_any_try_is_shortest():
    task = get("maze", size=8)
    problem = task.generate(2, np.random.default_rng(0), "test")
    blank = torch.where(problem.given, problem.solution, torch.ones_like(problem.solution))
    second = torch.stack([problem.solution[0], blank[1]])
    scores = extra_scores(task, [blank, second], problem)
    assert scores["length"]["value"] == 0
    assert (scores["length_at_k"]["k"], scores["length_at_k"]["value"]) == (2, 0.5)


def test_columns_name_models_and_regimes_that_exist():
    for table in TABLES.values():
        for cell in table.cells():
            assert cell.model in PRESETS
            task = PRESETS[cell.model].build_task()
            assert cell.column.regime in task.regimes
            assert cell.column.steps in (PRESETS[cell.model].sample_steps, 500)
    assert len(list(TABLE1.cells())) == 110
