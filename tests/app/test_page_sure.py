"""Until it is sure: a hard puzzle tried again and again, each board beside the mark, no rule in view before the end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import choose_mini, run, sees, watched
from servers import serving

ROOT = Path(__file__).parents[2]
EXAMPLES = json.loads((ROOT / "src/letgo/app/static/examples.json").read_text())
MODEL = "sudoku-extreme-looped"


@pytest.fixture(scope="module")
def plain() -> Iterator[str]:
    with serving() as address:
        yield address


BAD = """() => { window.bad = window.drawn = 0; new MutationObserver(() => { drawn += 1;
    if (!document.querySelector('.attempts .verdict b')) bad += document.querySelectorAll('.attempts .bad').length;
  }).observe(document.getElementById('until'), { subtree: true, childList: true, attributes: true }); }"""


def tries(page: Any) -> list[str]:
    return page.locator(".tries li").all_inner_texts()


@pytest.mark.browser
def test_the_network_says_how_sure_it_is_and_stops_when_it_is(browser, plain):
    import letgo

    solver = letgo.load(MODEL)
    [example] = [one for one in EXAMPLES if one.get("sure")]
    mark = f"−{-solver.sure:.2f}"
    [answer] = solver.solve([example["puzzle"]], tries=example["sure"], verify=False, seed=example["seed"])
    with watched(browser, reduced_motion="reduce") as page:
        page.goto(plain)
        sees(page, "#puzzle-message", "21 clues.")
        assert page.locator("#until").is_hidden()  # sudoku-baseline has no mark
        page.select_option("#chosen", example["title"])
        sees(page, "#sure-status", re.compile(rf"^Sure after {answer.tries} tries?\.$"))
        told = tries(page)
        assert len(told) == answer.tries > 2
        for number, words in enumerate(told[:-1], 1):
            doubt = r"it doubts this board, most of all the \d at r\dc\d\."
            assert re.fullmatch(rf"Try {number}\s+−\d+\.\d\d, below its mark {mark}: {doubt}", words), words
        assert re.fullmatch(
            rf"Try {answer.tries}\s+−0\.\d\d, above its mark {mark}: it is sure of this board, and stops\.", told[-1]
        )
        verdict = page.inner_text(".attempts .verdict")
        assert f"Sure at try {answer.tries}" in verdict
        assert "The rules are looked at only now: every rule holds." in verdict
        assert f"{answer.tries} tries, {answer.calls} network calls" in verdict
        board = re.sub(r"row \d: |[ ;]", "", page.locator(".attempts .board-frame p").text_content())
        assert board == answer.board
        assert "it was sure of a wrong board in 0" in page.inner_text("#measured")

        page.click(".tries li:first-child button")  # a board that it doubted, and where
        warm = page.locator(".attempts .cell:is(.h3, .h4, .h5, .h6, .h7)").count()
        assert warm > 0
        assert "the board of try 1" in page.inner_text(".attempts .now")
        page.click(".tries li:last-child button")
        assert page.locator(".attempts .cell:is(.h3, .h4, .h5, .h6, .h7)").count() == 0

        assert f"sure={example['sure']}" in page.url
        linked = page.url
        page.fill("#seed", "1")
        assert page.locator(".attempts").count() == 0  # it belonged to another seed
        page.goto("about:blank")
        page.goto(linked)
        sees(page, "#sure-status", re.compile(rf"^Sure after {answer.tries} tries?\.$"))
        assert tries(page) == told


@pytest.mark.browser
def test_no_rule_is_in_view_while_it_tries_and_it_can_be_stopped(browser, plain):
    [example] = [one for one in EXAMPLES if one.get("sure")]
    with watched(browser) as page:  # at its own pace
        page.goto(plain)
        sees(page, "#puzzle-message", "21 clues.")
        page.select_option("#chosen", example["title"])
        page.evaluate(BAD)
        page.locator(".tries li").first.wait_for()
        assert page.inner_text("#sure-start") == "Stop"
        page.click("#sure-start")
        sees(page, "#sure-status", "Stopped.")
        assert page.evaluate("drawn > 20 && bad === 0")  # among them a whole board that is broken, and nobody says so
        assert page.inner_text("#sure-start") == "Try until sure"
        page.fill("#sure-tries", "99")
        page.click("#sure-start")
        sees(page, "#sure-status", "Tries must be a whole number from 1 to 32.")
        page.fill("#sure-tries", "1")
        page.click("#sure-start")
        sees(page, ".attempts .verdict b", re.compile(r"Not sure of its board \(−\d+\.\d\d\)"))
        assert "break a rule" in page.inner_text(".attempts .verdict")
        assert page.locator(".attempts .bad").count() > 0  # now they are looked at
        choose_mini(page)
        assert page.locator("#until").is_hidden()


@pytest.mark.browser
def test_an_example_appears_when_its_model_is_there(browser, address, plain, folders):
    masked = next(one for one in EXAMPLES if one["sides"][0].get("rule") == "ancestral")
    with watched(browser, reduced_motion="reduce") as page:
        page.route("**/examples.json", lambda route: route.fulfill(json=[{**masked, "model": "not there"}]))
        page.goto(plain)
        sees(page, "#puzzle-message", "21 clues.")
        assert page.locator("#chosen option").count() == 1
    with watched(browser, reduced_motion="reduce") as page:
        own = {**masked, "model": str(folders["sudoku-d3pm"]), "puzzle": None, "shares": None}
        page.route("**/examples.json", lambda route: route.fulfill(json=[own]))
        page.goto(address)
        page.locator("#editor svg").wait_for()
        page.select_option("#chosen", masked["title"])
        for side in (0, 1):
            sees(page, f"#verdict-{side} b", re.compile("A valid board|Broken"))
        assert [page.input_value(f"#rule-{side}") for side in (0, 1)] == ["ancestral", "remask"]
        assert page.inner_text("#measured").strip() == ""  # nothing measured, nothing claimed
        run(page)


def test_every_share_beside_an_example_was_measured():
    """A model whose results were measured anew: `python tools/record_story.py --only TITLE`."""
    for example in EXAMPLES:
        for side, share in zip(example["sides"], example.get("shares", ()), strict=False):
            path = ROOT / "results" / f"{side.get('model', example['model'])}.json"
            keys = ("validity", "believed_wrong") if example.get("sure") else ("validity",)
            known = [r[key] for r in json.loads(path.read_text()) for key in keys if r["regime"] == example["regime"]]
            assert any((one["value"], one["n"]) == (share["value"], share["n"]) for one in known), example["title"]
