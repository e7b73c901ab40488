"""docs/formats.md: its examples are what the code makes, reads and accepts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from letgo import tasks
from letgo.data.source import source_of

pytestmark = pytest.mark.fast

TEXT = (Path(__file__).parent.parent / "docs" / "formats.md").read_text()
EXAMPLES = {name: block.splitlines() for name, block in re.findall(r"^## (\S+)\n.*?^```\n(.*?)^```", TEXT, re.S | re.M)}


def test_every_task_has_an_example():
    assert [*EXAMPLES, "table"] == list(tasks.TASKS)  # a table has no rows of its own


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_is_made_read_and_accepted(name):
    puzzle, answer = EXAMPLES[name]
    task = tasks.get(name)
    made = source_of(task).draw("test", None, 1, 0)
    assert task.format_clues(made) == [puzzle]
    assert task.format(made.solution, made) == [answer]
    read = task.parse(puzzle)
    assert torch.equal(read.given, made.given)
    assert task.format_clues(read) == [puzzle]
    if name == "connectivity":  # its answer has a diagonal of 1, so it is no puzzle
        board = torch.tensor([[int(c) for c in answer.replace("/", "")]])
    else:
        board = task.parse(answer).solution
    assert task.validate(board, read).all()
