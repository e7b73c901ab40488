"""Every command of docs/masked.md, as it stands there, at a tiny size on a CPU."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from letgo.cli import main

pytestmark = pytest.mark.journey

DOCUMENT = Path(__file__).parents[2] / "docs" / "masked.md"
[QUEUE] = re.findall(r"<!-- queue:begin -->\n```\n(.*?)```\n<!-- queue:end -->", DOCUMENT.read_text(), re.S)
TINY = {
    "train": "--steps 2 --batch 2 --boards 8 --log-every 1 --keep 2 --validate 0",
    "evaluate": "--steps 2 --count 2 --passes 2",
    "reproduce": "--count 1",
}
PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"
ANSWER = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_every_command_of_the_queue_runs_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes later on a line counts, so each is the document's own with smaller sizes behind it."""
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "sudoku-extreme"
    data.mkdir()
    for split in ("train", "test"):
        rows = [f"puzzles0_kaggle,{PUZZLE},{ANSWER},{i}" for i in range(4)]
        (data / f"{split}.csv").write_text("source,question,answer,rating\n" + "\n".join(rows) + "\n")
    verbs = []
    for line in QUEUE.splitlines():
        name, verb, *words = shlex.split(line)
        verbs.append(verb)
        assert name == "letgo"
        tiny = [*shlex.split(TINY[verb]), "--device", "cpu", "--quiet"]
        if verb == "reproduce":  # at the paper's steps: graphs alone, which have 64
            tiny += ["--tasks", "connectivity", "--rules", "ancestral,remdm", "--seeds", "0"]
        assert main([verb, *words, *tiny]) == 0, line
    assert verbs.count("train") == 7
    for run in (
        "sudoku-d3pm/s2",
        "sudoku-extreme-d3pm/s0",
        "queens-d3pm",
        "latin-d3pm",
        "connectivity-d3pm",
        "maze-d3pm",
    ):
        assert json.loads((tmp_path / "runs" / run / "config.json").read_text())["codec"] == "masked"
    reports = json.loads((tmp_path / "results" / "connectivity-d3pm.json").read_text())
    assert {(report["rule"], report["regime"]) for report in reports} == {
        (rule, regime) for rule in ("ancestral", "remdm") for regime in ("12", "18")
    }
    assert len(list((tmp_path / "reports").glob("*.json"))) == 5
