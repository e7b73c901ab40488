"""What the page tells by itself: the opening, changes of mind, one cell, the tour, examples, what can be taken away."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pages import boards, choose_mini, run, sees, watched
from servers import serving

pytestmark = pytest.mark.browser
STATIC = Path(__file__).parents[2] / "src/letgo/app/static"
WIRE = """() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
    .reduce((sum, entry) => sum + entry.transferSize, 0)"""


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    with serving() as address:
        yield address


def hold_models(page: Any, milliseconds: int) -> None:
    page.add_init_script(
        f"""const now = window.fetch; window.fetch = async (path, options) => {{
            if (path === '/api/models') await new Promise((go) => setTimeout(go, {milliseconds}));
            return now(path, options); }};"""
    )


def test_ten_seconds_after_opening_the_question_and_both_shares_are_there_without_a_model(browser, plain):
    story = json.loads((STATIC / "story.json").read_text())
    wins = [sum(r["valid"] for r in story["race"]["results"] if r["side"] == side) for side in (0, 1)]
    count = story["race"]["count"]
    with watched(browser, viewport={"width": 1440, "height": 1000}) as page:
        hold_models(page, 16_000)
        page.goto(plain)
        page.wait_for_timeout(10_000)
        text = page.inner_text("main")
        assert page.locator("#task").is_disabled()  # no model has been read yet
        for words in ("Why does one sampler fail", "DDPM", "Tweedie reprojection"):
            assert words in text
        assert f"{wins[0]} of {count}" in text
        assert f"{wins[1]} of {count}" in text
        assert re.search(
            r"r\d+c\d+ has no symbol left \(\.\d\d\); the \d at r\d+c\d+ it clashes with has stood since step \d+", text
        )
        sees(page, "#puzzle-message", "21 clues.")
        assert page.evaluate(WIRE) < 200_000
        minds = [int(re.search(r"(\d+) changes of mind", page.inner_text(f"#now-{i}"))[1]) for i in (0, 1)]
        counted = [
            sum(a != b for one, two in pairwise(side) for a, b in zip(one["p"], two["p"], strict=True))
            for side in story["frames"]
        ]
        assert minds == counted
        page.fill("#speed", "9")
        final = boards(page)
        page.click("#run")  # live, the same
        sees(page, "#status", re.compile("Sampled 200 steps"))
        page.click("#last")
        assert boards(page) == final


def test_the_story_is_what_the_shipped_model_does(plain):
    """The recorded steps again, from the library; the first half of them, because rounding may differ between CPUs."""
    import letgo

    story = json.loads((STATIC / "story.json").read_text())
    solver, setting = letgo.load(story["setting"]["model"]), story["setting"]
    problem = solver.task.parse(setting["puzzle"])
    for side, frames in zip(setting["sides"], story["frames"], strict=True):
        snapshots = solver.trajectory(problem, side["rule"], len(frames), setting["seed"])
        for frame, snapshot in zip(frames[:20], snapshots, strict=False):
            proposal = solver.codec.decode(solver.clues(problem).pin(snapshot.x0_hat))[0].tolist()
            same = sum(int(c, 36) == symbol for c, symbol in zip(frame["p"], proposal, strict=True))
            assert same >= 79


def test_one_cell_the_tour_and_pencil_marks(browser, address):
    with watched(browser) as page:
        page.goto(address)
        choose_mini(page)
        page.fill("#steps", "30")
        run(page)
        page.locator("#board-0 svg").click(position={"x": 30, "y": 30})
        first = page.locator("#cell-sides .figures").first
        first.wait_for()
        told = re.match(r"r1c1 ends as (\d) at [.\d]+; it changed its mind \d+ times?\.", first.inner_text())
        assert told
        assert boards(page)[0].startswith(f"row 1: {told[1]} ")
        page.fill("#cell-row", "3")
        page.fill("#cell-column", "2")
        page.keyboard.press("Tab")
        sees(page, "#cell-sides .lane:first-child .figures", re.compile("^r3c2 "))
        page.check("input[value=marks]", force=True)
        page.fill("#scrub", "3")
        assert page.locator("#board-0 .pencil:not(.none)").count() > 10
        page.check("input[value=p]", force=True)
        assert page.locator("#board-0 .pencil:not(.none)").count() == 0
        page.fill("#scrub", "12")
        assert page.locator("#board-1 .cell.flash").count() > 0
        page.click("#tour-start")
        for number in (1, 2, 3, 4):
            sees(page, "#tour-title", re.compile(f"^{number} of 4: "))
            assert page.locator("#board-0 .follow").is_visible()
            assert number == 4 or page.locator("#tour .formula").is_visible()
            if number == 4:
                assert "Let It Go or Learn to Self-Correct" in page.inner_text("#tour")
            page.click("#tour-next")
        assert page.locator("#tour").is_hidden()


def test_chosen_examples_two_models_and_many_puzzles(browser, plain):
    with watched(browser) as page:
        page.goto(plain)
        sees(page, "#puzzle-message", "21 clues.")
        page.fill("#speed", "9")
        titles = [option.inner_text() for option in page.locator("#chosen option").all()[1:]]
        tasks = ("Sudoku: two samplers", "Latin", "queens", "Graph", "Maze", "self-correction")
        assert all(any(task in title for title in titles) for task in tasks)
        for title in [t for t in titles if "Latin" in t or "queens" in t]:
            page.select_option("#chosen", title)
            sees(page, "#verdict-0 b", re.compile("Broken"))
            sees(page, "#verdict-1 b", re.compile("A valid board"))
            assert re.search(
                r"Chosen to show the gap. Over 2,000 such boards: DDPM \.\d\d", page.inner_text("#measured")
            )
        page.select_option("#model-1", "queens")
        assert page.inner_text("#measured") in ("", "\u00a0")
        run(page)
        assert "b.model=queens" in page.url
        page.fill("#steps", "10")
        page.fill("#race-count", "4")
        page.select_option("#race-vary", "puzzles")
        page.click("#race")
        sees(page, "#race-status", "8 boards, all done.")
        before = page.input_value("#puzzle")
        page.locator("#race-lanes .lane").nth(1).locator(".dots button").nth(2).click()
        sees(page, "#verdict-1 b", re.compile("A valid board|Broken"))
        assert page.input_value("#puzzle") != before
        assert page.locator("#race-lanes .lane").count() == 2
        linked = page.url
        assert "race=4%40" in linked
        page.goto("about:blank")
        page.goto(linked)
        sees(page, "#race-status", "8 boards, all done.")


def test_what_is_taken_away_works_elsewhere(browser, address, tmp_path):
    import subprocess
    import sys

    with watched(browser, permissions=["clipboard-read", "clipboard-write"]) as page:
        page.goto(address)
        choose_mini(page)
        page.fill("#steps", "12")
        page.keyboard.press("Tab")
        run(page)
        with page.expect_download() as download:
            page.click("#save-page")
        download.value.save_as(tmp_path / "replay.html")
        with page.expect_download() as download:
            page.click("#save-frame")
        picture = Path(download.value.path()).read_text()
        assert picture.startswith("<svg")
        assert "seed 0" in picture
        page.click("#copy-command")
        sees(page, "#take-message", "The command is on the clipboard.")
        command = page.evaluate("navigator.clipboard.readText()").split("\n")[1]
        assert command == "letgo solve 'sudoku-mini' '.1..3......2..3.' --no-verify --rule tweedie --steps 12 --seed 0"
        valid = "valid" in page.inner_text("#verdict-1 b")
        final = re.sub(r"row \d: |[ ;]", "", boards(page)[1])
        asked = ["solve", "sudoku-mini", ".1..3......2..3.", "--no-verify", "--rule", "tweedie", "--steps", "12"]
        done = subprocess.run([sys.executable, "-m", "letgo", *asked], capture_output=True, text=True, check=False)
        assert done.stdout.strip() == (final if valid else "unsolved")
        page.goto((tmp_path / "replay.html").as_uri())
        sees(page, ".now", "sudoku-mini, seed 0; step 12 of 12")
        page.click(".play")
        sees(page, ".now", re.compile("step [2-9] of 12"))


def test_axe_finds_nothing(browser, plain):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python").Axe()

    def clean(page: Any, where: str) -> None:
        found = axe.run(page, options={"resultTypes": ["violations"]}).response["violations"]
        assert [(where, one["id"], one["nodes"][0]["html"][:120]) for one in found] == []

    for scheme in ("light", "dark"):
        with watched(browser, color_scheme=scheme, reduced_motion="reduce") as page:
            page.goto(plain)
            sees(page, "#puzzle-message", "21 clues.")
            clean(page, f"{scheme} opening")
            page.click("#tour-start")
            clean(page, f"{scheme} tour")
            page.click("#tour-end")
            for step in ("40", "110"):
                page.fill("#scrub", step)
                clean(page, f"{scheme} step {step}")
            choose_mini(page)
            run(page)
            page.locator("#board-0 svg").click(position={"x": 30, "y": 30})
            page.locator("#cell-sides .figures").first.wait_for()
            page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
            clean(page, f"{scheme} cell")
            page.fill("#puzzle", "11..............")
            sees(page, "#puzzle-message", re.compile("clash"))
            clean(page, f"{scheme} refused")
            for task in ("Queens", "Graph connectivity", "Maze"):
                page.select_option("#task", task)
                page.wait_for_timeout(200)
                clean(page, f"{scheme} {task}")
            page.goto(f"{plain}/docs")
            page.locator(".route").first.wait_for()
            clean(page, f"{scheme} docs")
