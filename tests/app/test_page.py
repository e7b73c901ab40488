"""The whole story in a real Chromium: open, choose, edit, run, scrub, verdict, link, race, take away."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pages import boards, choose_mini, run, scrub, sees, watched
from servers import health, serving, until

pytestmark = pytest.mark.browser
SIZE = ("width", "height")


def test_the_whole_story(page, browser):
    choose_mini(page)
    before = page.input_value("#puzzle")
    blank = before.index(".")

    page.click(f"#editor [data-cell='{blank}']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("4")
    assert page.input_value("#puzzle") == before[:blank] + "4" + before[blank + 1 :]
    sees(page, "#puzzle-message", "5 clues.")
    page.keyboard.press("Delete")
    sees(page, "#puzzle-message", "4 clues.")
    assert page.input_value("#puzzle") == before

    run(page)
    steps = int(page.input_value("#steps"))
    final = boards(page)
    sees(page, "#where", f"step {steps} of {steps}, t = 0.000")
    assert all(re.fullmatch(r"row 1: [1-4 ]+; row 2: [1-4 ]+; row 3: [1-4 ]+; row 4: [1-4 ]+", b) for b in final)

    page.check("input[value=x]", force=True)
    scrub(page, 10)
    early = boards(page)
    assert early != final
    page.click("#forward")
    sees(page, "#where", re.compile(r"step 11 of "))
    page.click("#back")
    assert boards(page) == early
    page.check("input[value=p]", force=True)
    assert boards(page) != early
    page.check("input[value=x]", force=True)
    page.click("#last")
    assert boards(page) == final
    page.click("#play")  # from the end, it plays again
    sees(page, "#where", f"step {steps} of {steps}, t = 0.000")
    verdicts = [page.inner_text(f"#verdict-{side} b") for side in (0, 1)]

    with watched(browser) as other:
        other.goto(page.url)
        other.locator("input[value=x]:checked").wait_for(state="attached")
        for side in (0, 1):
            sees(other, f"#verdict-{side} b", verdicts[side])
        assert boards(other) == final
        scrub(other, 10)
        assert boards(other) == early
        other.reload()
        sees(other, "#verdict-1 b", verdicts[1])
        assert boards(other) == final


def test_bad_puzzles_are_refused_in_words(page):
    from playwright.sync_api import expect

    choose_mini(page)
    page.fill("#puzzle", "11..............")
    expect(page.locator("#puzzle-message")).to_contain_text("clues clash: 1 stands at r1c1 and at r1c2")
    assert page.get_attribute("#puzzle", "aria-invalid") == "true"
    page.click("#run")
    expect(page.locator("#problem")).to_contain_text("clues clash")
    page.fill("#puzzle", "123")
    expect(page.locator("#puzzle-message")).to_contain_text("expected 16 cells, got 3")
    page.fill("#puzzle", ".1.. 3...\n...2\n..3.\n")  # pasted with line ends
    sees(page, "#puzzle-message", "4 clues.")
    page.fill("#steps", "5000")
    page.click("#run")
    expect(page.locator("#problem")).to_contain_text("Steps must be a whole number from 1 to 1000.")


def test_a_rule_can_be_changed_and_set(page):
    choose_mini(page)
    page.select_option("#rule-0", "em")
    page.click("#settings-0 summary")
    page.fill("#sigma-0", "0.2")
    page.keyboard.press("Tab")
    run(page)
    assert "a=em&a.sigma=0.2" in page.url


def test_a_race_counts_and_its_seeds_can_be_watched(page):
    choose_mini(page)
    page.fill("#steps", "12")
    page.fill("#race-count", "5")
    page.click("#race")
    sees(page, "#race-status", "10 boards, all done.")
    for lane in page.locator(".lane").all():
        assert re.fullmatch(r"\d of 5 valid: \d+%, 95% interval \d+% to \d+%", lane.locator(".figures").inner_text())
        assert lane.locator(".dots button.good, .dots button.bad").count() == 5
    raced = page.locator(".lane").nth(1).locator(".dots button").nth(3)
    outcome = raced.get_attribute("class")
    raced.click()
    sees(page, "#verdict-1 b", re.compile("A valid board|Broken"))
    assert raced.get_attribute("title").startswith(f"seed {page.input_value('#seed')}: ")
    assert outcome in page.get_attribute("#verdict-1", "class")
    assert page.locator(".lane").count() == 2


def test_a_run_can_be_taken_away_as_json_and_as_an_animation(page, tmp_path):
    choose_mini(page)
    page.fill("#steps", "9")
    run(page)
    with page.expect_download() as download:
        page.click("#save-json")
    saved = json.loads(Path(download.value.path()).read_text())
    assert [len(side) for side in saved["frames"]] == [9, 9]
    assert saved["puzzle"] == page.input_value("#puzzle")
    with page.expect_download() as download:
        page.click("#save-animation")
    picture = Path(download.value.path()).read_bytes()
    assert picture.startswith(b"\x89PNG\r\n")
    assert int.from_bytes(picture[picture.index(b"acTL") + 4 :][:4], "big") == picture.count(b"fcTL") == 9


def choose_small(page, title):
    """The run folder of a task, which may stand beside shipped models."""
    page.select_option("#task", title)
    small = page.locator("#model option[value*='small-']").first.get_attribute("value", timeout=3000)
    page.select_option("#model", small)
    page.click("#example")  # a graph of any size would be kept


@pytest.mark.parametrize(
    ("task", "title", "drawn"),
    [
        ("sudoku-d3pm", "Sudoku 4x4", {".cell": 16}),
        ("latin", "Latin square", {".cell": 16}),
        ("queens", "Queens", {".square": 36, ".queen .shape": 6}),
        ("connectivity", "Graph connectivity", {".node": 6}),
        ("maze", "Maze", {".terminal": 2}),
    ],
)
def test_every_task_is_drawn_as_itself(page, task, title, drawn):
    page.locator("#editor svg").wait_for()
    choose_small(page, title)
    kind = {"latin": "grid", "sudoku-d3pm": "grid", "connectivity": "graph"}.get(task, task)
    page.locator(f"#editor svg.{kind}").wait_for()
    run(page)
    for selector, count in drawn.items():
        for side in (0, 1):
            assert page.locator(f"#board-{side} {selector}").count() == count
    puzzle = page.input_value("#puzzle")
    if task == "connectivity":
        assert page.locator("#board-0 .edge").count() == puzzle.count("1") // 2
    if task == "maze":
        assert page.locator("#board-0 .wall").count() == puzzle.count("#")


def test_a_model_offers_the_rules_that_fit_it(page):
    choose_mini(page)
    rules = page.locator("#rule-0 option")
    assert "resample" in [rule.get_attribute("value") for rule in rules.all()]
    page.select_option("#rule-0", "ddpm")
    assert page.locator("#t_max-0").count() == 0  # DDPM keeps the state
    page.select_option("#rule-0", "tweedie")
    assert [page.get_attribute(f"#t_{end}-0", "placeholder") for end in ("max", "min")] == ["1", "0"]
    page.select_option("#model", page.locator("#model option[value*='small-sudoku-d3pm']").get_attribute("value"))
    assert [rule.get_attribute("value") for rule in rules.all()] == ["ancestral", "confidence", "remask", "remdm"]
    assert [page.input_value(f"#rule-{side}") for side in (0, 1)] == ["ancestral", "confidence"]
    assert page.locator("#settings-0 input").count() == 1  # there is no variance to multiply
    page.select_option("#rule-1", "remask")
    page.fill("#steps", "40")
    run(page)
    scrub(page, 1)
    assert all("?" in board for board in boards(page))  # masked cells
    page.click("#last")
    assert not any("?" in board for board in boards(page))
    page.select_option("#model", "sudoku-mini")
    assert [page.input_value(f"#rule-{side}") for side in (0, 1)] == ["ddpm", "tweedie"]


def test_a_masked_board_is_filled_by_every_decoder(page):
    """The shipped model. Masks are drawn as masks, are fewer and fewer, and come back where a decoder hides again."""
    choose_mini(page)
    page.select_option("#model", "sudoku-mini-d3pm")
    assert page.is_checked("input[name=view][value=x]")  # the state, not the proposal
    for left, right in (("ancestral", "confidence"), ("remask", "remdm")):
        for side, rule in enumerate((left, right)):
            page.select_option(f"#rule-{side}", rule)
        page.fill("#steps", "40")
        run(page)
        counts = []
        for step in range(1, 41):
            scrub(page, step)
            counts.append([page.locator(f"#board-{side} .cell.masked").count() for side in (0, 1)])
            assert counts[-1] == [board.count("?") for board in boards(page)]
        for side in (0, 1):
            masks = [count[side] for count in counts]
            assert masks[0] > 6
            assert masks[-1] == 0
            assert (masks == sorted(masks, reverse=True)) == (left == "ancestral")
    assert page.locator("#board-0 .cell.masked .sym").count() == 0
    page.check("input[value=p]", force=True)
    scrub(page, 2)
    assert page.locator(".cell.masked").count() == 0  # the proposal has a symbol everywhere
    assert "view=p" in page.url
    page.select_option("#model", "sudoku-mini")
    assert page.is_checked("input[name=view][value=p]")


OTHERS = """
from letgo import tasks
from own_tasks import Derangements, Traffic, TwoSteps

