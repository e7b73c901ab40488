"""A task of one's own, from a file outside the package: CONTRIBUTING's example, as a user would have it."""

from __future__ import annotations

import argparse
import ast
import json
import re
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from own_tasks import Derangements, Differ, Traffic, TwoSteps
from refusals import fault

from letgo import tasks
from letgo.config import Config
from letgo.data import source_of
from letgo.presets import PRESETS

BLOCKS = re.findall(r"^```python\n(.*?)^```$", (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(), re.S | re.M)
COINS = next(block for block in BLOCKS if "class Coins" in block)


@pytest.fixture(autouse=True)
def registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "TASKS", dict(tasks.TASKS))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "my.py").write_text(COINS)
    return tmp_path / "my.py"


def test_the_page_describes_it(file: Path):
    pytest.importorskip("fastapi")
    from letgo.app.catalog import describe
    from letgo.config import Config
    from letgo.solver import Solver

    small = {"width": 16, "depth": 1, "heads": 2, "hidden": 16}
    config = Config("coins", tasks.load(f"{file}:Coins"), network_options=small, sample_steps=5)
    card = describe("coins", Solver(config, config.build_model()))
    assert (card.title, card.kind, card.cells, card.rows, card.columns) == ("Coins", "grid", 4, 1, 4)
    assert tasks.Task.look.__get__(tasks.get("coins")) == tasks.Look("Coins", 2, 2, ["H", "T"])  # a guess
    assert (list(card.letters), card.regime.named) == (["H", "T"], ["gen", "train"])
    assert set(card.example.puzzle) & {"H", "T"}  # a puzzle to watch has a clue, though its first regime gives none


