"""What the documents say is what the code does and what the files hold."""

import hashlib
import json
import os
import pkgutil
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from letgo import cli
from letgo.presets import PRESETS
from letgo.reproduce.experiments import EXPERIMENTS
from letgo.reproduce.page import stale
from letgo.reproduce.paper import TABLES
from letgo.reproduce.store import Store, split_seed
from letgo.runs import locate, shipped
from letgo.runs.files import weights_digest

ROOT = Path(__file__).parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}


def blocks(name: str, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / name).read_text(), re.S | re.M)
    return [text for own, text in found if own == language]


def test_pages_are_made_from_the_result_files_of_today():
    """`letgo reproduce page` and `python tools/performance.py` write them anew."""
    store = Store(ROOT / "results")
    assert not stale(ROOT / "docs" / "results.md", store)
    assert not stale(ROOT / "README.md", store)
    assert {path.stem for path in (ROOT / "docs" / "results").iterdir()} == set(EXPERIMENTS)
    for name in (e.name for e in EXPERIMENTS.values() if e.plot):
        assert store.digest() in (ROOT / "docs" / "assets" / f"{name}.svg").read_text()
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
    store, digest = Store(ROOT / "results"), weights_digest(locate(name)[0])
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
    runs, parse = store.read("training"), cli.build_parser().parse_args
    for name in (*store.models(), "solve", "coverage", "solutions"):
        for report in store.reports(name):
            words = shlex.split(report["command"])
            said = parse(words[1:])  # as anybody could give it
            assert words[0] == "letgo", name
            assert set(getattr(said, "names", [])) <= set(EXPERIMENTS), report["command"]
            model, seed = split_seed(report["model"])
            if report["model"] in shipped():
                where = f"runs/{model}" if "before rounding" in report.get("weights", "") else model
                assert getattr(said, "model", where) in (model, where), report["command"]
            else:  # a further seed, or a run that was not worth shipping: it is named, and how it was made
                run, _, step = said.model.partition("@")
                assert run == (f"runs/{model}/s{seed}" if seed else f"runs/{model}"), report["command"]
                made = runs[report["model"]]["commands"]
                assert made
                assert all(f"--out runs/{model}" in one for one in made)
                for one in (parse(shlex.split(one)[1:]) for one in made):
                    other = one.out == Path(f"runs/{model}")  # a preset with other options, under a name of its own
                    assert one.preset == model or (other and PRESETS[one.preset].objective == report["objective"])
                assert report["training_steps"] == (int(step) if step else runs[report["model"]]["steps"])
                assert not step or any(f"--keep {step} " in one for one in made)


def test_every_name_of_the_package_in_a_document_is_there():
    """But for the log, whose names are those of their day."""
    pages = [*ROOT.glob("*.md"), *(page for page in ROOT.glob("docs/**/*.md") if page.name != "log.md")]
    names = {name for page in pages for name in re.findall(r"\bletgo(?:\.[A-Za-z_]\w*)+", page.read_text())}
    assert len(names) > 30
    for name in names:
        pkgutil.resolve_name(name)


def test_the_readme_is_short_and_can_be_pasted():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 130
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert (ROOT / link).is_file(), link
    parse = cli.build_parser().parse_args
    for block in blocks("README.md", "")[1:]:  # after the set-up
        for line in block.splitlines():
            words = shlex.split(line.partition("|")[2] or line, comments=True)
            assert words[0] == "letgo", line
            parse([word for word in words[1:] if word != "-"])
            for word in words[1:]:
                assert ".py:" not in word or (ROOT / word.partition(":")[0]).is_file(), line
    (coins,) = (code for code in blocks("CONTRIBUTING.md", "python") if code.startswith("# coins.py\n"))
    assert (ROOT / "examples" / "coins.py").read_text() == coins.partition("\n")[2]


@pytest.fixture
def folder(tmp_path):
    """The examples of CONTRIBUTING.md as files; the first line of each is its name."""
    for code in blocks("CONTRIBUTING.md", "python"):
        (tmp_path / code.split("\n")[0].removeprefix("# ")).write_text(code)
    return tmp_path


def python(folder: Path, *words: str, expected: int = 0) -> str:
    """What a program prints that is run in the folder, where the package is not installed."""
    done = subprocess.run([sys.executable, *words], cwd=folder, env=ENVIRONMENT, capture_output=True, text=True)
    assert done.returncode == expected, done.stderr
    return done.stdout + done.stderr


@pytest.mark.journey
def test_the_contributed_parts_work_outside_of_the_package(folder):
    assert len((folder / "coins.py").read_text().splitlines()) < 40
    assert python(folder, "heads.py") == "tensor([2, 2, 2])\n"
    assert re.fullmatch(r"\['[1-4]{16}', '[1-4]{16}'\]\n", python(folder, "half_anchor.py"))
    assert float(python(folder, "parts.py")) > 0.6  # .84; six of sixteen rows are valid
    assert "| tweedie | 1.000" in python(folder, "mini.py")
    assert "simple" in python(folder, "assemble.py")
    (folder / "coins-1.dist-info").mkdir()  # as an installed package has it
    (folder / "coins-1.dist-info" / "entry_points.txt").write_text("[letgo.tasks]\ncoins = coins:Coins\n")
    assert python(folder, "-c", "from letgo import tasks; print(tasks.get('coins').cells)") == "4\n"


@pytest.mark.journey
def test_the_contributed_task_works_with_every_verb_and_on_the_page(folder):
    rule, _, _ = (folder / "half_anchor.py").read_text().partition("print")
    (folder / "coins.py").write_text((folder / "coins.py").read_text() + rule)
    commands = [shlex.split(line) for line in blocks("CONTRIBUTING.md", "")[1].splitlines()]
    verbs = {words[1]: ["-m", *words] for words in commands}
    assert list(verbs) == ["train", "evaluate", "tune", "solve", "generate", "app"]
    assert "50 steps" in python(folder, *verbs["train"], "--steps", "50")
    assert "n=200" in python(folder, *verbs["evaluate"])
    assert '"sigma": 0.' in python(folder, *verbs["tune"])
    assert python(folder, *verbs["solve"]).startswith(("HHTT\n", "HTHT\n"))
    assert re.match("([HT]{4}\n){3}", python(folder, *verbs["generate"], "--rule", "half-anchor"))
    assert "unknown task 'coins'" in python(folder, "-m", "letgo", "solve", "runs/coins", "H..T", expected=2)
    page = [sys.executable, *verbs["app"], "--port", "0"]
    with subprocess.Popen(page, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = re.search(r"http://\S+/", server.stdout.readline())[0]
            with urlopen(f"{address}api/models") as answer:
                models = json.load(answer)
            assert models["failed"] == {}
            assert {"sudoku", "runs/coins"} <= {card["name"] for card in models["models"]}
            body = json.dumps({"model": "runs/coins", "puzzle": "H..T", "rules": ["ddpm", "tweedie"], "steps": 5})
            asked = Request(f"{address}api/trajectory", body.encode(), {"Content-Type": "application/json"})
            with urlopen(asked) as answer:
                events = re.findall(r"^event: (\w+)$", answer.read().decode(), re.M)
            assert (events[0], events.count("frame"), events[-1]) == ("start", 10, "done")
        finally:
            server.terminate()