for task in (Derangements, Traffic, TwoSteps):
    tasks.register(task)
"""
# Of tasks whose text is no letter for each cell: a title, a puzzle, its clues, a cell and a key, the puzzle after that
WRITTEN = {
    "derangements": ("Derangements", "??C B??", "2 clues.", 0, "a", "A?C B??"),
    "traffic": ("Traffic", "red,,,,blue", "2 clues.", 2, "g", "red,,green,,blue"),
    "two-steps": ("Two-steps", "0110|0010|0001|0000", "0 clues.", 0, "1", "0110|0010|0001|0000"),
}


@pytest.fixture(scope="module")
def coins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with CONTRIBUTING's own task, a short run of it, and one whose tuned settings are cut off."""
    import letgo
    from letgo import tasks
    from letgo.config import Config
    from letgo.runs import save_weights, write_json

    folder, before = tmp_path_factory.mktemp("own"), dict(tasks.TASKS)
    text = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.S | re.M)
    (folder / "coins.py").write_text(next(block for block in blocks if "class Coins" in block) + OTHERS)
    try:
        config = Config.for_task(tasks.get(tasks.load(f"{folder / 'coins.py'}:Coins")))
        for name in WRITTEN:
            other = Config.for_task(tasks.get(name), sample_steps=3)
            write_json(folder / name / "config.json", other.as_dict())
            save_weights(folder / name / "model.safetensors", other.build_model().state_dict())
        letgo.train(config, folder / "run", steps=20, boards=64, sample_steps=10, validate=0, device="cpu")
    finally:
        tasks.TASKS.clear()
        tasks.TASKS.update(before)
    shutil.copytree(folder / "run", folder / "odd")
    (folder / "odd" / "tune-em.json").write_text("{")
    return folder


