"""What the documents say is what the code does and what the files hold."""

import importlib.util
import json
import re
import shlex
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from letgo import cli, tasks
from letgo.checkpoints import locate, shipped
from letgo.cli.reproduce import TARGETS
from letgo.kernels import PLAIN_RULES, make_rule
from letgo.paper import TABLES
from letgo.presets import PRESETS
from letgo.reproduce import plots
from letgo.reproduce.measure import weights_digest
from letgo.reproduce.page import Page
from letgo.reproduce.store import Store, split_seed
from letgo.solver import load

ROOT = Path(__file__).parent.parent


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(), re.S)


def tool_named(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    return tool


def test_the_performance_page_is_what_the_bench_files_hold():
    tool = tool_named("performance")
    text = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert tool.page(text) == text, "run python tools/performance.py"


def test_the_readme_table_is_what_the_result_files_hold():
    tool = tool_named("readme")
    readme = (ROOT / "README.md").read_text()
    assert tool.updated(readme) == readme


def test_the_page_of_results_is_what_the_result_files_hold():
    """`letgo reproduce page` writes both."""
    store = Store(ROOT / "results")
    assert (ROOT / "docs" / "results.md").read_text() == Page(store).text()
    for name, plot in plots.PLOTS.items():
        picture = ROOT / "docs" / "assets" / f"{name}.svg"
        assert plots.drawn_digest(picture) == plots.digest(plot.points(store))


@pytest.mark.parametrize("name", shipped())
def test_the_figures_of_a_shipped_model_are_of_the_shipped_weights(name: str):
    store, digest = Store(ROOT / "results"), weights_digest(locate(name)[0] / "model")
    solved = [r for r in store.reports("solve") if r["model"] == name]
    for report in (*store.reports(name), *solved):
        kept = report.get("weights", "").startswith("fp16, as kept")  # of an earlier step, on purpose
        assert kept or report.get("weights_sha256", digest) == digest, report["command"]


def test_every_result_names_its_command_and_every_note_a_cell():
    store = Store(ROOT / "results")
    cells = {cell.name for table in TABLES.values() for cell in table.cells()}
    for note in store.reports("notes"):
        assert note.get("about", "all") in ("all", *tasks.TASKS, *TARGETS)
        if "about" in note:
            continue
        assert set(note["cells"]) <= cells
        if (steps := note["training_steps"]) is not None:
            assert note["text"].startswith(f"Trained for {steps:,} of "), "a note that speaks of a run falls with it"
    runs = store.read("training")
    for name in (*store.models(), "solve", "coverage", "solutions"):
        for report in store.reports(name):
            words = shlex.split(report["command"])
            said = cli.build_parser().parse_args(words[1:])  # as anybody could give it
            assert words[0] == "letgo", name
            assert set(getattr(said, "names", [])) <= set(TARGETS), report["command"]
            model, seed = split_seed(report["model"])
            if report["model"] in shipped():
                assert getattr(said, "model", model) == model, report["command"]
            else:  # a further seed, or a run that was not worth shipping: it is named, and how it was made
                run, _, step = said.model.partition("@")
                assert run == (f"runs/{model}/s{seed}" if seed else f"runs/{model}"), report["command"]
                made = runs[report["model"]]["commands"]
                assert made
                assert all(f"--out runs/{model}" in one for one in made)
                for one in (cli.build_parser().parse_args(shlex.split(one)[1:]) for one in made):
                    other = one.out == Path(f"runs/{model}")  # a preset with other options, under a name of its own
                    assert one.preset == model or (other and PRESETS[one.preset].objective == report["objective"])
                assert report["training_steps"] == (int(step) if step else runs[report["model"]]["steps"])
                assert not step or any(f"--keep {step} " in one for one in made)


@pytest.mark.parametrize("name", shipped())
def test_every_card_names_data_licence_steps_and_scores_with_n(name):
    card = json.loads((ROOT / "src/letgo/shipped" / name / "card.json").read_text())
    text = (ROOT / "src/letgo/shipped" / name / "README.md").read_text()
    assert card["licence"] in text
    assert f"{card['steps']:,} steps" in text
    assert card["scores"]
    for report in card["scores"]:
        assert report["validity"]["n"] >= 100
        assert report["command"].startswith("letgo evaluate")
        assert f"{report['validity']['value']:.3f}" in text


def test_the_readme_python_runs_as_printed(capsys):
    code, sampler = blocks("README.md", "python")
    names: dict = {}
    exec(code, names)
    assert names["answer"].solved
    assert names["answer"].board.startswith("534678912672195348")
    exec(sampler, {})
    assert capsys.readouterr().out.endswith("torch.Size([8, 16, 4])\n")


def test_the_contributed_update_rule_has_under_ten_lines_and_works(monkeypatch):
    [rule, _] = blocks("CONTRIBUTING.md", "python")
    assert len(rule.splitlines()) < 10
    monkeypatch.setattr("letgo.kernels.PLAIN_RULES", dict(PLAIN_RULES))
    names = vars(__import__("letgo.kernels", fromlist=["x"])).copy()
    exec(rule, names)
    monkeypatch.setitem(PLAIN_RULES, "half-anchor", names["half_anchor"])
    x = load("sudoku-mini").sample(load("sudoku-mini").empty(2), names["half_anchor"], steps=5)
    assert torch.isfinite(x).all()
    assert make_rule("ddim") is PLAIN_RULES["ddim"]


def test_the_contributed_task_has_under_forty_lines_and_trains(monkeypatch, tmp_path):
    [_, code] = blocks("CONTRIBUTING.md", "python")
    assert len(code.splitlines()) < 40
    (tmp_path / "coins.py").write_text(code)
    spec = importlib.util.spec_from_file_location("letgo.tasks.coins", tmp_path / "coins.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "letgo.tasks.coins", module)
    monkeypatch.setitem(tasks.TASKS, "coins", ("coins", "Coins", {}))
    from letgo import presets

    small = {"width": 16, "depth": 1, "heads": 2, "hidden": 16}
    config = presets.Config("coins", "coins", network_options=small, boards=64, batch=16, steps=5, sample_steps=5)
    monkeypatch.setitem(presets.PRESETS, "coins", config)
    task = tasks.get("coins")
    problem = task.generate(20, np.random.default_rng(0), "train")
    assert task.validate(problem.solution, problem).all()
    assert cli.main(["train", "coins", "--out", str(tmp_path / "run"), "--quiet", "--device", "cpu"]) == 0
    assert cli.main(["solve", str(tmp_path / "run"), "H..T"]) in (0, 1)
    assert cli.main(["solve", str(tmp_path / "run"), "H..X"]) == 2
