"""What once went wrong on the page, each as a visitor met it."""

from __future__ import annotations

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pages import boards, choose_mini, run, scrub, sees, watched
from PIL import Image
from servers import serving

pytestmark = pytest.mark.browser
MAZE = "Maze"


def contains(page: Any, selector: str, text: str | re.Pattern[str]) -> None:
    from pages import PATIENCE
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_contain_text(text, timeout=PATIENCE)


def slow(page: Any, route: str, milliseconds: int) -> None:
    """Answers of a route arrive late, without holding up the test."""
    page.add_init_script(
        f"""const now = window.fetch; window.fetch = async (path, options) => {{
            if (String(path).startsWith('{route}')) await new Promise((go) => setTimeout(go, {milliseconds}));
            return now(path, options); }};"""
    )


def comes_to_rest(page: Any) -> None:
    from pages import PATIENCE
    from playwright.sync_api import expect

    expect(page.locator("#play")).to_have_attribute("aria-label", "Play", timeout=PATIENCE)


def steps_shown(page: Any) -> int:
    found = re.match(r"step (\d+)", page.inner_text("#where"))
    return int(found[1]) if found else -1


def test_a_late_random_puzzle_does_not_land_in_another_task(browser, plain):
    with watched(browser) as page:
        slow(page, "/api/puzzle", 700)
        page.goto(plain)
        page.locator("#editor svg").wait_for()
        page.select_option("#task", "Latin square")
        sees(page, "#puzzle-message", re.compile(r"clue"))
        page.click("#random")
        page.select_option("#task", "Sudoku 4x4")
        sees(page, "#puzzle-message", "4 clues.")
        page.wait_for_timeout(1200)
        assert page.input_value("#puzzle") == ".1..3......2..3."
        sees(page, "#puzzle-message", "4 clues.")


def test_a_run_leaves_the_race_alone_and_a_race_begins_where_it_began(page):
    choose_mini(page)
    page.fill("#steps", "10")
    page.fill("#race-count", "5")
    page.click("#race")
    sees(page, "#race-status", "10 boards, all done.")
    run(page)
    assert page.locator(".lane .dots button.good, .lane .dots button.bad").count() == 10
    page.locator("#race-lanes .lane").nth(1).locator(".dots button").nth(3).click()
    sees(page, "#verdict-1 b", re.compile("A valid board|Broken"))
    assert page.input_value("#seed") == "3"
    page.click("#race")
    sees(page, "#race-status", "10 boards, all done.")
    first = page.locator("#race-lanes .lane").nth(0).locator(".dots button").nth(0)
    assert first.get_attribute("title").startswith("seed 0: ")
    page.fill("#race-count", "64")
    page.fill("#steps", "400")
    page.click("#race")
    page.locator("#race-lanes .lane").nth(0).wait_for()
    page.click("#run")  # while the race is on its way
    sees(page, "#where", re.compile("step [1-9]"))
    assert page.locator("#race-lanes .lane").count() == 2
    assert page.inner_text("#race") == "Stop the race"
    page.click("#race")
    sees(page, "#race-status", "Stopped.")


def test_a_stopped_run_plays_what_it_has(browser, address):
    with watched(browser) as page:
        page.goto(address)
        choose_mini(page)
        page.fill("#steps", "1000")
        page.fill("#speed", "9")
        page.click("#run")
        sees(page, "#where", re.compile(r"step [2-9]\d+ of"))
        page.click("#run")
        sees(page, "#run", "Run")
        page.click("#last")
        here = steps_shown(page)
        assert 0 < here < 1000
        page.click("#play")
        comes_to_rest(page)
        assert steps_shown(page) == here


def test_a_lost_connection_leaves_what_was_sent(browser):
    context = browser.new_context()
    page = context.new_page()
    cut = (
        "const now = window.fetch; window.fetch = async (path, options) => { const got = await now(path, options);"
        "if (path !== '/api/trajectory') return got;"
        "const text = (await got.text()).split('\\n\\n').slice(0, 21).join('\\n\\n') + '\\n\\n';"
        "return new Response(text, { status: 200 }); };"
    )
    page.add_init_script(cut)
    with serving() as address:
        page.goto(address)
        choose_mini(page)
        page.fill("#speed", "9")
        page.click("#run")
        contains(page, "#problem", "The connection ended early")
        comes_to_rest(page)  # by itself
        page.click("#last")
        reached = steps_shown(page)
        page.click("#first")
        page.click("#play")
        comes_to_rest(page)
        assert steps_shown(page) == reached
        assert 0 < steps_shown(page) < 50
    context.close()


