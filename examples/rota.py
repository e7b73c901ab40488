"""Weeks of a rota as a table: which shift each of four people has on each of seven days. Writes a .csv.

    python examples/rota.py 20000 rota.csv
    letgo train --data rota.csv --grid 7x4 --valid examples/rota.py:check --out runs/rota

The model sees the rows and nothing else; the rules stand in `check` alone, which counts what it does.
"""

import csv
import random
import sys
from collections.abc import Sequence
from itertools import pairwise, permutations, product

DAYS, PEOPLE = ("mon", "tue", "wed", "thu", "fri", "sat", "sun"), ("ann", "bob", "cem", "dua")
SHIFTS = ("early", "late", "night", "off")


def follows(today: Sequence[str], tomorrow: Sequence[str]) -> bool:
    """After a night comes a night or a day off."""
    return all(a != "night" or b in ("night", "off") for a, b in zip(today, tomorrow, strict=True))


def check(row: list[str]) -> bool:
    """Every shift has one person a day, `follows` holds, and nobody has three nights or no day off."""
    days = [row[i : i + len(PEOPLE)] for i in range(0, len(row), len(PEOPLE))]
    staffed = all(sorted(day) == sorted(SHIFTS) for day in days)
    rested = all(follows(*pair) for pair in pairwise(days))
    fair = all(week.count("night") <= 2 and week.count("off") >= 1 for week in zip(*days, strict=True))
    return staffed and rested and fair


def weeks(count: int, seed: int = 0) -> list[list[str]]:
    """Draw day after day among those that may follow, and keep the weeks that are fair."""
    rng, days = random.Random(seed), list(permutations(SHIFTS))
    after = {day: [d for d in days if follows(day, d)] for day in days}
    found: list[list[str]] = []
    while len(found) < count:
        week = [rng.choice(days)]
        while len(week) < len(DAYS):
            week.append(rng.choice(after[week[-1]]))
        row = [shift for day in week for shift in day]
        if check(row):
            found.append(row)
    return found


if __name__ == "__main__":
    count, path = int(sys.argv[1]), sys.argv[2]
    print(f"drawing {count:,} weeks", flush=True)
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(f"{day}_{person}" for day, person in product(DAYS, PEOPLE))
        writer.writerows(weeks(count))
