"""What the page tells by itself: the opening, changes of mind, one cell, the tour, examples, what can be taken away."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pages import boards, choose_mini, clean, run, sees, watched

pytestmark = pytest.mark.browser
STATIC = Path(__file__).parents[2] / "src/letgo/app/static"
WIRE = """() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
    .reduce((sum, entry) => sum + entry.transferSize, 0)"""


def hold_models(page: Any, milliseconds: int) -> None:
    page.add_init_script(
        f"""const now = window.fetch; window.fetch = async (path, options) => {{
            if (path === '/api/models') await new Promise((go) => setTimeout(go, {milliseconds}));
            return now(path, options); }};"""
    )


def framed(page: Any) -> list[dict[str, str]]:
    """Of each 9x9 board, the cells in the frames of why it failed."""
    told: list[dict[str, str]] = [{}, {}]
    for side in (0, 1):
        for name in ("stuck", "kept"):
            frame = page.locator(f"#board-{side} .{name}")
            if frame.is_visible():
                x, y = re.findall(r"\d+", frame.get_attribute("transform"))
                told[side][name] = f"r{int(y) // 40 + 1}c{int(x) // 40 + 1}"
    return told


def test_ten_seconds_after_opening_the_question_and_both_shares_are_there_without_a_model(browser, plain):
    story = json.loads((STATIC / "story.json").read_text())
    wins = [sum(r["valid"] for r in story["race"]["results"] if r["side"] == side) for side in (0, 1)]
    count, rules = story["race"]["count"], ("DDPM", "Tweedie reprojection")
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
        why = page.inner_text("#verdict-0 strong")
        assert page.inner_text("#why") == f"DDPM: {why}"
        late, early, since = re.findall(r"r\dc\d|\d+(?=\.$)", why)
        assert framed(page) == [{"stuck": late, "kept": early}, {}]
        for width, height in ((390, 844), (1024, 768), (1440, 900)):  # it is on the screen, not below it
            page.set_viewport_size({"width": width, "height": height})
            for part in ("#question", "#answer", "#why", "#board-0 svg", "#board-1 svg"):
                box = page.locator(part).bounding_box()
                assert 0 <= box["y"] < box["y"] + box["height"] < height
                assert box["x"] + box["width"] <= width
            shares = [f"{name} solves it from {n} of {count} seeds" for name, n in zip(rules, wins, strict=True)]
            assert page.inner_text("#answer") == f"{'; '.join(shares)}."
        page.set_viewport_size({"width": 1440, "height": 1000})
        page.fill("#scrub", since)
        sees(page, "#why", re.compile(rf"^DDPM has held the \d at {early} since step {since}, and does not let go\."))
        assert framed(page) == [{"kept": early}, {}]
        page.fill("#scrub", str(int(since) - 1))
        sees(page, "#why", re.compile("^Both sides start from the same noise"))
        assert framed(page) == [{}, {}]
        page.click("#last")
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


def test_all_that_the_page_ever_fetches_is_small(plain):
    """Every file of the page as it is sent, with the recording and the list of models: less than 200 kB."""
    import gzip
    from urllib.request import Request, urlopen

    total = 0
    for path in ["api/models", "api/health", *(file.name for file in STATIC.iterdir())]:
        with urlopen(Request(f"{plain}/{path}", headers={"Accept-Encoding": "gzip"})) as answer:
            body, headers = answer.read(), len(str(answer.headers))
            total += len(body) + headers
        if path.endswith((".js", ".json", ".css", ".html")):
            assert gzip.decompress(body) == (STATIC / path).read_bytes()
    assert total < 200_000


def test_a_cell_darkens_while_it_holds_and_the_curves_have_their_own_scale(browser, plain):
    story = json.loads((STATIC / "story.json").read_text())
    with watched(browser, reduced_motion="reduce") as page:
        page.goto(plain)
        sees(page, "#puzzle-message", "21 clues.")
        page.locator("input[value=p]:checked").wait_for(state="attached")  # the proposal is the first view
        page.fill("#scrub", "150")
        frames = story["frames"][0][:150]
        for i, ground in enumerate(
            page.locator("#board-0 .cell").evaluate_all("all => all.map((e) => e.className.baseVal)")
        ):
            held = next((k for k, frame in enumerate(frames[::-1]) if frame["p"][i] != frames[-1]["p"][i]), 150) - 1
            sure = min(7, int(int(frames[-1]["pc"][i], 36) / 4.5))
            if "clue" not in ground:
                assert f"t{min(sure + 1, 7, 16 * held // 200)}" in ground.split()
        for view, name in (("p", "pbad"), ("x", "xbad")):
            page.check(f"input[value={view}]", force=True)
            page.fill("#scrub", "200")
            highest = max(len(frame[name]) for frames in story["frames"] for frame in frames)
            for side in (0, 1):
                drawn = re.findall(r"([\d.]+) ([\d.]+)", page.get_attribute(f"#spark-{side} .curve", "d"))
                counts = [len(frame[name]) for frame in story["frames"][side]]
                assert [40 - 37 * count / highest for count in counts] == pytest.approx(
                    [float(y) for _, y in drawn], abs=0.01
                )
        minds = page.get_attribute("#spark-1 .minds", "d").count("M")
        proposals = [frame["p"] for frame in story["frames"][1]]
        assert minds == sum(a != b for a, b in pairwise(proposals))


def test_a_symbol_is_called_wrong_only_where_there_is_one_solution(browser, plain):
    """A puzzle with one solution that the plain network breaks, from a few seeds, and then one with several."""
    from letgo.tasks import get

    task, only = get("sudoku"), ".......39.....1..5..3.5.8....8.9...6.7...2...1..4.......9.8..5..2....6..4..7....."
    found, wrong = task.solutions(task.parse(only), 2, 5.0), 0
    assert found is not None
    assert len(found) == 1
    solution = task.format(found, task.parse(only))[0]
    with watched(browser, reduced_motion="reduce") as page:
        page.goto(f"{plain}/#model=sudoku-baseline&puzzle={only}&a=ddim&b=ddpm&steps=12&seed=0&run=1")
        sees(page, "#solutions", "Exactly one solution.")
        for seed in range(1, 5):
            for side in (0, 1):
                sees(page, f"#verdict-{side} b", re.compile("Broken"))
                reason = page.inner_text(f"#verdict-{side} strong")
                early = re.search(r"the (\d) at r(\d)c(\d) it clashes with has stood", reason)
                right = solution[9 * int(early[2]) + int(early[3]) - 10] if early else ""
                told = bool(early) and right != early[1]
                assert (f"It is wrong: the only solution has {right} there." in reason) == told
                assert ("It is wrong" in reason) == told
                wrong += told
            page.fill("#seed", str(seed))
            page.click("#run")
        assert wrong > 0
        page.click("#example")
        sees(page, "#solutions", "More than one solution.")
        page.fill("#steps", "2")
        page.click("#run")
        sees(page, "#verdict-0 b", re.compile("Broken"))
        assert "It is wrong" not in page.inner_text("#verdict-0")


def test_a_race_says_what_it_will_cost(browser, address):
    with watched(browser, reduced_motion="reduce") as page:
        page.goto(address)
        choose_mini(page)
        page.fill("#steps", "12")
        page.fill("#race-count", "5")
        sees(page, "#race-cost", "10 boards, 120 network calls.")
        page.select_option("#rule-1", "heun")  # two calls a step
        sees(page, "#race-cost", "10 boards, 180 network calls.")
        run(page)
        sees(
            page,
            "#race-cost",
            re.compile(r"^10 boards, 180 network calls: about [\d.]+ s at the pace of the last run\.$"),
        )


def test_the_reference_names_every_route_and_event(browser, plain):
    from letgo.app.schemas import EVENTS

    with watched(browser) as page:
        page.goto(f"{plain}/docs")
        page.locator(".route").first.wait_for()
        text = page.inner_text("main")
        for route in ("solve", "trajectory", "race", "until-sure", "check", "puzzle", "models", "health"):
            assert f"/api/{route}" in text
        for name in EVENTS:
            assert re.search(rf"\b{name}\b", text), name
        assert page.evaluate(
            "performance.getEntriesByType('resource').every((e) => e.name.startsWith(location.origin))"
        )


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
        tasks = ("Sudoku: two samplers", "Latin", "queens", "Graph", "Maze", "Self-correction", "Masked", "sure")
        assert all(any(task in title for title in titles) for task in tasks)
        page.select_option("#chosen", next(t for t in titles if "queens" in t))
        sees(page, "#measured", re.compile("Chosen to show the gap. Over 2,000 such boards"))
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


@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing(browser, plain, width):
    with watched(browser, reduced_motion="reduce", viewport={"width": width, "height": 900}) as page:
        page.goto(plain)
        sees(page, "#puzzle-message", "21 clues.")
        clean(page, "opening")
        page.click("#tour-start")
        clean(page, "tour")
        page.click("#tour-end")
        for view in ("p", "heat", "x", "both"):
            page.check(f"input[value={view}]", force=True)
            for step in ("40", "110"):
                page.fill("#scrub", step)
                clean(page, f"{view} at step {step}")
        choose_mini(page)
        page.check("input[value=marks]", force=True)
        page.fill("#steps", "20")
        run(page)
        page.locator("#board-0 svg").click(position={"x": 30, "y": 30})
        page.locator("#cell-sides .figures").first.wait_for()
        page.fill("#scrub", "4")
        clean(page, "one cell, and pencil marks")
        page.fill("#race-count", "6")
        page.click("#race")
        sees(page, "#race-status", "12 boards, all done.")
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        clean(page, "race, and all that can be unfolded")
        page.fill("#puzzle", "11..............")
        sees(page, "#puzzle-message", re.compile("clash"))
        clean(page, "refused")
        page.check("input[value=p]", force=True)
        for task in ("Latin square", "Queens", "Graph connectivity", "Maze"):
            page.select_option("#task", task)
            sees(page, "#puzzle-message", re.compile(r"clue|nodes|^$"))
            clean(page, task)
            if task != "Maze":  # a maze takes long, and its boards are drawn as before
                page.fill("#steps", "20")
                run(page)
                clean(page, f"{task}, the end")
                page.check("input[value=heat]", force=True)
                page.fill("#scrub", "8")
                clean(page, f"{task}, doubt")
                page.check("input[value=p]", force=True)


@pytest.mark.parametrize("width", [1024, 390])
def test_axe_finds_nothing_in_the_states_between(browser, address, width):
    """While models load, sampling, racing, stopped; masks, pencil marks, a maze's end, a cell of each kind."""
    with watched(browser, reduced_motion="reduce", viewport={"width": width, "height": 900}) as page:
        hold_models(page, 3000)
        page.goto(address)
        page.locator("#board-0 svg").wait_for()
        assert page.locator("#task").is_disabled()
        clean(page, "models load")
        page.locator("#task:enabled").wait_for()
        page.fill("#steps", "1000")  # it lasts longer than axe needs
        page.fill("#race-count", "64")
        page.click("#race")
        page.locator(".lane .dots").first.wait_for()
        clean(page, "a race on its way")
        page.click("#run")
        sees(page, "#run", "Stop")
        sees(page, "#status", re.compile(r"Sampling: step \d"))
        clean(page, "sampling")
        page.click("#race")
        page.click("#run")
        sees(page, "#status", re.compile("Stopped after"))
        clean(page, "stopped")
        choose_mini(page)
        page.fill("#puzzle", "12.....3........")
        sees(page, "#solutions", re.compile("No solution"))
        page.fill("#steps", "10")
        page.click("#run")
        sees(page, "#verdict-0 b", re.compile("No board to find"))
        clean(page, "no solution")
        page.select_option("#model", "sudoku-mini-d3pm")
        page.click("#example")
        page.fill("#steps", "20")
        run(page)
        page.fill("#scrub", "6")
        assert page.locator(".cell.masked").count() > 0
        clean(page, "masks")
        page.check("input[value=marks]", force=True)
        page.locator(".pencil:not(.none)").first.wait_for()
        clean(page, "pencil marks of a masked model")
        for title in ("Queens", "Maze", "Graph connectivity"):
            page.select_option("#task", title)
            page.select_option("#model", page.locator("#model option[value*='small-']").first.get_attribute("value"))
            page.click("#example")
            run(page)
            page.fill("#cell-row", "2")
            if title != "Queens":
                page.fill("#cell-column", "3")
            page.keyboard.press("Tab")
            page.locator("#cell-sides .figures").first.wait_for()
            for view in ("p", "heat", "x", "both"):
                page.check(f"input[value={view}]", force=True)
                clean(page, f"{title}, one cell, {view}")
            page.check("input[value=p]", force=True)
            page.click("#tour-start")
            clean(page, f"{title}, tour")
            page.click("#tour-end")


def test_axe_finds_nothing_while_it_is_unsure_and_in_the_reference(browser, plain):
    examples = json.loads((STATIC / "examples.json").read_text())
    [sure] = [example["title"] for example in examples if example.get("sure")]
    with watched(browser, reduced_motion="reduce") as page:
        page.goto(plain)
        sees(page, "#puzzle-message", "21 clues.")
        page.select_option("#chosen", label=sure)
        sees(page, "#sure-status", re.compile("^Sure after"))
        clean(page, "sure")
        page.click(".tries li:first-child button")
        clean(page, "a board that it doubted")
        page.goto(f"{plain}/docs")
        page.locator(".route").first.wait_for()
        clean(page, "docs")