def test_a_model_without_its_task_leaves_the_page_standing(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("fastapi")
    monkeypatch.setattr("letgo.runs.shipped", lambda: ["sudoku"])  # the others take their time, thrice
    from letgo.app.catalog import Catalog
    from letgo.config import Config
    from letgo.runs import save_weights, write_json

    small = {"width": 16, "depth": 1, "heads": 2, "hidden": 16}
    config = Config("coins", tasks.load(f"{file}:Coins"), network_options=small, sample_steps=5)
    write_json(tmp_path / "run" / "config.json", config.as_dict())
    save_weights(tmp_path / "run" / "model.safetensors", config.build_model().state_dict())
    del tasks.TASKS["coins"]  # as in a process that was not given --task
    run = str(tmp_path / "run")
    catalog = Catalog([run])
    catalog.load()
    catalog.wait()
    assert "sudoku" in catalog.cards
    assert list(catalog.failed) == [run]
    assert "unknown task 'coins'" in catalog.failed[run]
    assert "give --task FILE.py:Class, or install the package that has it" in catalog.failed[run]
    tasks.load(f"{file}:Coins")
    catalog = Catalog([run])
    catalog.load()
    assert catalog.failed == {}
    assert catalog.cards[run].task == "coins"
    weights = tmp_path / "run" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    catalog = Catalog([run])
    catalog.load()
    assert "model.safetensors" in catalog.failed[run]
    assert "sudoku" in catalog.cards


def test_the_command_line_trains_measures_tunes_and_solves_it(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """Every verb runs the file that it is given; none runs what a run folder names."""
    from letgo.cli.main import main

    run, own = str(tmp_path / "run"), ["--task", f"{file}:Coins", "--device", "cpu"]
    assert main(["train", "--out", run, "--steps", "20", "--batch", "8", "--quiet", "--validate", "8", *own]) == 0
    assert main(["evaluate", run, "--rule", "tweedie", "--count", "5", "--steps", "5", "--json", *own]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["task"], report["regime"], report["validity"]["n"]) == ("coins", "gen", 5)
    tune = ["tune", run, "--rule", "em", "--count", "5", "--steps", "5", "--sigmas", "0.1", "--as-is"]
    assert main([*tune, *own]) == 0
    capsys.readouterr()
    assert main(["solve", run, "HHTT", *own]) == 0
    assert capsys.readouterr().out == "HHTT\n"
    assert main(["generate", run, "--count", "3", "--steps", "5", "--quiet", *own]) == 0
    assert [set(line) <= set("HT") for line in capsys.readouterr().out.split()] == [True] * 3
    assert main(["solve", run, "H..X", *own]) == 2
    del tasks.TASKS["coins"]
    assert main(["solve", run, "H..T"]) == 2
    assert "unknown task 'coins'" in capsys.readouterr().err


def test_its_own_scores_are_printed_after_the_usual_ones():
    from letgo.cli.evaluate import summary
    from letgo.estimates import Column
    from letgo.report import Outcomes, Report

    flags = torch.tensor([True, False, True, True])
    columns = {name: Column.of("rate", flags) for name in ("heads_first", "validity", "violation_rate")}
    columns |= {"pass_at_k": Column.of("any", flags[:, None])}
    facts = {"task": "coins", "rule": "ddpm", "settings": {}, "steps": 5, "seed": 0, "model": "m", "regime": "gen"}
    report = Report.of(Outcomes([0, 1, 2, 3], columns), **facts, calls=20, seconds=1.0, device="cpu", precision="fp32")
    lines = [line.split() for line in summary(report.as_dict()).splitlines()]
    assert [line[0] for line in lines[1:-1]] == ["validity", "violation_rate", "heads_first"]
    assert lines[3][1] == "0.7500"


@pytest.mark.parametrize(
    ("code", "name", "expected"),
    [
        ("", "Coins", "no 'Coins' in it; there are none"),
        ("class Coins: pass", "Coin", "no 'Coin' in it; there are Coins"),
        ("class Coins: pass", "Coins", "Coins is no task; derive it from letgo.tasks.Task"),
        (COINS.replace("def parse", "def read"), "Coins", "Coins lacks parse; CONTRIBUTING.md shows"),
        (COINS.replace('name, cells, symbols, regimes = "coins", 4, 2,', "symbols, regimes = 2,"), "Coins",
         "Coins lacks name, cells; CONTRIBUTING.md shows"),
        (COINS.replace('"coins", 4', '"latin", 4'), "Coins", "the name 'latin' is taken by another task"),
        ("import nowhere", "Coins", "it does not run: ModuleNotFoundError: No module named 'nowhere'"),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_task_is_refused_in_one_line(tmp_path: Path, code: str, name: str, expected: str):
    (tmp_path / "my.py").write_text(code)
    assert expected in fault(tasks.load, f"{tmp_path / 'my.py'}:{name}")
    assert "no such file" in fault(tasks.load, f"{tmp_path / 'your.py'}:{name}")
    assert "no such file" in fault(tasks.load, "Coins")


@pytest.mark.fast
def test_a_task_of_an_installed_package_is_found_by_its_name(file: Path, monkeypatch: pytest.MonkeyPatch):
    names: dict[str, Any] = {}
    exec(compile(COINS, str(file), "exec"), names)
    asked = []

    def entry_points(group: str, name: str) -> list[Any]:
        asked.append((group, name))
        coins = SimpleNamespace(load=lambda: names["Coins"], value="coins:Coins")
        return [coins] if name == "coins" else []

    monkeypatch.setattr(metadata, "entry_points", entry_points)
    assert tasks.get("latin").cells == 49
    assert asked == []  # packages are asked for unknown names alone
    assert tasks.get("coins").cells == 4
    assert "did you mean sudoku?" in fault(tasks.get, "sudokku")
    assert asked == [("letgo.tasks", "coins"), ("letgo.tasks", "sudokku")]


def test_a_source_of_ones_own_comes_with_the_task(file: Path):
    from letgo.data.source import Source

    names: dict[str, Any] = {}
    exec(compile(COINS, str(file), "exec"), names)

    class Heads(Source):
        def generate(self, split: str, regime: str, count: int, rng: np.random.Generator) -> tasks.Problem:
            problem = super().generate(split, regime, count, rng)
            return tasks.Problem(problem.solution, problem.solution == 0)

    tasks.register(names["Coins"], Heads)
    problem = source_of(tasks.get("coins")).draw("test", None, 8, 0)
    assert (problem.given.sum(1) == 2).all()
    json.dumps(source_of(tasks.get("coins")).identity("test"))


def test_no_module_outside_tasks_and_data_asks_for_a_tasks_name_or_kind() -> None:
    package = Path(tasks.__file__).parents[1]
    paths = [path for path in package.rglob("*.py") if path.parent.name not in ("tasks", "data")]
    assert len(paths) > 100
    assert [f"{path}: {found}" for path in paths if (found := asked_for(ast.parse(path.read_text())))] == []


def asked_for(tree: ast.AST) -> list[str]:
    """Comparisons and patterns with a registered task's or model's name, `isinstance` of a task's or source's class.

    `in TASKS` asks the registry, which anyone may.
    """
    rows = tasks.TASKS.values()
    kinds = {each for row in rows for each in tasks.resolve(row.build).__mro__ + tasks.resolve(row.source).__mro__}
    classes, found = {kind.__name__ for kind in kinds} - {"object", "ABC"}, []
    for node in ast.walk(tree):
        called = getattr(node.func, "id", getattr(node.func, "attr", "")) if isinstance(node, ast.Call) else ""
        words = {getattr(part, "id", getattr(part, "attr", "")) for part in ast.walk(node)}
        if isinstance(node, ast.Compare | ast.match_case) or called in ("startswith", "endswith"):
            inside = node.pattern if isinstance(node, ast.match_case) else node
            known = {part.value for part in ast.walk(inside) if isinstance(part, ast.Constant)}
            known &= {*tasks.TASKS, *PRESETS}
            known |= words & classes if isinstance(node, ast.Compare) and "type" in words else set()
        elif called in ("isinstance", "issubclass"):
            known = words & classes
        else:
            continue
        found += [f"{ast.unparse(node)[:60]} {known}"] if known else []
    return found


@pytest.mark.parametrize(
    "code",
    ['task.name == "latin"', 'x in ("a", "queens")', 'name.startswith("maze")', 'model != "sudoku-baseline"',
     "isinstance(task, Sudoku)", "isinstance(source, table.TableRows | None)",
     "type(task) is Sudoku", "type(self.task) in (tasks.Latin, Maze)", 'match name:\n case "sudoku":\n  pass'],
)  # fmt: skip
def test_asking_for_a_tasks_name_or_kind_is_noticed(code: str) -> None:
    assert asked_for(ast.parse(code)) != []
    assert asked_for(ast.parse("x in TASKS or isinstance(x, str) or tasks.get('latin').cells")) == []


@pytest.mark.parametrize(
    ("task", "text", "letters", "separator", "blank", "context"),
    [
        (TwoSteps, "0110|0010|0001|0000", ["0", "1"], "", ".", True),
        (Derangements, "A?? ???", "ABC", "", "?", False),
        (Differ, "1.", ["0", "1"], "", ".", False),
        (Traffic, "red,,,,", ["red", "green", "blue"], ",", "", False),
    ],
)  # fmt: skip
def test_the_page_knows_how_a_cell_is_written(
    task: type, text: str, letters: Any, separator: str, blank: str, context: bool
) -> None:
    pytest.importorskip("fastapi")
    from letgo.app.catalog import describe, parse
    from letgo.solver import Solver

    config = Config.for_task(tasks.get(tasks.register(task)), sample_steps=2)
    assert config.network == ("nlm" if context else "transformer")  # the one that is told what comes beside a board
    solver = Solver(config, config.build_model())
    card = describe(task.name, solver)
    assert (card.letters, card.separator, card.blank, card.context) == (letters, separator, blank, context)
    assert parse(solver, text).given.sum() == (0 if context else 1)


def test_a_registered_task_is_known_by_its_name_to_every_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As one of an installed package is: trained without a preset, and no puzzle of another task."""
    from letgo.cli.main import main

    tasks.register(Traffic)
    run, file = str(tmp_path / "run"), tmp_path / "some.npz"
    train = ["train", "traffic", "--out", run, "--steps", "2", "--batch", "4", "--boards", "8", "--validate", "0"]
    assert main([*train, "--device", "cpu", "--quiet"]) == 0
    assert main(["solve", "traffic", "red,green,red,green,red", "--model", run, "--show", "--device", "cpu"]) == 0
    assert capsys.readouterr().out.split() == ["red,green,red,green,red"]
    assert main(["data", "make", "traffic", "--count", "3", "--out", str(file)]) == 0
    assert main(["evaluate", run, "--rule", "ddpm", "--regime", "all", "--count", "2", "--device", "cpu"]) == 2
    assert "unknown regime 'all'" in capsys.readouterr().err
    assert main(["train", "trafic", "--out", run]) == 2
    assert "unknown preset 'trafic'" in capsys.readouterr().err


def test_data_of_a_task_of_ones_own_is_made_and_checked(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from letgo.cli.main import main

    own, out = ["--task", f"{file}:Coins"], tmp_path / "coins.npz"
    assert main(["data", "make", *own, "--count", "5", "--regime", "train", "--out", str(out)]) == 0
    assert "5 instances of coins (train)" in capsys.readouterr().out
    assert main(["data", "check", str(out), *own]) == 0
    assert "rows: 5" in capsys.readouterr().out
    assert main(["data", "make", "latin", *own, "--count", "5", "--out", str(out)]) == 2
    assert main(["data", "make", "--count", "5", "--out", str(out)]) == 2
    assert capsys.readouterr().err.count("needs either a TASK by its name or --task") == 2


def test_an_answer_is_drawn_whatever_its_text_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a context is told, the text of an answer is none that `parse` could read as a board."""
    from letgo.answers import Ledger
    from letgo.cli.solve import _print_answer

    task = TwoSteps()
    problem = task.generate(1, np.random.default_rng(0))
    ledger, rows, spent = Ledger(problem, choosing=False), torch.tensor([0]), torch.tensor([1])
    ledger.enter(rows, problem.solution, torch.tensor([True]), spent, torch.tensor([0.1]))
    [answer] = ledger.answers(task)
    args = argparse.Namespace(json=False, show=True)
    _print_answer(SimpleNamespace(task=task), problem, answer, args, example=False)  # pyright: ignore
    assert capsys.readouterr().out.strip() == task.format(problem.solution, problem)[0]
    assert "symbols" not in answer.as_dict()


def test_more_symbols_than_a_byte_holds_are_refused() -> None:
    class Many(Differ):
        name, symbols = "many", 257

    assert "many with 257 symbols; expected at most 256" in fault(tasks.get, tasks.register(Many))