def test_the_boards_show_the_text_that_is_there(browser, plain):
    with watched(browser) as page:
        page.goto(f"{plain}/#model=sudoku&puzzle=123")
        page.locator("#board-0 svg").wait_for()
        contains(page, "#puzzle-message", "expected 81 cells, got 3")
        assert boards(page)[0].startswith("row 1: 1 2 3 blank")
        page.fill("#puzzle", "9" + "." * 79)
        contains(page, "#puzzle-message", "expected 81 cells, got 80")
        assert boards(page)[0].startswith("row 1: 9 blank")
        page.click("#run")
        contains(page, "#problem", "expected 81 cells, got 80")
        assert "noise" not in page.inner_text("#now-0")
        page.fill("#puzzle", "5" + "." * 80)
        sees(page, "#puzzle-message", "1 clue.")
        assert boards(page)[0].startswith("row 1: 5 blank")


CAPTIONS = """const told = []; const write = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...rest) { told.push(text); return write.call(this, text, ...rest); };
window.told = told;"""  # noqa: E501
COLOURS = """const drawn = []; const draw = CanvasRenderingContext2D.prototype.drawImage; window.drawn = drawn;
const make = URL.createObjectURL; URL.createObjectURL = (blob) => { const url = make(blob);
  if (blob.type === 'image/svg+xml') blob.text().then((t) => drawn.push(t)); return url; };"""


def symbols(svg: str) -> str:
    return "".join(re.findall(r'class="sym"[^>]*>([^<]*)<', svg))


def frames_of(svg: str) -> dict[str, str]:
    """Where a board's frames are that say why it failed: of what is drawn, by name."""
    nodes = [dict(re.findall(r'(class|display|transform)="([^"]*)"', node)) for node in re.findall("<rect [^>]*>", svg)]
    seen = [node for node in nodes if node["class"] in ("kept", "stuck") and node["display"] != "none"]
    return {node["class"]: node["transform"] for node in seen}


