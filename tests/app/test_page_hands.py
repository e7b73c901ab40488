"""What a visitor does with hands on: undo, paste, copy, save; and what boards of each kind show of themselves."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import boards, choose_mini, run, scrub, sees, watched
from PIL import Image

pytestmark = pytest.mark.browser
CLIPBOARD = ["clipboard-read", "clipboard-write"]
KEPT = """window.svgs = []; const make = URL.createObjectURL; URL.createObjectURL = (blob) => {
  if (blob.type === 'image/svg+xml') blob.text().then((text) => svgs.push(text)); return make(blob); };"""


def mini(page: Any, address: str, steps: int) -> None:
    """A run of the 4x4 model from its example, to the end."""
    page.goto(address)
    choose_mini(page)
    page.fill("#steps", str(steps))
    page.keyboard.press("Tab")
    run(page)


def download(page: Any, button: str) -> Path:
    with page.expect_download() as saved:
        page.click(button)
    return Path(saved.value.path())


def opened(path: Path) -> Any:
    return Image.open(BytesIO(path.read_bytes()))


def paste(page: Any, target: str, text: str) -> None:
    page.evaluate(
        """([target, text]) => { const data = new DataTransfer(); data.setData('text', text);
        document.querySelector(target).dispatchEvent(
            new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })); }""",
        [target, text],
    )


def test_every_edit_can_be_taken_back_in_turn(page):
    choose_mini(page)
    assert page.locator("#undo").is_disabled()
    first = page.input_value("#puzzle")
    page.click("#editor [data-cell='0']")
    page.keyboard.press("2")
    second = page.input_value("#puzzle")
    page.click("#clear")
    sees(page, "#puzzle-message", "0 clues.")
    page.click("#undo")
    assert page.input_value("#puzzle") == second
    page.focus("#editor [tabindex='0']")
    page.keyboard.press("Control+z")
    assert page.input_value("#puzzle") == first
    sees(page, "#puzzle-message", "4 clues.")
    assert page.locator("#undo").is_disabled()


def test_puzzles_are_pasted_as_people_have_them(page):
    choose_mini(page)
    forms = (
        ".1 | ..\n3. | ..\n---+---\n.. | .2\n.. | 3.",
        "0100\n3000\n0002\n0030",
        "_1__ 3___ ___2 __3_",
        "\t1\t\t\n3\t\t\t\n\t\t\t2\n\t\t3\t",  # out of a spreadsheet
        ",1,,\n3,,,\n,,,2\n,,3,",
    )
    for form in forms:
        page.click("#clear")
        sees(page, "#puzzle-message", "0 clues.")
        paste(page, "#board-0", form)
        sees(page, "#puzzle-message", "4 clues.")
        assert page.input_value("#puzzle") == ".1..3......2..3.", form


def test_the_solution_and_the_python_are_copied_and_hold(browser, address):
    import letgo

    with watched(browser, permissions=CLIPBOARD) as page:
        mini(page, address, 20)
        assert "A valid board" in page.inner_text("#verdict-1 b")
        page.click("#copy-board")
        sees(page, "#take-message", "The solution is on the clipboard.")
        board, puzzle = page.evaluate("navigator.clipboard.readText()"), page.input_value("#puzzle")
        assert all(given in (".", cell) for given, cell in zip(puzzle, board, strict=True))
        task = letgo.load("sudoku-mini").task
        assert not task.violations(task.parse(board).solution, task.parse(puzzle)).any()
        page.click("#copy-python")
        sees(page, "#take-message", "The Python is on the clipboard.")
        code = page.evaluate("navigator.clipboard.readText()")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert done.stdout.count("tensor") == 40  # twenty steps of each side
        last = done.stdout.strip().rsplit("tensor", 1)[1]
        assert "".join(str(int(s) + 1) for s in re.findall(r"\d+", last)) == board
        page.fill("#puzzle", "12.....3........")  # which has no solution
        sees(page, "#puzzle-message", "3 clues.")
        run_hopeless(page)
        assert page.locator("#copy-board").is_disabled()


def run_hopeless(page: Any) -> None:
    page.click("#run")
    sees(page, "#verdict-1 b", re.compile("has no solution"))


def test_a_gif_shows_what_the_animated_png_shows(browser, address):
    with watched(browser) as page:
        mini(page, address, 10)
        pictures = [opened(download(page, f"#save-{kind}")) for kind in ("gif", "animation")]
        assert [picture.format for picture in pictures] == ["GIF", "PNG"]
        assert [picture.n_frames for picture in pictures] == [10, 10]
        assert pictures[0].info["loop"] == 0
        previous = None
        for number in range(10):
            for picture in pictures:
                picture.seek(number)
            ours, truth = (np.asarray(picture.convert("RGB")).astype(int) for picture in pictures)
            assert ours.shape == truth.shape
            assert np.abs(ours - truth).mean() < 1.5, number  # a palette of 255 colours
            assert (np.abs(ours - truth).max(2) > 40).mean() < 0.001, number
            assert previous is None or (previous != ours).any(), number
            assert pictures[0].info["duration"] == (2500 if number == 9 else 80)
            previous = ours


def test_one_step_is_a_picture_with_its_seed_and_its_curve(browser, address):
    with watched(browser) as page:
        page.add_init_script(KEPT)
        mini(page, address, 12)
        scrub(page, 7)
        picture = opened(download(page, "#save-png"))
        told = f"letgo: sudoku-mini, seed 0, step 7 of 12; {page.url}"
        assert picture.text["Description"] == told
        svg = page.evaluate("svgs.at(-1)")
        assert svg.count("step 7 of 12, seed 0") == 2
        curves = [points.split() for points in re.findall(r'<polyline points="([^"]*)"', svg)]
        assert [len(points) for points in curves] == [7, 7]
        [size] = re.findall(r'^<svg [^>]*width="(\d+)" height="(\d+)"', svg)
        assert picture.size == tuple(2 * int(side) for side in size)
        pixels = np.asarray(picture.convert("RGB")).astype(int)
        ink, ground = pixels.min(axis=(0, 1)), pixels[2, 2]
        for points in curves:  # each point of the curve is drawn
            for x, y in (map(float, point.split(",")) for point in points):
                near = pixels[int(2 * y) - 3 : int(2 * y) + 4, int(2 * x) - 3 : int(2 * x) + 4].reshape(-1, 3)
                assert np.abs(near - ink).sum(1).min() < np.abs(ground - ink).sum() / 3


def test_doubt_is_shown_as_heat(browser, address):
    with watched(browser) as page:
        mini(page, address, 30)
        frames = json.loads(download(page, "#save-json").read_text())["frames"]
        page.check("input[value=heat]", force=True)
        assert "view=heat" in page.url
        for step in (2, 10, 30):
            scrub(page, step)
            for side in (0, 1):
                frame, given = frames[side][step - 1], page.input_value("#puzzle")
                chances = [max(1, int(c, 36)) / 35 for c, clue in zip(frame["pc"], given, strict=True) if clue == "."]
                levels = [min(7, round(-3.2 * float(np.log(p)))) for p in chances]
                cells = page.locator(f"#board-{side} .cell:not(.clue)").evaluate_all(
                    "all => all.map((e) => Number(/ h(\\d)/.exec(' ' + e.getAttribute('class'))[1]))"
                )
                assert cells == levels
        scrub(page, 2)
        grounds = page.locator("#board-0 .cell:not(.clue)").evaluate_all(
            "all => Object.fromEntries(all.map((e) => [/ h\\d/.exec(e.getAttribute('class'))[0],"
            " getComputedStyle(e.querySelector('.bg')).fill]))"
        )
        assert len(set(grounds.values())) == len(grounds) > 1  # each level has a colour of its own


def test_queens_that_attack_each_other_are_joined_by_lines(browser, plain):
    with watched(browser) as page:
        page.goto(plain)
        page.locator("#editor svg").wait_for()
        page.select_option("#task", "Queens")
        page.fill("#puzzle", "a.c" + "." * 11)  # on one diagonal, two rows apart
        sees(page, "#puzzle-message", re.compile("attack|clash"))
        line = page.get_attribute("#editor .attack", "d")
        assert line == "M20 20L100 100"
        page.fill("#puzzle", "a.b" + "." * 11)
        sees(page, "#puzzle-message", "2 clues.")
        assert page.get_attribute("#editor .attack", "d") == ""
        page.fill("#puzzle", "." * 14)
        sees(page, "#puzzle-message", "0 clues.")
        page.fill("#steps", "20")
        run(page)
        seen = 0
        for step in range(1, 21):
            scrub(page, step)
            for side in (0, 1):
                assert joined(page, side) == attacking(page, side), (step, side)
                seen += len(joined(page, side))
        assert seen > 0


def joined(page: Any, side: int) -> set[tuple[int, int]]:
    path = page.get_attribute(f"#board-{side} .attack", "d")
    rows = re.findall(r"M[\d.]+ ([\d.]+)L[\d.]+ ([\d.]+)", path)
    return {(round((float(a) - 20) / 40), round((float(b) - 20) / 40)) for a, b in rows}


def attacking(page: Any, side: int) -> set[tuple[int, int]]:
    """Pairs of rows whose queens attack each other, both of them fairly sure: from what the board says in words."""
    words = boards(page)[side]
    columns = ["abcdefghijklmn".index(c) for c in re.findall(r"queen at (\w)", words)]
    look = page.locator(f"#board-{side} .queen:has(.shape)").evaluate_all("all => all.map((e) => e.className.baseVal)")
    sure = [row for row in range(14) if re.search(r"\bc[5-7]\b", look[row])]
    hit = {
        (a, b) for a in range(14) for b in range(a) if columns[a] == columns[b] or abs(columns[a] - columns[b]) == a - b
    }
    return {(b, a) for a, b in hit if a in sure and b in sure}


def test_nodes_of_one_component_share_a_colour(browser, plain):
    with watched(browser) as page:
        page.goto(plain)
        page.locator("#editor svg").wait_for()
        page.select_option("#task", "Graph connectivity")
        page.locator("#board-0 svg.graph").wait_for()
        links = [(0, 4), (4, 2), (1, 3), (6, 7)]
        rows = [["0"] * 12 for _ in range(12)]
        for a, b in links:
            rows[a][b] = rows[b][a] = "1"
        page.fill("#puzzle", "/".join("".join(row) for row in rows))
        sees(page, "#puzzle-message", "12 nodes.")
        colours = page.locator("#board-1 .node circle:first-child").evaluate_all(
            "all => all.map((e) => getComputedStyle(e).fill)"
        )
        assert colours[0] == colours[2] == colours[4]
        assert colours[1] == colours[3]
        assert colours[6] == colours[7]
        assert len({colours[0], colours[1], colours[6], colours[5]}) == 4


def test_a_replay_draws_a_maze_and_fits_its_frame(browser, folders, tmp_path):
    """As a page of its own: walls dark, ways filled, no letters between; in a notebook: whole, with its button."""
    import letgo
    from letgo.tasks.maze import Maze

    puzzle = Maze(8).format(*parts(Maze(8)))[0].replace("o", ".")
    run = letgo.load(folders["maze"]).trajectory(puzzle, rule="tweedie", steps=4, seed=0)
    (tmp_path / "maze.html").write_text(run.to_html())
    (tmp_path / "notebook.html").write_text(f"<body>{run._repr_html_()}</body>")
    with watched(browser, viewport={"width": 900, "height": 700}, offline=True, color_scheme="light") as page:
        page.goto((tmp_path / "maze.html").as_uri())
        sees(page, ".now", re.compile("step 4 of 4"))
        page.fill(".scrub", "0")  # the puzzle
        drawn = page.evaluate(
            """() => { const canvas = document.querySelector('canvas'), unit = canvas.width / 8;
            const pen = canvas.getContext('2d');
            return Array.from({ length: 64 }, (_, i) => [...pen.getImageData((i % 8) * unit + unit / 4,
              Math.floor(i / 8) * unit + unit / 4, unit / 2, unit / 2).data].filter((_, k) => k % 4 === 0)); }"""
        )
        for cell, reds in zip(puzzle.replace("/", ""), drawn, strict=True):
            one = {"#": {0x57}, ".": {0xFF}}.get(cell)  # S and G are letters
            assert set(reds) == one if one else len(set(reds)) > 2
        page.goto((tmp_path / "notebook.html").as_uri())
        frame = page.locator("iframe").bounding_box()
        button = page.frame_locator("iframe").locator(".play").bounding_box()
        assert button["y"] + button["height"] < frame["y"] + frame["height"]


def parts(task: Any) -> Any:
    from letgo.tasks import Problem

    boards, _ = task.solved(1, np.random.default_rng(0))
    return boards, Problem(boards, task.masks(boards, "test", np.random.default_rng(0)))
