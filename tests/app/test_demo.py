"""docs/demo.html: the exact denoiser and both rules in JavaScript, against ours on the same noise."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest
import torch

pytestmark = pytest.mark.browser
DEMO = Path(__file__).parents[2] / "docs/demo.html"


def test_the_demo_computes_what_the_library_computes(browser):
    from pages import watched

    from letgo.codecs import OneHot
    from letgo.models.denoiser import ExactDenoiser
    from letgo.paths import CosinePath
    from letgo.pinning import Clues
    from letgo.rng import Noise
    from letgo.samplers import Sampler
    from letgo.sampling import trajectory, uniform_grid
    from letgo.tasks.sudoku import Sudoku
    from letgo.tasks.sudoku_search import all_boards

    task, path, codec, steps = Sudoku(box=2), CosinePath(), OneHot(4), 40
    problem, noise = task.parse(".1..3......2..3."), Noise.first(5, 1)
    clues = Clues(codec.encode(problem.solution), problem.given)
    exact = ExactDenoiser(codec.encode(all_boards(2)).double(), path)
    drawn = [noise.normal(step, 1 if step else 0, 16, 4).flatten().tolist() for step in range(steps + 1)]
    with watched(browser) as page:
        page.goto(DEMO.as_uri())
        assert page.evaluate("BOARDS.length") == 288
        for rule in ("ddpm", "tweedie"):
            snapshots = list(trajectory(exact, path, Sampler(rule).build(), uniform_grid(steps), clues, noise))
            whole = "([rule, steps, noise]) => sample(rule, clues, steps, (k) => noise[k]).at(-1).x"
            assert page.evaluate(whole, [rule, steps, drawn]) == codec.decode(snapshots[-1].x)[0].tolist()
            for before, after in pairwise(snapshots):
                t, s = before.t, after.t
                mean = exact(before.x.double(), torch.full((1, 1, 1), t, dtype=torch.double))
                once = """([rule, x, t, s, noise]) => { const mean = denoise(x, t);
                    return [[...mean], [...pin(update(rule, x, mean, t, s, noise), clues)]]; }"""
                told, moved = page.evaluate(once, [rule, before.x.flatten().tolist(), t, s, drawn[after.step]])
                torch.testing.assert_close(torch.tensor(told, dtype=torch.double), mean.flatten(), atol=1e-5, rtol=0)
                torch.testing.assert_close(torch.tensor(moved, dtype=torch.float), after.x.flatten(), atol=1e-5, rtol=0)


def test_the_demo_tells_the_story(browser):
    """Its puzzle has solutions, its first seed shows the gap, and a hundred seeds say how typical that is."""
    from pages import sees, watched

    from letgo.tasks.sudoku import Sudoku

    with watched(browser, reduced_motion="reduce") as page:
        page.goto(DEMO.as_uri())
        task, puzzle = Sudoku(box=2), page.input_value("#puzzle")
        found = task.solutions(task.parse(puzzle), 300, 5.0)
        assert found is not None
        assert len(found) > 0
        sees(page, "#fits", f"{len(found)} of the 288 boards fit this puzzle.")
        sees(page, "#told-0", re.compile("Broken, [0-9]+ changes of mind"))
        sees(page, "#told-1", re.compile("A valid board, [0-9]+ changes of mind"))
        cell = page.locator("#board-0 td").first.bounding_box()
        assert abs(cell["width"] - cell["height"]) < 3
        page.click("#many")
        sees(page, "#status", re.compile(r"^DDPM \d+ of 100, Tweedie reprojection \d+ of 100 valid"))
        ddpm, tweedie = map(int, re.findall(r"(\d+) of 100", page.inner_text("#status")))
        assert 5 < ddpm < 35  # the library's share is about .18, and .78
        assert 60 < tweedie < 95
        page.fill("#puzzle", "1.....4..4.....2")
        sees(page, "#fits", "None of the 288 boards fits: no sampler can end in a valid board.")
        page.fill("#puzzle", "12")
        sees(page, "#fits", re.compile("Sixteen cells are needed"))
        assert page.locator("#run").is_disabled()
