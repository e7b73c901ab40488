"""Cells that are images: what the network sees and proposes, and what the decoder reads of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pages import boards, clean, run, scrub, sees, watched
from servers import serving

pytestmark = pytest.mark.browser
SHOWN = """async (e) => { const shot = new Image(); shot.src = e.getAttribute('href'); await shot.decode();
const pen = Object.assign(document.createElement('canvas'), { width: shot.width, height: shot.height });
const context = pen.getContext('2d'); context.drawImage(shot, 0, 0);
return [...context.getImageData(0, 0, shot.width, shot.height).data].filter((_, i) => i % 4 === 0); }"""


@pytest.fixture(scope="module")
def digits(pictured: str) -> Iterator[str]:
    """A server with a model of images."""
    with serving(models=[pictured]) as address:
        yield address


def opened(page: Any, address: str, hash: str = "") -> None:
    page.goto(address + hash)
    page.locator("#images-label").wait_for()
    sees(page, "#puzzle-message", "4 clues.")


def shown(page: Any, side: int = 0) -> Any:
    """The shades of every cell's image on a board, as the browser reads the picture."""
    import torch

    shades = page.locator(f"#board-{side} image").evaluate(SHOWN)
    return torch.tensor(shades).view(4, 11, 4, 11).transpose(1, 2)[:, :, 1:9, 1:9].reshape(16, 8, 8) / 255


def test_cells_that_are_images_are_shown_as_pictures(browser, digits, pictured):
    """The pictures hold the pixels of the library's own clues, proposals and states."""
    import torch

    import letgo

    with watched(browser, reduced_motion="reduce") as page:
        opened(page, digits)
        solver = letgo.load(pictured)
        puzzle = solver.task.parse(page.input_value("#puzzle"))
        clues = solver.clues(puzzle)

        def same(cells: Any) -> None:
            truth = (clues.pin(cells)[0].view(16, 8, 8) + 1).clamp(0, 2) / 2
            torch.testing.assert_close(shown(page), truth, atol=0.04, rtol=0)  # 16 shades

        page.locator("#board-0 .picture").wait_for()
        same(torch.full_like(clues.values, -1.0))  # before a run there are the given images
        page.fill("#steps", "5")
        run(page)
        scrub(page, 4)
        *_, fourth, _last = solver.trajectory(puzzle, "ddpm", 5, 0)
        same(fourth.x0_hat)
        page.check("input[value=x]", force=True)
        same(fourth.x)
        page.check("input[value=both]", force=True)
        assert page.locator("#board-1 .picture").is_visible()
        page.check("input[value=marks]", force=True)
        assert page.locator("#board-1 .picture").is_hidden()


def test_symbols_can_be_shown_instead(browser, digits):
    """The choice is part of the link; who points at an image is told its symbol, and words are there without it."""
    with watched(browser, reduced_motion="reduce") as page:
        opened(page, digits)
        page.fill("#steps", "5")
        run(page)
        words = boards(page)
        assert re.fullmatch(r"row 1: [1-4 ]+; row 2: [1-4 ]+; row 3: [1-4 ]+; row 4: [1-4 ]+", words[0])
        symbol = page.locator("#board-0 .cell .sym").first
        corner = symbol.get_attribute("x")
        cell = page.locator("#board-0 .cell:not(.clue)").first
        cell.hover()
        assert re.fullmatch(r"read as [1-4], (1?\.\d+)", cell.locator("title").text_content())
        page.locator("#board-0 .cell.clue").first.hover()
        assert re.fullmatch("clue [1-4]", page.locator("#board-0 .cell.clue title").first.text_content())

        page.uncheck("#images")
        assert page.locator(".side .picture:visible").count() == 0
        assert symbol.get_attribute("x") == "20"
        assert corner != "20"
        assert boards(page) == words
        cell.hover()
        assert cell.locator("title").text_content() == ""
        hash = page.evaluate("location.hash")
        assert "cells=symbols" in hash
        page.check("#images")
        assert "cells=" not in page.evaluate("location.hash")
        assert page.locator(".side .picture:visible").count() == 2

    with watched(browser, reduced_motion="reduce") as page:
        opened(page, digits, hash)
        assert not page.is_checked("#images")
        assert page.locator("#board-0 .picture:visible").count() == 0
        page.select_option("#model", "sudoku-mini")
        assert page.locator("#images-label").is_hidden()


def test_a_side_without_images_has_symbols(browser, digits, pictured):
    with watched(browser, reduced_motion="reduce") as page:
        opened(page, digits)
        page.select_option("#model-1", "sudoku-mini")
        page.fill("#steps", "5")
        page.locator("#board-0 .picture").wait_for()
        assert page.locator("#board-1 .picture:visible").count() == 0  # it is given no images
        run(page)
        assert page.locator("#board-0 .picture").is_visible()
        assert page.locator("#board-1 .picture:visible").count() == 0
        page.select_option("#model", "sudoku-mini")
        page.select_option("#model-1", pictured)
        run(page)
        assert page.locator("#images-label").is_visible()
        assert page.locator("#board-0 .picture:visible").count() == 0
        assert page.locator("#board-1 .picture").is_visible()


def test_a_saved_step_has_the_pictures_on_show(browser, digits):
    with watched(browser, reduced_motion="reduce") as page:
        opened(page, digits)
        page.fill("#steps", "5")
        run(page)
        for cells, count in (("images", 2), ("symbols", 0)):
            page.set_checked("#images", cells == "images")
            with page.expect_download() as saved:
                page.click("#save-frame")
            drawing = Path(saved.value.path()).read_text()
            seen = [f for f in re.findall(r"<g[^>]*>(?=<mask)", drawing) if 'display="none"' not in f]
            assert len(seen) == count
        assert drawing.count("data:image/png;base64,") == 2


@pytest.mark.parametrize("width", [1280, 820, 390])
def test_nothing_sticks_out_and_axe_finds_nothing(browser, digits, width):
    with watched(browser, reduced_motion="reduce", viewport={"width": width, "height": 900}) as page:
        opened(page, digits)
        clean(page, "puzzle")
        page.fill("#steps", "5")
        run(page)
        for view in ("p", "x"):
            page.check(f"input[value={view}]", force=True)
            clean(page, view)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.focus("#images")
        page.keyboard.press("Space")
        assert page.locator(".side .picture:visible").count() == 0
        clean(page, "symbols")
