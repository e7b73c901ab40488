"""Until it is sure: a hard puzzle tried again and again, each board beside the mark, no rule in view before the end."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pages import choose_mini, run, sees, watched

ROOT = Path(__file__).parents[2]
EXAMPLES = json.loads((ROOT / "src/letgo/app/static/examples.json").read_text())
MODEL = "sudoku-extreme-looped"
NUGGET = ".......39.....1..5..3.5.8....8.9...6.7...2...1..4.......9.8..5..2....6..4..7....."  # takes about seven tries


BAD = """() => { window.bad = window.drawn = 0; new MutationObserver(() => { drawn += 1;
    if (!document.querySelector('.attempts .verdict b')) bad += document.querySelectorAll('.attempts .bad').length;
  }).observe(document.getElementById('until'), { subtree: true, childList: true, attributes: true }); }"""


@pytest.fixture(scope="module")
def hard() -> tuple[str, Any]:
    """A link to a puzzle and a seed that take several tries on this machine, and the answer that the library gives."""
    import letgo

    solver = letgo.load(MODEL)
    for seed in range(20):
        [answer] = solver.solve([NUGGET], tries=24, verify=False, seed=seed)
        if 4 <= answer.tries < 24:
            return f"#model={MODEL}&puzzle={NUGGET}&seed={seed}&sure=24", answer
    raise AssertionError("twenty seeds, and none takes four tries")


def tries(page: Any) -> list[str]:
    return page.locator(".tries li").all_inner_texts()


@pytest.mark.browser
def test_the_network_says_how_sure_it_is_and_stops_when_it_is(browser, plain, hard):
    import letgo

    link, answer = hard
    mark = f"−{-letgo.load(MODEL).sure_early:.2f}"
    with watched(browser, reduced_motion="reduce") as page:
        page.goto(f"{plain}/{link}")
        sees(page, "#sure-status", f"Sure after {answer.tries} tries.")
        told = tries(page)
        assert len(told) == answer.tries
        for number, words in enumerate(told[:-1], 1):
            doubt = r"it doubts this board, most of all the \d at r\dc\d\."
            assert re.fullmatch(rf"Try {number}\s+−\d+\.\d\d, below its mark {mark}: {doubt}", words), words
        sure = rf"−0\.\d\d, above its mark {mark}: it is sure of this board, and stops\."
        assert re.fullmatch(rf"Try {answer.tries}\s+{sure}", told[-1])
        verdict = page.inner_text(".attempts .verdict")
        assert f"Sure at try {answer.tries}" in verdict
        assert "The rules are looked at only now: every rule holds." in verdict
        assert f"{answer.tries} tries, {answer.calls} network calls" in verdict
        assert re.sub(r"row \d: |[ ;]", "", page.locator(".attempts .board-frame p").text_content()) == answer.board

        warm = ".attempts .cell:is(.h3, .h4, .h5, .h6, .h7)"
        assert page.locator(warm).count() == 0
        page.click(".tries li:first-child button")  # a board that it doubted, and where
        assert "the board of try 1" in page.inner_text(".attempts .now")
        assert page.locator(warm).count() > 0
        page.fill("#seed", "77")
        assert page.locator(".attempts").count() == 0  # it belonged to another seed
        assert "sure=" not in page.url


@pytest.mark.browser
def test_the_chosen_one_is_solved_from_the_list_and_from_its_link(browser, plain):
    [example] = [one for one in EXAMPLES if one.get("sure")]
    with watched(browser, reduced_motion="reduce") as page:
        page.goto(plain)
        sees(page, "#puzzle-message", "21 clues.")
        assert page.locator("#until").is_hidden()  # sudoku-baseline has no mark
        page.select_option("#chosen", example["title"])
        sees(page, "#sure-status", re.compile(r"^Sure after \d+ (try|tries)\.$"))
        assert "every rule holds" in page.inner_text(".attempts .verdict")
        solved = str(example["shares"][0]["value"])[1:]  # all its digits: .99875
        assert f"solves {solved}; it was never sure of a wrong board." in page.inner_text("#measured")
        assert f"sure={example['sure']}" in page.url
        linked, told = page.url, tries(page)
        page.goto("about:blank")
        page.goto(linked)
        sees(page, "#sure-status", re.compile(r"^Sure after \d+ (try|tries)\.$"))
        assert tries(page) == told


@pytest.mark.browser
def test_no_rule_is_in_view_while_it_tries_and_it_can_be_stopped(browser, plain, hard):
    link, _ = hard
    with watched(browser) as page:  # at its own pace
        page.goto(f"{plain}/{link}")
        page.locator(".attempts").wait_for()
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
            reports = [r for r in json.loads(path.read_text()) if r["regime"] == example["regime"]]
            known = [r[key] for r in reports for key in keys if key in r]
            assert any((one["value"], one["n"]) == (share["value"], share["n"]) for one in known), example["title"]
