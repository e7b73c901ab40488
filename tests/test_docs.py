"""What the documents say is what the code does and what the files hold."""

import hashlib
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import torch

from letgo import cli, kernels, samplers, tasks
from letgo.presets import PRESETS
from letgo.reproduce.experiments import EXPERIMENTS
from letgo.reproduce.measure import weights_digest
from letgo.reproduce.page import stale
from letgo.reproduce.paper import TABLES
from letgo.reproduce.store import Store, split_seed
from letgo.runs import locate, shipped
from letgo.samplers import RULES
from letgo.solver import load

ROOT = Path(__file__).parent.parent


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / name).read_text(), re.S)


def test_pages_are_made_from_the_result_files_of_today():
    """`letgo reproduce page` and `python tools/performance.py` write them anew."""
    store = Store(ROOT / "results")
    assert not stale(ROOT / "docs" / "results.md", store)
    assert not stale(ROOT / "README.md", store)
    assert {path.stem for path in (ROOT / "docs" / "results").iterdir()} == set(EXPERIMENTS)
    for name, plot in ((e.name, e.plot) for e in EXPERIMENTS.values() if e.plot):
        assert plot.mark(store) in (ROOT / "docs" / "assets" / f"{name}.svg").read_text()
    bench = b"".join(path.read_bytes() for path in sorted((ROOT / "results" / "bench").glob("*.json")))
    assert f"<!-- sha256 {hashlib.sha256(bench).hexdigest()} -->" in (ROOT / "docs" / "performance.md").read_text()


def test_the_page_of_results_is_short_and_its_links_lead_somewhere():
    text = (ROOT / "docs" / "results.md").read_text()
    assert len(text.splitlines()) <= 400
    for page in (ROOT / "docs" / "results.md", *(ROOT / "docs" / "results").iterdir()):
        for link in re.findall(r"\]\(([^)#]+)", page.read_text()):
            assert (page.parent / link).is_file(), (page.name, link)


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
        if "about" in note:
            assert note["about"] in EXPERIMENTS
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
            assert set(getattr(said, "names", [])) <= set(EXPERIMENTS), report["command"]
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
    monkeypatch.setattr("letgo.samplers.RULES", dict(RULES))
    exec(rule, {**vars(kernels), **vars(samplers)})
    solver = load("sudoku-mini")
    boards = [solver.sample(solver.empty(2), solver.sampler(name, 5)) for name in ("half-anchor", "ddim", "tweedie")]
    assert boards[0].isfinite().all()
    assert not any(torch.equal(boards[0], other) for other in boards[1:])
    assert cli.main(["generate", "sudoku-mini", "--rule", "half-anchor", "--count", "2", "--steps", "5"]) == 0


def test_the_contributed_task_has_under_forty_lines_and_trains(monkeypatch, tmp_path):
    [_, code] = blocks("CONTRIBUTING.md", "python")
    assert len(code.splitlines()) < 40
    (tmp_path / "coins.py").write_text(code)
    monkeypatch.setattr(tasks, "TASKS", dict(tasks.TASKS))
    tasks.load(f"{tmp_path / 'coins.py'}:Coins")
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
