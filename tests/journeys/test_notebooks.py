"""The notebooks run from top to bottom and show what they showed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.journey
ROOT = Path(__file__).parents[2]


def test_the_notebooks_run_and_show_what_was_kept() -> None:
    words = [sys.executable, str(ROOT / "tools" / "notebooks.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_cell_of_a_notebook_has_its_output_kept() -> None:
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        code = [cell for cell in json.loads(path.read_text())["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
        assert sum(bool(cell["outputs"]) for cell in code) >= 4, path.name
