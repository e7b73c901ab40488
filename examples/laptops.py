"""A space of configurations as a table: which options of a laptop are sold together. Writes a .csv of words.

    python examples/laptops.py 3000 laptops.csv
    letgo train --data laptops.csv --valid examples/laptops.py:check --out runs/laptops

A catalogue has such rows and rarely the rules behind them.
"""

import csv
import random
import sys

OPTIONS = {
    "size": ("13in", "14in", "16in"),
    "cpu": ("u5", "u7", "u9"),
    "gpu": ("integrated", "rtx50", "rtx70"),
    "memory": ("16GB", "32GB", "64GB"),
    "disk": ("512GB", "1TB", "2TB"),
    "screen": ("ips", "oled", "touch"),
    "charger": ("65W", "100W", "180W"),
    "system": ("linux", "windows", "none"),
}


def check(row: list[str]) -> bool:
    """Seven rules that a buyer meets as `not available with`."""
    size, cpu, gpu, memory, disk, screen, charger, system = row
    known = all(value in values for value, values in zip(row, OPTIONS.values(), strict=True))
    small = size != "13in" or (gpu == "integrated" and cpu != "u9")
    large = gpu != "rtx70" or (size == "16in" and memory != "16GB")
    power = charger == {"integrated": "65W", "rtx50": "100W", "rtx70": "180W"}[gpu] if gpu in OPTIONS["gpu"] else False
    fast = cpu != "u9" or disk != "512GB"
    touch = screen != "touch" or (system == "windows" and size != "16in")
    cheap = cpu != "u5" or (memory != "64GB" and disk != "2TB")
    return known and small and large and power and fast and touch and cheap


def rows(count: int, seed: int = 0) -> list[list[str]]:
    rng, found = random.Random(seed), []
    while len(found) < count:
        row = [rng.choice(values) for values in OPTIONS.values()]
        if check(row):
            found.append(row)
    return found


if __name__ == "__main__":
    with open(sys.argv[2], "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(OPTIONS)
        writer.writerows(rows(int(sys.argv[1])))
