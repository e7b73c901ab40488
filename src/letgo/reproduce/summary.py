"""The top of the page: what was run, what reproduces, what does not, and how to read the rest."""

from __future__ import annotations

from collections.abc import Callable

from letgo.paper import OBJECTIVES, RULES, STEPS, TABLE1, TABLE7, Cell, Column
from letgo.reproduce.compare import Result, steps_span

Find = Callable[[Cell], Result | None]

TITLE = """# Results

Made by `letgo reproduce` from the files in `results/`; do not edit, run `letgo reproduce page`."""

WORDS = """\
**Words.** DDPM, Euler and EM (Euler-Maruyama) are the standard samplers; EM decay is EM with much noise at first,
which decays to none; Tweedie is Tweedie reprojection. *Baseline* is the usual training on noised boards,
*self-correction* trains on noised proposals of the network itself as well. Sudoku's *medium* has 27 to 53 clues,
*hard* 0 to 26; *random* has 14 of 49 Latin cells or 7 of 14 queens given at random places, *generation* nothing.
*pass@10* is the share of puzzles of which one of ten samples is right. *valid* boards keep every rule and every
clue."""

READING = f"""\
**Reading an entry.** Intervals are 95% (Wilson for rates, normal for means) over n instances that no training saw,
but for `sudoku-mini`: only 288 boards of 4x4 exist, its training saw all of them, and only the clues are drawn anew.
With several training seeds they pool the instances (of draws from one file, as many as can be expected to differ) and
hold for these trained models; ± is the standard deviation between seeds, which tells what another one may give.
"Steps" are optimiser steps of the run, {STEPS:,} in the paper, whose entries are means of three seeds. A **bold**
entry is a miss, and comes with a sentence why: more than .05 below the paper where the run has a million steps or
more; where it has fewer, below the paper's figure at 200,000 steps by more than its spread between seeds (Table 8,
which samples with 500 steps; a cell with 200 need not exceed the paper's own), and more than .05 below the paper
where Table 8 is silent. Where lower is better (Tables 12 and 13), a miss exceeds the paper's value by more than half
of it, its spread between seeds and .05, half of its last digit, together; in Tables 14 and 15 it is more than 5
points below, in the latter of the total. Rows under a model's own name are other recipes, or with `-plain` the
paper's at its constant rate where the rows above them have a falling one (14-queens and, self-corrected,
Sudoku-Extreme; Sudoku and graphs have a falling rate and no such rows): never a miss, and no part of the ordering.

**Repeating one.** The command of every figure is folded away below its table. Seed 0 of most models is shipped, in
fp16; some of its figures were measured before rounding (`weights` in the reports says so; `weights_sha256` is the
shipped file's all the same). `letgo reproduce` shows what is there and measures what is missing; `--force` measures
again, but for `table5`, which collects what `letgo tune` chose. Commands that name `runs/` need that run first:
`results/training.json` has the commands that made it. Weights of seeds 1 and 2 are not in this repository, so their
figures take a training to repeat. `--data maze-muon`, `latin.npz` and their like are what `python tools/pack.py`
writes; `sudoku-extreme` is its pack of the stand-in, or a folder with the data set's own files,
whose puzzles differ."""


def summary(find: Find, missed: Callable[[Result], bool]) -> list[str]:
    """The title and, counted from Table 1, what holds and what does not."""
    found = [one for cell in TABLE1.cells() if (one := find(cell)) is not None]
    if not found:
        return [TITLE, "Nothing of Table 1 is measured yet."]
    columns = [column for column in TABLE1.columns if any(one.cell.column == column for one in found)]
    kept = [column for column in columns if ordered(find, column)]
    short = [one for one in found if missed(one)]
    parts = [
        TITLE,
        f"**What was run.** {len(columns)} of {len(TABLE1.columns)} columns of Table 1, {len(found)} of "
        f"{len(list(TABLE1.cells()))} entries, with up to {max(len(one.reports) for one in found)} training seeds of "
        f"{steps_span([steps for one in found for steps in one.all_steps])} steps; the paper's have {STEPS:,}.",
        f"**What reproduces.** In {len(kept)} of these {len(columns)} columns both of the paper's claims hold: without "
        "self-correction Tweedie reprojection is above DDPM, and self-correction lifts DDPM. "
        f"{len(found) - len(short)} of the {len(found)} entries are no miss, by the rule below.",
    ]
    return [*parts, *against(find, short)]


def against(find: Find, short: list[Result]) -> list[str]:
    """What does not hold, if anything."""
    said = [f"{len(short)} entries are misses, in bold, with the reason as far as one is known."] if short else []
    rows = [f"{one.cell.column.title} ({one.cell.objective})" for one in short]
    if whole := [row for row in dict.fromkeys(rows) if rows.count(row) == len(RULES)]:
        said.append(f"Every sampler misses in {'; '.join(whole)}.")
    if fallen := [column.title for column in TABLE1.columns if falls(find, column)]:
        said.append(
            "Self-correction and Tweedie reprojection do not add up everywhere: together they are more than .01 below "
            f"Tweedie reprojection alone in {'; '.join(fallen)}."
        )
    mazes = find(Cell(TABLE7, TABLE7.columns[0], "tweedie", "self-correction"))
    if mazes is not None and mazes.value < 0.01:
        said.append("Mazes by the paper's recipe are not solved (Table 7 says why).")
    return [f"**What does not.** {' '.join(said)}"] if said else []


def pair(find: Find, column: Column, rule: str) -> tuple[Result | None, Result | None]:
    """Without self-correction and with it."""
    without, corrected = (find(Cell(TABLE1, column, rule, objective)) for objective in OBJECTIVES)
    return without, corrected


def ordered(find: Find, column: Column) -> bool:
    (ddpm, corrected), (tweedie, _) = pair(find, column, "ddpm"), pair(find, column, "tweedie")
    if ddpm is None or corrected is None or tweedie is None:
        return False
    return ddpm.value < min(corrected.value, tweedie.value)


def falls(find: Find, column: Column) -> bool:
    without, corrected = pair(find, column, "tweedie")
    return without is not None and corrected is not None and corrected.value < without.value - 0.01
