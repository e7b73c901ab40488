"""tools/lanes.py with real processes: order, waiting, time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parent.parent / "tools" / "lanes.py"
FAST = "--batch 2 --boards 20 --validate 0 --device cpu --quiet"


def lanes(folder: Path, plan: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    (folder / "plan.txt").write_text(plan)
    command = [sys.executable, str(TOOL), "plan.txt", "--out", "out", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, env={**os.environ, **more})


def test_lanes_run_side_by_side_wait_for_each_other_and_skip_what_does_not_fit(tmp_path: Path) -> None:
    plan = f"""
    # a run, and another that fails
    [train]
    letgo train sudoku-mini --out run --steps 3 --max-seconds {{left-100}} {FAST}
    letgo train no-such-preset --out other
    [measure]
    after train 1
    5 letgo evaluate run --rule ddpm --count 2 --steps 2 --device cpu --quiet --out report.json
    9999 letgo evaluate run --rule euler --count 2 --steps 2 --device cpu --quiet --out late.json
    """
    assert lanes(tmp_path, plan, "--max-seconds", "5000").returncode == 1, "one command failed"
    lines = (tmp_path / "out" / "log.txt").read_text().splitlines()
    log = sorted(line.split(": letgo")[0].rsplit(",", 1)[0] for line in lines)
    assert log[0] == "measure 1: exit 0"
    assert log[1].startswith("measure 2: skipped, ")
    assert log[2:] == ["train 1: exit 0", "train 2: exit 2"]
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["command"].startswith("letgo evaluate run --rule ddpm")
    assert not (tmp_path / "late.json").exists()
    limit = int((tmp_path / "out/log.txt").read_text().split("--max-seconds ")[1].split()[0])
    assert 4000 < limit <= 4900
    assert "no-such-preset" in (tmp_path / "out/train.out").read_text()


def test_nobody_waits_for_a_lane_that_was_killed(tmp_path: Path) -> None:
    broken = tmp_path / "letgo" / "cli.py"
    broken.parent.mkdir()
    broken.write_text("import os\n\ndef main(words):\n    return os.kill(os.getpid(), 9) if words == ['die'] else 0\n")
    (tmp_path / "letgo" / "__init__.py").touch()
    plan = "[a]\nletgo die\nletgo never\n[b]\nafter a 2\nletgo models"
    assert lanes(tmp_path, plan, PYTHONPATH=str(tmp_path)).returncode == 1
    assert [line.split(",")[0] for line in (tmp_path / "out" / "log.txt").read_text().splitlines()] == ["b 1: exit 0"]


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        ("letgo solve", "line 1: a [lane] comes first"),
        ("[a]\nrm -r x", "line 2: expected"),
        ("[a]\nletgo models\n[b]\nafter a 2\nletgo models", "lane b waits for a 2, which there is not"),
    ],
)
def test_a_plan_that_is_wrong_is_told_before_anything_runs(tmp_path: Path, plan: str, said: str) -> None:
    done = lanes(tmp_path, plan)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "out").exists()
