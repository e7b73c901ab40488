"""How each state looks: nothing unreadable, cut or hidden in either scheme, at any width, on paper."""

from __future__ import annotations

import re
from typing import Any

import pytest
from pages import PATIENCE, boards, choose_mini, run, scrub, sees, watched

pytestmark = pytest.mark.browser
QUESTION = "#question"
LIGHT = """const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const light = (colour) => { pen.clearRect(0, 0, 1, 1); pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map((v) => v / 255)
      .map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b; };
  const ratio = (one, two) => { const [a, b] = [light(one), light(two)].sort((x, y) => y - x); return (a + .05) / (b + .05); };
"""  # noqa: E501


def ended(page: Any) -> None:
    for side in (0, 1):
        sees(page, f"#verdict-{side} b", re.compile("A valid board|Broken"))


def opened(page: Any, address: str) -> None:
    page.goto(address)
    sees(page, "#puzzle-message", "21 clues.")


def titles(page: Any) -> list[str]:
    return [option.inner_text() for option in page.locator("#chosen option").all()[1:]]


def named(page: Any, words: str) -> str:
    [title] = [title for title in titles(page) if words in title]
    return title


def small(page: Any, title: str) -> None:
    """The run folder of a task, from its own example."""
    page.select_option("#task", title)
    page.select_option("#model", page.locator("#model option[value*='small-']").first.get_attribute("value"))
    page.click("#example")


INK = f"""() => {{ {LIGHT} const ground = getComputedStyle(document.querySelector('.heat')).backgroundColor;
  const alpha = Number(/rgba\\(.*, ([\\d.]+)\\)/.exec(ground)?.[1] ?? 1);
  const behind = alpha > .9 ? ground : getComputedStyle(document.body).backgroundColor;
  return ratio(getComputedStyle(document.querySelector('.heat path')).fill, behind); }}"""