@pytest.fixture(scope="module")
def coins_address(coins: Path) -> Iterator[str]:
    """`letgo app` as a user starts it."""
    models = [word for name in ("run", "odd", *WRITTEN) for word in ("--model", str(coins / name))]
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "letgo", "app", "--port", "0", "--task", f"{coins / 'coins.py'}:Coins", *models]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        place = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert place, line
        until(lambda: health(place[0])["status"] == "ok")
        yield place[0]
        process.terminate()


def test_a_task_of_ones_own_is_played_beside_the_others(browser, coins: Path, coins_address: str):
    with watched(browser) as page:
        page.goto(coins_address)
        page.locator("#task option", has_text="Coins").wait_for(state="attached")  # the story shows a task before
        titles = [option.inner_text() for option in page.locator("#task option").all()]
        assert {"Coins", "Sudoku 9x9", "Queens", "Maze"} <= set(titles)
        page.select_option("#task", "Coins")
        assert page.input_value("#model") == str(coins / "run")
        assert page.locator("#editor .cell").count() == 4
        width, height = (page.locator("#editor svg").evaluate(f"e => e.viewBox.baseVal.{side}") for side in SIZE)
        assert width / height > 3  # one row
        page.fill("#puzzle", "HHHX")
        sees(page, "#puzzle-message", "expected 4 characters of H, T and '.', got 'HHHX'")
        page.fill("#puzzle", "H..T")
        sees(page, "#puzzle-message", "2 clues.")
        run(page)
        for board in boards(page):
            assert re.fullmatch(r"row 1: H [HT] [HT] T", board)
        for _ in range(3):  # its first regime is to generate from nothing, which is no puzzle
            page.click("#random")
            sees(page, "#puzzle-message", re.compile("[123] clues?"))
            assert re.fullmatch("[HT.]{4}", page.input_value("#puzzle"))
            assert re.search("[HT]", page.input_value("#puzzle"))
            page.fill("#puzzle", "....")
            sees(page, "#puzzle-message", "0 clues.")
        page.click("#editor [data-cell='2']")
        page.keyboard.press("t")
        assert page.input_value("#puzzle") == "..T."
        run(page)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_puzzle_of_ones_own_is_drawn_and_edited_however_it_is_written(browser, coins_address: str, name: str):
    title, puzzle, clues, cell, key, edited = WRITTEN[name]
    with watched(browser) as page:
        page.goto(coins_address)
        page.locator("#task option", has_text=title).wait_for(state="attached")
        page.select_option("#task", title)
        page.fill("#puzzle", puzzle)
        sees(page, "#puzzle-message", clues)
        assert page.locator("#editor .clue").count() == int(clues[0])
        page.locator(f"#editor [data-cell='{cell}']").focus()
        page.keyboard.press(key)
        page.wait_for_function("text => document.querySelector('#puzzle').value === text", arg=edited)
        page.locator(f"#editor [data-cell='{cell}']").focus()
        page.keyboard.press("Delete")
        page.wait_for_function("text => document.querySelector('#puzzle').value === text", arg=puzzle)
        run(page)