def test_an_animation_is_of_its_own_run_and_view(browser, address):
    with watched(browser) as page:
        page.add_init_script(CAPTIONS)
        page.add_init_script(COLOURS)
        page.goto(address)
        choose_mini(page)
        page.fill("#steps", "12")
        run(page)
        page.check("input[value=p]", force=True)
        with page.expect_download() as saved_json:
            page.click("#save-json")
        frames = json.loads(Path(saved_json.value.path()).read_text())["frames"]
        shown = [frames_of(page.locator(f"#board-{side} svg").evaluate("svg => svg.outerHTML")) for side in (0, 1)]
        assert set(shown[1]) == {"kept", "stuck"}  # Tweedie's board fails in so few steps
        page.fill("#speed", "0")
        page.click("#play")  # it plays while it is saved
        with page.expect_download() as download:
            page.click("#save-animation")
            page.click("#run")  # and another run begins
        assert Path(download.value.path()).read_bytes().count(b"fcTL") == 12
        sees(page, "#take-message", "Saved; any browser plays it.")
        told = [text for text in page.evaluate("told") if text.startswith("step ")]
        for number, caption in enumerate(told):
            frame = frames[number % 2][number // 2]
            count = len(frame["pbad"])
            words = "every rule holds" if count == 0 else f"{count} cell"
            assert caption.startswith(f"step {frame['step']} of 12 · {words}"), (caption, count)
        drawn = page.evaluate("drawn")
        for number, svg in enumerate(drawn[:24]):
            frame = frames[number % 2][number // 2]
            assert symbols(svg) == "".join(str(int(s) + 1) for s in frame["p"])
        assert [frames_of(svg) for svg in drawn[22:24]] == shown  # the animation ends with why a side failed


TOPS = "() => [0, 1].map((i) => document.getElementById(`board-${i}`).getBoundingClientRect().top)"


def test_the_boards_stand_on_one_line(browser, plain):
    with watched(browser) as page:
        page.goto(plain)
        choose_mini(page)
        for width in (390, 719, 730, 760, 900, 1024, 1070, 1100, 1440):
            page.set_viewport_size({"width": width, "height": 900})
            left, right = page.evaluate(TOPS)
            assert abs(left - right) < 1, width
        page.select_option("#rule-0", "em-decay")
        page.evaluate("document.getElementById('settings-0').open = true")
        left, right = page.evaluate(TOPS)
        assert abs(left - right) < 1


def test_forced_colours_paper_and_small_screens(browser, plain):
    with watched(browser, forced_colors="active", viewport={"width": 390, "height": 800}) as page:
        page.goto(plain)
        choose_mini(page)
        run(page)
        ground = "e => getComputedStyle(e).backgroundColor"
        chosen, other = (
            page.locator(f"input[name=view]{kind} + span").first for kind in (":checked", ":not(:checked)")
        )
        assert chosen.evaluate(ground) != other.evaluate(ground)
        page.evaluate("document.getElementById('progress').value = 0.5")
        bar = np.asarray(Image.open(BytesIO(page.locator("#progress").screenshot())).convert("RGB")).astype(int)
        middle = bar[bar.shape[0] // 2]
        assert np.abs(middle[len(middle) // 4] - middle[3 * len(middle) // 4]).sum() > 100
        # In forced colours style.font is empty.
        cut = """() => [0, 1].map((i) => document.getElementById('rule-' + i))
            .map((e) => { const style = getComputedStyle(e), pen = document.createElement('canvas').getContext('2d');
              pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
              const arrow = style.appearance === 'none' ? 0 : 18;
              const room = e.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) - arrow;
              return [e.selectedOptions[0].text, room - pen.measureText(e.selectedOptions[0].text).width]; })"""
        assert [name for name, room in page.evaluate(cut) if room < 0] == []
    with watched(browser) as page:
        page.goto(plain)
        choose_mini(page)
        run(page)
        page.emulate_media(media="print")
        for part in ("#run", ".transport", ".views", "#setup", "#race", "#save-json", "#theme"):
            assert not page.locator(part).is_visible(), part
        for part in ("#board-0 svg", "#verdict-1", "#question"):
            assert page.locator(part).is_visible(), part


LIGHT = """(names) => { const pen = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const light = (colour) => { pen.fillStyle = colour; pen.fillRect(0, 0, 1, 1);
    const [r, g, b] = [...pen.getImageData(0, 0, 1, 1).data].map((v) => v / 255).map((v) => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
    return .2126 * r + .7152 * g + .0722 * b; };
  const [a, b] = names.map((name) => light(getComputedStyle(document.querySelector(name)).fill)).sort((x, y) => y - x);
  return (a + .05) / (b + .05); }"""  # noqa: E501


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_walls_of_a_maze_stand_out(browser, plain, scheme):
    with watched(browser, color_scheme=scheme) as page:
        page.goto(plain)
        page.locator("#editor svg").wait_for()
        page.select_option("#task", MAZE)
        page.locator("#board-0 .wall").first.wait_for()
        assert page.evaluate(LIGHT, ["#board-0 .wall", "#board-0 .bg"]) >= 3


def test_the_keyboard_meets_run_first_and_keeps_its_place(browser, address):
    with watched(browser, viewport={"width": 800, "height": 900}) as page:
        page.goto(address)
        choose_mini(page)
        order = page.evaluate(
            """() => [...document.querySelectorAll('button, select, input, textarea')].map((e) => e.id)
                .filter((id) => ['run', 'task'].includes(id))"""
        )
        tops = [page.locator(f"#{name}").bounding_box()["y"] for name in order]
        assert order == ["run", "task"]
        assert tops == sorted(tops)
        page.focus("#editor [data-cell='0']")
        typed = """() => { const key = new KeyboardEvent('keydown', { key: '4', bubbles: true });
            document.activeElement.dispatchEvent(key); return document.activeElement.dataset?.cell; }"""
        assert page.evaluate(typed) == "0"
        sees(page, "#puzzle-message", "5 clues.")  # the server's answer draws the editor once more
        assert page.evaluate("document.activeElement.dataset.cell") == "0"
        page.keyboard.press("1")  # clashes, which the editor then shows: it is drawn anew
        page.locator("#editor .cell.bad").first.wait_for()
        assert page.evaluate("document.activeElement.dataset.cell") == "0"
        assert page.get_attribute("#speed", "aria-valuetext").endswith("steps a second")


def test_the_form_keeps_what_was_chosen(browser, plain):
    with watched(browser) as page:
        page.goto(plain)
        page.locator("#editor svg").wait_for()
        first = page.input_value("#model")
        page.select_option("#task", "Queens")
        page.fill("#steps", "77")
        page.keyboard.press("Tab")
        page.select_option("#model", "queens")
        assert page.input_value("#steps") == "77"
        page.select_option("#task", "Sudoku 9x9")
        assert page.input_value("#model") == first == "sudoku-baseline"
        page.select_option("#model", "sudoku")
        for task, left_with in (("Queens", "queens"), ("Sudoku 9x9", "sudoku")):
            page.select_option("#task", task)
            assert page.input_value("#model") == left_with


def test_a_link_to_an_unknown_model_is_not_rewritten(browser, plain):
    with watched(browser) as page:
        page.goto(f"{plain}/#model=runs/elsewhere&puzzle=1234&a=ddpm&b=tweedie&steps=5&seed=0&run=1")
        contains(page, "#problem", "asks for the model 'runs/elsewhere'")
        page.wait_for_timeout(300)
        assert "model=runs/elsewhere" in page.url or "model=runs%2Felsewhere" in page.url
        assert page.inner_text("#run") == "Run"


def test_a_cold_start_has_live_buttons_and_true_words(browser, plain):
    with watched(browser) as page:
        slow(page, "/api/models", 1500)
        page.goto(plain)
        page.locator("#board-0 svg").wait_for()
        page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
        assert "1 steps" not in page.inner_text("main")
        alive = page.evaluate("[...document.querySelectorAll('button')].filter((e) => !e.disabled).map((e) => e.id)")
        assert {"run", "play", "theme", "race"} <= set(alive)
        assert not {"example", "random", "clear"} & set(alive)  # these wait for the models, and say so
        page.click("#run")
        contains(page, "#status", "models are there")
        sees(page, "#status", re.compile("Sampled 200 steps"))
        scrub(page, 0)
        assert "noise" not in page.inner_text("#now-0")
        page.focus("#editor [data-cell='0']")
        page.evaluate(
            """() => { const data = new DataTransfer(); data.setData('text', '1' + '.'.repeat(80));
            document.activeElement.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true })); }"""  # noqa: E501
        )
        sees(page, "#puzzle-message", "1 clue.")
        page.fill("#steps", "1")
        page.click("#run")
        sees(page, "#status", "Sampled 1 step on each side.")
        contains(page, "#verdict-1", "1 step, 1 network call,")
        assert not re.search(r"\b1 (steps|network calls|changes)", page.inner_text("main"))


def test_settings_are_offered_where_they_change_something(page):
    choose_mini(page)
    for rule, offered in {"ddim": False, "euler": False, "heun": False, "ddpm": True, "em": True}.items():
        page.select_option("#rule-0", rule)
        assert (page.locator("#variance-0").count() == 1) is offered, rule
    page.select_option("#task", "Sudoku 9x9")
    page.select_option("#model", "sudoku-baseline")
    page.select_option("#rule-0", "em-decay")
    page.fill("#steps", "50")
    page.keyboard.press("Tab")
    contains(page, "#settings-0", "Tuned for 200 steps")
    page.fill("#steps", "200")
    page.keyboard.press("Tab")
    assert "Tuned for" not in page.inner_text("#settings-0")


def test_a_setting_beyond_its_bounds_is_refused_in_words(browser, plain):
    said, words = [], "variance × must be a number from 0 to 16."
    with watched(browser) as page:
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        page.goto(plain)
        choose_mini(page)
        page.evaluate("document.getElementById('settings-0').open = true")
        page.fill("#variance-0", "-2")
        page.keyboard.press("Tab")
        sees(page, "#problem", words)
        assert "variance" not in page.url
        for button, told in (("#run", "#problem"), ("#race", "#race-status")):
            page.click(button)
            sees(page, told, words)
        assert page.get_attribute("#variance-0", "aria-invalid") == "true"
        page.goto(f"{plain}/#model=sudoku-mini&a=ddpm&a.variance=99&b=tweedie&run=1")  # nor is a link believed
        sees(page, "#problem", words)
        page.fill("#variance-0", "2")
        page.keyboard.press("Tab")
        sees(page, "#problem", "")
        run(page)
    assert said == []


def test_a_puzzle_without_a_solution_is_not_the_samplers_fault(page):
    choose_mini(page)
    page.fill("#puzzle", "12.....3........")
    sees(page, "#puzzle-message", "3 clues.")
    contains(page, "#solutions", "No solution")
    page.fill("#speed", "9")
    page.click("#run")
    contains(page, "#verdict-0 b", "the puzzle has no solution")
    assert "Broken" not in page.inner_text("#verdict-0")
    page.fill("#puzzle", "12..34..21.....1")
    contains(page, "#solutions", re.compile("Exactly one solution|No solution|More than one"))


@pytest.mark.parametrize("width", [390, 800, 1024, 1440])
def test_nothing_jumps_while_the_page_opens(browser, plain, width):
    with watched(browser, viewport={"width": width, "height": 900}) as page:
        page.add_init_script(
            """window.shift = 0; new PerformanceObserver((list) => { for (const e of list.getEntries())
            if (!e.hadRecentInput) window.shift += e.value; }).observe({ type: 'layout-shift', buffered: true });"""
        )
        page.goto(plain)
        sees(page, "#puzzle-message", "21 clues.")
        contains(page, "#measured", "Over 2,000 such boards")
        page.fill("#speed", "9")
        contains(page, "#why", "no symbol left")  # the words of the end, too
        page.wait_for_timeout(500)
        assert page.evaluate("shift") < 0.05


def test_an_invalid_edit_is_no_error(browser, plain):
    context = browser.new_context()
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
    page.goto(plain)
    sees(page, "#puzzle-message", "21 clues.")
    page.fill("#puzzle", "11" + "." * 79)
    contains(page, "#puzzle-message", "clues clash")
    for board in ("#editor", "#board-0", "#board-1"):
        assert page.locator(f"{board} .cell.bad").count() == 2  # both are marked
    page.click("#run")
    contains(page, "#problem", "clues clash")
    assert said == []
    context.close()