@pytest.mark.parametrize("forced", ["none", "active"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_probabilities_of_a_cell_can_be_seen(browser, plain, scheme, forced):
    with watched(browser, color_scheme=scheme, forced_colors=forced, reduced_motion="reduce") as page:
        page.goto(plain)
        choose_mini(page)
        page.fill("#steps", "30")
        run(page)
        page.fill("#cell-row", "1")
        page.fill("#cell-column", "1")
        page.keyboard.press("Tab")
        page.locator("#cell-sides .figures").first.wait_for()
        assert page.evaluate(INK) > 4.5
        if forced == "none":
            page.click("#theme")  # drawn before, and seen in the other scheme too
            assert page.evaluate(INK) > 4.5
        for side, panel in enumerate(page.locator("#cell-sides .lane").all()):
            last = panel.locator(".heat path").last
            rows = re.findall(r"M29 (\d)h", last.get_attribute("d"))  # of the last step, in the darkest ink
            told = re.match(r"r1c1 ends as (\d) ", panel.locator(".figures").inner_text())
            assert told
            assert [int(row) + 1 for row in rows] == [int(told[1])]
            assert boards(page)[side].startswith(f"row 1: {told[1]} ")


def test_the_cell_that_is_followed_is_framed_on_every_board(browser, address):
    """Also its name in words: a queen has a row, a pair of nodes two numbers, whatever the size of its graph."""
    with watched(browser, reduced_motion="reduce") as page:
        page.goto(address)
        page.locator("#task option", has_text="Maze").wait_for(state="attached")
        for title, row, column, told, at in (
            ("Queens", 3, None, "row 3 ends as", "translate(0 80)"),
            ("Maze", 2, 5, "r2c5 ends as (wall|open|start|goal|way) ", "translate(80 20)"),
            ("Sudoku 4x4", 2, 4, "r2c4 ends as", "translate(122 42)"),
        ):
            small(page, title)
            run(page)
            assert page.input_value("#cell-row") == ""
            page.fill("#cell-row", str(row))
            if column:
                page.fill("#cell-column", str(column))
            page.keyboard.press("Tab")
            sees(page, "#cell-sides .lane:first-child .figures", re.compile(f"^{told}"))
            for side in (0, 1):
                frame = page.locator(f"#board-{side} .follow")
                assert frame.is_visible()
                assert frame.get_attribute("transform") == at
            page.click("#cell-none")
            assert not page.locator("#board-0 .follow").is_visible()
        small(page, "Graph connectivity")
        page.fill("#puzzle", "0100/1000/0001/0010")  # smaller than the graphs of this model
        sees(page, "#puzzle-message", "4 nodes.")
        run(page)
        assert page.inner_text("#cell-row-name") == "node"
        page.fill("#cell-row", "2")
        page.fill("#cell-column", "4")
        page.keyboard.press("Tab")
        sees(page, "#cell-sides .lane:first-child .figures", re.compile("^nodes 2 and 4 ends? as (joined|apart) at"))
        ends = page.locator("#board-1 .node").evaluate_all("all => all.map((e) => e.getAttribute('transform'))")
        points = [tuple(map(float, re.findall(r"[\d.]+", ends[node]))) for node in (1, 3)]
        line = re.search(r"M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)$", page.get_attribute("#board-1 .follow", "d"))
        assert line
        assert [float(number) for number in line.groups()] == pytest.approx([*points[0], *points[1]])


def test_the_question_is_of_what_is_compared(browser, plain):
    with watched(browser, reduced_motion="reduce") as page:
        opened(page, plain)
        one = "Same network, same puzzle, same noise. Why does one sampler fail where the other succeeds?"
        sees(page, QUESTION, one)
        page.select_option("#chosen", named(page, "Self-correction"))
        sees(page, QUESTION, one.replace("network", "sampler", 1).replace("one sampler", "one network"))
        ended(page)
        shares = "Over 2,000 such boards: DDPM (sudoku-baseline) .30, DDPM (sudoku) .80 valid."
        assert shares in page.inner_text("#measured")
        page.click("#tour-start")
        assert "its network" in page.inner_text("#tour")
        assert "the same network" not in page.inner_text("#tour")
        page.click("#tour-end")
        page.select_option("#rule-1", "tweedie")
        sees(page, QUESTION, "Same puzzle, same noise. Why does one side fail where the other succeeds?")
        page.select_option("#model-1", "sudoku-baseline")
        sees(page, QUESTION, one)
        page.select_option("#rule-1", "ddpm")
        sees(page, QUESTION, "Same network, same sampler, same puzzle, same noise: both sides do the same.")
        page.select_option("#chosen", named(page, "until it is sure"))
        sees(page, QUESTION, re.compile("^One network, one hard puzzle. How does it know"))
        sees(page, "#sure-status", re.compile("^Sure after"))
        assert page.locator("#until").evaluate("e => e.getBoundingClientRect().top") < 700
        nothing_is_cut(page)
        page.select_option("#task", "Latin square")
        sees(page, QUESTION, one)


def test_a_masked_example_begins_with_the_state(browser, plain):
    with watched(browser, reduced_motion="reduce") as page:
        opened(page, plain)
        page.select_option("#chosen", named(page, "Masked"))
        ended(page)
        assert page.is_checked("input[name=view][value=x]")
        scrub(page, 5)
        assert page.locator("#board-0 .cell.masked").count() > 0
        page.click("#tour-start")
        assert "a board of masks" in page.inner_text("#tour")
        page.click("#tour-end")
        page.select_option("#chosen", named(page, "Latin"))
        ended(page)
        assert page.is_checked("input[name=view][value=p]")


MARKS = f"""() => {{ {LIGHT} return [...document.querySelectorAll('#stage .cell.open')].map((cell) => {{
  const ground = getComputedStyle(cell.querySelector('.bg')).fill;
  const seen = [...cell.querySelectorAll('.pencil:not(.none)')].map((mark) => getComputedStyle(mark));
  return [Math.min(...seen.map((style) => ratio(style.fill, ground) * Number(style.opacity))),
    getComputedStyle(cell.querySelector('.mark')).display]; }}); }}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_pencil_mark_can_be_read(browser, plain, scheme):
    with watched(browser, color_scheme=scheme, reduced_motion="reduce") as page:
        opened(page, plain)
        page.check("input[value=marks]", force=True)
        for step in (1, 40, 100, 150):
            scrub(page, step)
            page.locator("#stage .cell.open").first.wait_for()
            found = page.evaluate(MARKS)
            assert min(ratio for ratio, _ in found) >= 4.4, step
            assert {line for _, line in found} == {"none"}  # nothing strikes them out
        assert page.locator("#stage .cell.open .sym").evaluate_all("all => all.every((e) => e.textContent === '')")
        for width in (390, 800, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            assert page.locator("#board-0 svg").bounding_box()["width"] > 280  # a mark has a third of a cell


@pytest.mark.parametrize(("width", "height"), [(390, 800), (800, 900), (1024, 800), (1440, 900)])
def test_the_tour_stands_beside_the_boards(browser, plain, width, height):
    with watched(browser, reduced_motion="reduce", viewport={"width": width, "height": height}) as page:
        opened(page, plain)
        page.click("#tour-start")
        for number in (1, 2, 3, 4):
            sees(page, "#tour-title", re.compile(f"^{number} of 4: "))
            if number < 4:
                assert "_" not in page.inner_text("#tour .formula")
                assert page.locator("#tour .formula sub").count() > 0
            words, *shown = (page.locator(name).bounding_box() for name in ("#tour", "#board-0", "#board-1"))
            assert words["y"] >= 0
            assert words["y"] + words["height"] <= height + 1
            for board in shown:
                assert board["y"] >= 0, number
                assert board["y"] + board["height"] <= height, number
                apart = board["y"] >= words["y"] + words["height"] or board["y"] + board["height"] <= words["y"]
                assert apart, number
            page.click("#tour-next")


def test_the_tour_has_a_formula_for_every_rule(browser, plain):
    with watched(browser, reduced_motion="reduce") as page:
        page.goto(plain)
        choose_mini(page)
        page.fill("#steps", "12")
        rules = [option.get_attribute("value") for option in page.locator("#rule-0 option").all()]
        shown = set()
        for rule in rules:
            page.select_option("#rule-0", rule)
            page.select_option("#rule-1", rule)
            run(page)
            page.click("#tour-start")
            page.click("#tour-next")
            shown.add(page.inner_text("#tour .formula"))
            page.click("#tour-end")
        assert all(re.search(r"Eq\. \d+", text) for text in shown)
        assert len(shown) == len(rules)


def test_who_wants_no_motion_sees_the_whole_race_at_once(browser, plain):
    with watched(browser, reduced_motion="reduce") as page:
        opened(page, plain)
        sees(page, "#race-status", "Recorded: 40 boards, seeds 0 to 19.")
        assert page.evaluate("document.getElementById('race-progress').value") == 1
        assert page.locator(".lane .dots button:disabled").count() == 0


def test_what_is_printed_is_dark_on_light(browser, plain):
    """Also for who has chosen the dark scheme; and the race has its name."""
    with watched(browser, color_scheme="dark", reduced_motion="reduce") as page:
        opened(page, plain)
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
        page.emulate_media(media="print")
        seen = page.evaluate(
            f"""() => {{ {LIGHT} return ['body', '#verdict-0 strong', '.gloss', '.lane .figures']
            .map((name) => ratio(getComputedStyle(document.querySelector(name)).color, 'white')); }}"""
        )
        assert min(seen) > 4.5
        assert page.locator("#race-title").is_visible()
        assert not page.locator("#race").is_visible()
        assert not page.locator("#race-count").is_visible()


FITS = """() => [...document.querySelectorAll('#chosen option')].map((option) => {
  const select = option.parentElement, style = getComputedStyle(select), pen = document.createElement('canvas').getContext('2d');
  pen.font = style.font;
  const room = select.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - 20;
  return [option.text, room - pen.measureText(option.text).width]; }).filter(([, left]) => left < 0)"""  # noqa: E501


def nothing_is_cut(page: Any) -> None:
    """And nothing sticks out, with all unfolded, at any width."""
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    for width in (320, 390, 800, 1024, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert width < 390 or page.evaluate(FITS) == []
        where = page.locator("#where").bounding_box()
        assert width < 500 or where["height"] < 30  # on one line


@pytest.mark.parametrize("words", ["two samplers", "Self-correction", "Masked", "Latin", "queens", "Graph", "Maze"])
def test_an_example_ends_as_it_was_chosen_to(browser, plain, words):
    """Broken on the left and valid on the right, in words that name the measured shares."""
    from playwright.sync_api import expect

    with watched(browser, reduced_motion="reduce") as page:
        opened(page, plain)
        page.select_option("#chosen", named(page, words))
        done = re.compile("Sampled (50|200) steps")
        expect(page.locator("#status")).to_have_text(done, timeout=5 * PATIENCE)  # a maze takes long
        sees(page, "#verdict-0 b", re.compile("Broken"))
        sees(page, "#verdict-1 b", re.compile("A valid board"))
        assert re.search(r"Chosen to show the gap\. Over [12],000 such boards: .*\.\d\d", page.inner_text("#measured"))
        assert "run=1" in page.url
        why = page.inner_text("#verdict-0 strong")
        assert page.inner_text("#why").endswith(f": {why}")
        assert page.locator("#board-0 .kept").is_visible()
        assert not page.locator("#board-1 .kept").is_visible()
        assert holds(words, why, page.input_value("#puzzle"), boards(page)[0])
        nothing_is_cut(page)


def holds(words: str, why: str, puzzle: str, board: str) -> bool:
    """Whether what is said of a broken board is true of it: where two cells clash, the page's own tests say so."""
    if words == "Graph":
        told = re.match(r"nodes (\d+) and (\d+) are held apart \(.*\), although a path joins them; that has stood", why)
        assert told
        a, b = int(told[1]), int(told[2])
        links, reached = [[j for j, c in enumerate(row) if c == "1"] for row in puzzle.split("/")], {a - 1}
        while more := {j for i in reached for j in links[i]} - reached:
            reached |= more
        joined = board.split("; ")[a - 1].split(": ")[1].split()
        return b - 1 in reached and str(b) not in joined
    if words == "Maze":
        told = re.search(r"does not reach G; its piece at r(\d+)c(\d+), which is cut off, has stood", why)
        assert told
        rows = [row.split(": ")[1].split() for row in board.split("; ")]
        cells = {(r, c): symbol for r, row in enumerate(rows, 1) for c, symbol in enumerate(row, 1)}
        piece = int(told[1]), int(told[2])
        open_, reached = [place for place, s in cells.items() if s == "S"], set()
        while open_:
            r, c = place = open_.pop()
            reached.add(place)
            near = ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1))
            open_ += [n for n in near if n not in reached and cells.get(n, "#") in "oG"]
        return cells[piece] == "o" and piece not in reached and "G" not in {cells[place] for place in reached}
    return "it clashes with has stood since step" in why