def test_a_broken_folder_is_named_and_takes_nobody_down(browser, coins: Path, coins_address: str):
    odd = str(coins / "odd")
    state = health(coins_address)
    assert list(state["failed"]) == [odd]
    assert "tune-em.json" in state["failed"][odd]
    with watched(browser) as page:
        page.goto(coins_address)
        sees(page, "#problem", re.compile(f"{re.escape(odd)} cannot be read and is left out"))
        choose_mini(page)
        run(page)


def test_another_model_keeps_the_puzzle_if_its_boards_have_that_size(page):
    page.locator("#editor svg").wait_for()
    page.select_option("#task", "Queens")
    page.select_option("#model", "queens-baseline")
    page.click("#clear")
    page.click("#editor [data-cell='2']")
    kept = "c" + "." * 13
    page.select_option("#model", "queens")
    assert page.input_value("#puzzle") == kept
    small = page.locator("#model option[value*='small-']").first.get_attribute("value", timeout=3000)
    page.select_option("#model", small)
    assert len(page.input_value("#puzzle")) == 6
    sees(page, "#puzzle-message", re.compile("clue"))


def test_queens_graphs_and_mazes_can_be_edited(page):
    page.locator("#editor svg").wait_for()
    choose_small(page, "Queens")
    page.click("#clear")
    page.click("#editor [data-cell='8']")  # row 2, column c
    assert page.input_value("#puzzle") == ".c...."
    page.keyboard.press("Space")
    assert page.input_value("#puzzle") == "......"
    choose_small(page, "Graph connectivity")
    page.click("#clear")
    page.locator("#editor .node").nth(0).click()
    page.locator("#editor .node").nth(2).click()
    assert page.input_value("#puzzle") == "001000/000000/100000/000000/000000/000000"
    choose_small(page, "Maze")
    puzzle = page.input_value("#puzzle").replace("/", "")
    page.click(f"#editor [data-cell='{puzzle.index('.')}']")
    changed = page.input_value("#puzzle").replace("/", "")
    assert changed == puzzle.replace(".", "#", 1)


def test_the_keyboard_alone_is_enough(page):
    from playwright.sync_api import expect

    choose_mini(page)
    page.focus("#run")
    page.keyboard.press("Enter")
    sees(page, "#verdict-1 b", re.compile("A valid board|Broken"))
    page.focus("#scrub")
    page.keyboard.press("Home")
    sees(page, "#where", re.compile("step 0 of "))
    page.keyboard.press("ArrowRight")
    sees(page, "#where", re.compile("step 1 of "))
    page.focus("#editor [tabindex='0']")
    page.keyboard.press("End")
    expect(page.locator("#editor [data-cell='3']")).to_be_focused()


def test_skipping_to_the_boards_keeps_the_setting(page):
    from playwright.sync_api import expect

    choose_mini(page)
    address = page.url
    page.focus(".skip")
    page.keyboard.press("Enter")
    expect(page.locator("#stage")).to_be_focused()
    assert page.url == address


def test_a_changed_address_changes_the_setting(page):
    choose_mini(page)
    page.evaluate("location.hash = '#model=sudoku-mini&puzzle=1...............&a=ddim&b=euler&steps=6&seed=3&run=1'")
    sees(page, "#puzzle-message", "1 clue.")
    sees(page, "#verdict-1 b", re.compile("A valid board|Broken"))
    assert [page.input_value(f"#rule-{side}") for side in (0, 1)] == ["ddim", "euler"]


