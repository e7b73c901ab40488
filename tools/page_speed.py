"""How soon the page is there and how smoothly it plays, in Chromium.

    taskset -c 1 letgo app --port 8077          # the server held to one core, in another window
    python tools/page_speed.py http://127.0.0.1:8077 [--visits 5]

Each visit is a fresh one. It notes the first paint, the bytes on the wire until the models are there, and the frames a
second that Chromium draws while the recorded story plays (its first four seconds); then it presses Run and notes when
the first live step is on show. One line of JSON: medians, the extremes, and the load average before the first visit,
because on a busy machine the figures say little. Needs the extra `dev` and Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
from itertools import pairwise
from statistics import median
from typing import Any

from playwright.sync_api import Browser, sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
COUNT = """window.frames_ = []; (function tick(now) { frames_.push(now); requestAnimationFrame(tick); })();"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"
WIRE = """[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
    .reduce((sum, entry) => sum + entry.transferSize, 0)"""
PLAYED = 4.0  # seconds of the story whose frames are counted
FIRST_STEP = """() => new Promise((done) => { const start = performance.now(), where = document.getElementById('where');
    new MutationObserver(() => { if (/^step 1 of/.test(where.textContent)) done((performance.now() - start) / 1000); })
        .observe(where, { childList: true, characterData: true, subtree: true });
    document.getElementById('run').click(); })"""


def visit(browser: Browser, address: str) -> dict[str, float]:
    """One fresh visitor at a desk: 1440 by 1000 points."""
    context = browser.new_context(viewport={"width": 1440, "height": 1000})
    page = context.new_page()
    page.add_init_script(COUNT)
    page.goto(address)
    page.locator("#play.playing").wait_for()
    begun = page.evaluate("performance.now()")
    page.wait_for_timeout(1000 * PLAYED)
    drawn = page.evaluate(
        "([from, to]) => frames_.filter((at) => at >= from && at < to)", [begun, begun + 1000 * PLAYED]
    )
    page.locator("#task:enabled").wait_for()
    told = {
        "first_paint_s": page.evaluate(PAINT),
        "bytes": page.evaluate(WIRE),
        "frames_per_second": (len(drawn) - 1) / (drawn[-1] - drawn[0]) * 1000,
        "longest_frame_ms": max(b - a for a, b in pairwise(drawn)),
        "first_step_s": page.evaluate(FIRST_STEP),
    }
    context.close()
    return told


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("--visits", type=int, default=5)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=FLAGS)
        visits = [visit(browser, options.address) for _ in range(options.visits)]
        version = browser.version
        browser.close()
    told: dict[str, Any] = {"visits": options.visits, "load_before": round(load, 2), "chromium": version}
    for name in visits[0]:
        values = [one[name] for one in visits]
        told[name] = {"median": round(median(values), 3), "least": round(min(values), 3), "most": round(max(values), 3)}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
