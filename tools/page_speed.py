"""How soon the page is painted, and its first step shown after Run, in Chromium. Needs playwright and chromium.

letgo app &
python tools/page_speed.py http://127.0.0.1:8077/ --repeat 5
"""

import argparse
import shutil
import statistics
import time

from playwright.sync_api import sync_playwright

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("address")
parser.add_argument("--repeat", type=int, default=5)
options = parser.parse_args()
PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"

with sync_playwright() as play:
    flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
    paints, steps = [], []
    for _ in range(options.repeat):
        page = browser.new_page()
        page.goto(options.address)
        page.locator("#editor svg").wait_for()
        paints.append(page.evaluate(PAINT))
        started = time.perf_counter()
        page.click("#run")
        while page.inner_text("#where").startswith("step 0"):
            time.sleep(0.005)
        steps.append(time.perf_counter() - started)
        page.close()
    browser.close()
for name, seconds in (("first paint", paints), ("first step after Run", steps)):
    print(f"{name:22} median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s of {len(seconds)}")