def test_everything_that_can_be_used_has_a_name(page):
    choose_mini(page)
    nameless = page.evaluate(
        """() => [...document.querySelectorAll(
            'button, select, input, textarea, [role=gridcell], svg[role=img], progress')]
        .filter(e => !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length))
        .map(e => e.outerHTML.slice(0, 80))"""
    )
    assert nameless == []


CONTRAST = """() => {
  const canvas = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const rgba = (c) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = c; canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const linear = (v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4;
  const light = (c) => { const [r, g, b] = rgba(c).map(v => linear(v / 255));
    return .2126 * r + .7152 * g + .0722 * b; };
  const behind = (e) => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
    if (rgba(c)[3] > 250) return c; } return 'white'; };
  const found = [];
  const compare = (what, front, back) => { const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
    const ratio = (a + .05) / (b + .05); if (ratio < 4.5) found.push(what + ' ' + ratio.toFixed(2)); };
  for (const cell of document.querySelectorAll('.cell')) for (const text of cell.querySelectorAll('text'))
    if (text.textContent) compare(cell.getAttribute('class') + ' ' + text.getAttribute('class'),
      getComputedStyle(text).fill, getComputedStyle(cell.querySelector('.bg')).fill);
  for (const e of document.querySelectorAll('body *')) {
    if (e.closest('svg, .hidden, .skip, noscript') || e.disabled || !e.offsetParent) continue;
    if ([...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()))
      compare((e.id || e.className || e.tagName), getComputedStyle(e).color, behind(e));
  }
  return [...new Set(found)];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_keeps_the_contrast_that_aa_asks_for(browser, address, scheme):
    with watched(browser, color_scheme=scheme) as page:
        page.goto(address)
        choose_mini(page)
        page.check("input[value=both]", force=True)
        run(page)
        for step in (1, 5, 10, 20, 30, 40, 50):
            scrub(page, step)
            assert page.evaluate(CONTRAST) == []
        page.click("#theme")
        assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("width", [320, 390, 768])
def test_nothing_sticks_out_of_a_small_screen(browser, address, width):
    with watched(browser, viewport={"width": width, "height": 800}) as page:
        page.goto(address)
        choose_mini(page)
        run(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_finger_can_fill_a_cell(browser, address):
    with watched(browser, viewport={"width": 390, "height": 800}, has_touch=True, is_mobile=True) as page:
        page.goto(address)
        choose_mini(page)
        page.tap("#clear")
        page.tap("#editor [data-cell='6']")
        page.get_by_role("button", name="Put 3 into the chosen cell").tap()
        assert page.input_value("#puzzle") == "......3........."
        page.get_by_role("button", name="Put blank into the chosen cell").tap()
        assert page.input_value("#puzzle") == "................"


def test_what_is_spoken_are_the_turning_points(page):
    choose_mini(page)
    run(page)
    sees(page, "#spoken", re.compile(r"DDPM: .+\. Tweedie reprojection: .+\."))


def test_a_run_is_over_when_it_says_so_however_late_the_connection_closes(browser, address):
    with watched(browser) as page:
        page.add_init_script("""
            const { fetch } = window;
            window.fetch = async (...asked) => {
              const answer = await fetch(...asked), open = new TransformStream({ flush: () => new Promise(() => {}) });
              if (!String(asked[0]).includes("trajectory")) return answer;
              return new Response(answer.body.pipeThrough(open), answer);
            };
        """)
        page.goto(address)
        choose_mini(page)
        run(page)
        sees(page, "#race-cost", re.compile("at the pace of the last run"))
        sees(page, "#spoken", re.compile(r"DDPM: .+\. Tweedie reprojection: .+\."))


def test_a_link_to_a_model_that_is_not_there_says_so(browser, address):
    with watched(browser) as page:
        page.goto(f"{address}/#model=runs/elsewhere&puzzle=1234&a=ddpm&b=tweedie&steps=5&seed=0&run=1")
        sees(page, "#problem", re.compile("asks for the model 'runs/elsewhere', which this server does not offer"))


def test_a_server_that_has_gone_is_said_in_words(browser):
    context = browser.new_context()
    page = context.new_page()
    with serving() as address:
        page.goto(address)
        choose_mini(page)
    page.click("#run")
    sees(page, "#problem", re.compile("The server does not answer"))
    context.close()
