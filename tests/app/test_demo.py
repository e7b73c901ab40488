"""docs/demo.html: the exact denoiser and both rules in JavaScript, against ours on the same noise."""

from __future__ import annotations

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
    problem, noise = task.parse("1.....4..4.....2"), Noise.first(5, 1)
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
        page.click("#many")
        page.wait_for_timeout(1500)
        assert "of" in page.inner_text("#status")
