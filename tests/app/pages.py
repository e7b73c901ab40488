"""A visitor in a real Chromium, and what one does on the page."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
PATIENCE = int(os.environ.get("LETGO_PATIENCE_MS", "120000"))  # only ends a test that would otherwise hang


class watched:
    """A fresh visitor's page; an error in the console fails the test."""

    def __init__(self, browser: Any, **options: Any):
        self.context = browser.new_context(accept_downloads=True, **options)

    def __enter__(self) -> Any:
        self.page, self.errors = self.context.new_page(), []
        self.page.set_default_timeout(PATIENCE)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda m: self.errors.append(m.text) if m.type == "error" else None)
        return self.page

    def __exit__(self, *failure: Any) -> None:
        self.context.close()
        refused = "Failed to load resource: the server responded with a status of 4"  # the browser's own note
        assert [error for error in self.errors if not error.startswith(refused)] == []


def sees(page: Any, selector: str, text: str | re.Pattern[str]) -> None:
    from playwright.sync_api import expect

    expect(page.locator(selector)).to_have_text(text, timeout=PATIENCE)


def choose_mini(page: Any) -> None:
    page.locator("#editor svg").wait_for()
    page.select_option("#task", "Sudoku 4x4")
    page.select_option("#model", "sudoku-mini")
    sees(page, "#puzzle-message", "4 clues.")


def run(page: Any) -> None:
    page.fill("#speed", "9")
    page.click("#run")
    for side in (0, 1):
        sees(page, f"#verdict-{side} b", re.compile("A valid board|Broken"))


def boards(page: Any) -> list[str]:
    return [page.locator(f"#board-{side} p").text_content() for side in (0, 1)]


def scrub(page: Any, step: int) -> None:
    page.fill("#scrub", str(step))
    sees(page, "#where", re.compile(rf"step {step} of "))


COLOURS = ["color-contrast", "link-in-text-block"]  # what axe has to say of colours alone


def clean(page: Any, where: str) -> None:
    """Axe has nothing to say of what is on show: in light, and of the colours in the dark."""
    axe = pytest.importorskip("axe_playwright_python.base", reason="pip install axe-playwright-python")
    if not page.evaluate("'axe' in window"):
        page.evaluate(axe.AXE_SCRIPT)
    for scheme, rules in (("light", None), ("dark", COLOURS)):
        page.emulate_media(color_scheme=scheme)
        options = {"resultTypes": ["violations"]} | ({"runOnly": rules} if rules else {})
        found = page.evaluate("async (options) => (await axe.run(options)).violations", options)
        assert [(where, scheme, one["id"], one["nodes"][0]["html"][:120]) for one in found] == []
    page.emulate_media(color_scheme="light")
