"""docs/results.md and a page for each experiment, made of the JSON files; prose outside of the markers is kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from letgo.analysis.drawing import available
from letgo.data.files import write_atomically
from letgo.errors import LetgoError, blaming
from letgo.reproduce.experiments import EXPERIMENTS, show_misses
from letgo.reproduce.measure import QUICK_COUNT
from letgo.reproduce.paper import D3PM, DECODERS, OBJECTIVES, RULES, TABLE1, TABLE1_D3PM, TABLES, Cell
from letgo.reproduce.results import RULE_NAMES, Result, Results, as_table, share
from letgo.reproduce.store import Store

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
EMPTY = f"# Results\n\n{BEGIN}\n{END}\n"
DIGEST = "<!-- made from results/*.json, sha256 {}; `letgo reproduce page` writes it anew -->"
QUICK = (
    f"A quick look, not a reproduction: DDPM and Tweedie reprojection only, pass@1, one seed, n = {QUICK_COUNT} where "
    "an entry says nothing else. Mazes are left out unless asked for (`table7`, or `--tasks maze`), Sudoku-Extreme "
    "without its file (`--data`). With n = 16 an interval spans up to .46; compare with nothing."
)
BLAME = "restore the file, or measure again; --debug shows where"
EQUAL = 0.005  # apart by less, the one is called neither above nor below the other


def text_of(results: Results, names: Iterable[str]) -> str:
    """Return some experiments, for the terminal."""
    shown = [f"## {e.title}\n\n{e.show(results)}" for e in EXPERIMENTS.values() if e.name in names]
    return "\n\n".join([QUICK, *shown] if results.quick else shown)


def commands(results: Results, names: Iterable[str]) -> list[str]:
    """Return what repeats the reports behind some experiments."""
    text_of(results, names)
    return list(dict.fromkeys(report["command"] for report in results.used.values() if "command" in report))


def front(results: Results) -> str:
    """Return what docs/results.md shows itself: Table 1 in brief, and where the rest is."""
    rows = []
    for e in EXPERIMENTS.values():
        cells = list(TABLES[e.name].cells()) if e.name in TABLES else []
        measured = [one for cell in cells if (one := results.result(cell))]
        misses = sum(results.miss(one) is not None for one in measured)
        counts = [f"{len(measured)} of {len(cells)}", str(misses)] if cells else ["", ""]
        rows.append([f"[{e.title}](results/{e.name}.md)", *counts, f"`letgo reproduce {e.name} --commands`"])
    parts = [
        *([QUICK] if results.quick else []),
        as_table(["page", "entries measured", "misses", "its commands"], rows),
        "## Table 1: success rates\n\nOurs, and the paper's in brackets; intervals, n, seeds and steps: "
        "[Table 1](results/table1.md).",
        *brief(results),
        "![Validity by rule, ours with intervals beside the paper's](assets/table1.svg)",
        orderings(results),
        strictly(results),
        *show_misses(results, list(TABLE1.cells())),
    ]
    return "\n\n".join(parts)


def brief(results: Results) -> list[str]:
    """Return Table 1 without intervals, and below it the other recipes and the discrete reference."""

    def entry(cell: Cell) -> str:
        found = results.result(cell)
        own = "-" if found is None else f"{found.value:.3f}"
        return f"{f'**{own}**' if results.miss(found) else own} ({cell.paper.value:.2f})"

    parts, others, samplers = [], [], [RULE_NAMES[rule] for rule in RULES]
    for objective in OBJECTIVES:
        rows = []
        for column in TABLE1.columns:
            for recipe in ("", *column.also):
                cells = [Cell(TABLE1, column, rule, objective, recipe) for rule in RULES]
                if not recipe:
                    rows.append([column.title, *map(entry, cells)])
                elif any(map(results.result, cells)):
                    others.append([column.title, f"`{cells[0].model}`", *map(entry, cells)])
        parts.append(as_table([objective.capitalize(), *samplers], rows))
    parts += [as_table(["Other recipes", "model", *samplers], others)] if others else []
    rows = []
    for column in TABLE1_D3PM.columns:
        rows.append([column.title, *(entry(Cell(TABLE1_D3PM, column, rule, D3PM)) for rule in DECODERS)])
    return [*parts, as_table(["Discrete diffusion (D3PM)", *(RULE_NAMES[rule] for rule in DECODERS)], rows)]


def above(upper: Result | None, lower: Result | None) -> str:
    """Return whether the one is above the other, and the training seeds for which the opposite holds."""
    if upper is None or lower is None:
        return "-"
    apart = upper.value - lower.value
    verdict = "about equal" if abs(apart) < EQUAL else "yes" if apart > 0 else "**no**"
    text = f"{verdict}: {lower.value:.3f} -> {upper.value:.3f}"
    for seed in sorted(lower.values.keys() & upper.values.keys()) if abs(apart) >= EQUAL else ():
        a, b = lower.values[seed], upper.values[seed]
        text += f", but seed {seed}: {a:.3f} -> {b:.3f}" if abs(b - a) >= EQUAL and (b - a) * apart < 0 else ""
    return text


def orderings(results: Results) -> str:
    """Compare the paper's two claims, column by column, and what both cures do together."""
    rows = []
    for column in TABLE1.columns:
        cells = [Cell(TABLE1, column, rule, objective) for rule in ("ddpm", "tweedie") for objective in OBJECTIVES]
        ddpm, corrected, tweedie, both = map(results.result, cells)
        last = f"{above(both, tweedie)} ({cells[2].paper.value:.2f} -> {cells[3].paper.value:.2f})"
        rows.append([column.title, above(tweedie, ddpm), above(corrected, ddpm), last])
    head = ["column", "Tweedie above DDPM, baseline", "self-correction lifts DDPM"]
    head.append("self-correction lifts Tweedie (the paper's)")
    text = "The paper's ordering; the last column is no claim of the paper's, and not true of all its columns:"
    return f"{text}\n\n{as_table(head, rows)}"


def strictly(results: Results) -> str:
    """Return how many entries of Table 1 differ by the spread of seeds alone, and which of them no mark names."""
    cells = list(TABLE1.cells())
    found = [one for one in map(results.result, cells) if one and one.std is not None]
    below, above = ([one for one in found if one.apart == sign] for sign in (-1, 1))
    quiet = [one.cell for one in below if not results.miss(one)]
    names = "; ".join(f"{cell.column.title}, {cell.objective}, {RULE_NAMES[cell.rule]}" for cell in quiet)
    return (
        "**Counted strictly**, by two standard errors of the mean over seeds (ours and the paper's together, and half "
        f"of its last digit), of {len(cells)} entries {len(below)} lie below the paper's and {len(above)} above. Of "
        f"those below, {len(quiet)} are within the margin of a miss and so not bold{f': {names}' if names else ''}."
    )


def readme_table(results: Results) -> str:
    """Return every sampler with both trainings on Sudoku with 21 clues, ours and the paper's."""
    rows = []
    for rule in RULES:
        row = [RULE_NAMES[rule]]
        for cell in (Cell(TABLE1, TABLE1.columns[0], rule, objective) for objective in OBJECTIVES):
            found = results.result(cell)
            own = share(found.as_dict()) if found else "-"
            row += [own + (f" ± {found.std:.3f}" if found and found.std else ""), f"{cell.paper.value:.2f}"]
        rows.append(row)
    return as_table(["sampler", "`sudoku-baseline`", "paper", "`sudoku` (self-corrected)", "paper"], rows)


def _filled(path: Path, store: Store, text: str) -> str:
    """Return a page with its generated part anew."""
    page = path.read_text(encoding="utf-8") if path.is_file() else EMPTY
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise LetgoError(f"{path}: no {BEGIN} and {END} around what to replace; add them or move it away")
    return f"{before}{BEGIN}\n{DIGEST.format(store.digest())}\n\n{text}\n{END}{after}"


def write_pages(results: Results, page: Path, readme: Path | None = None) -> Iterator[Path]:
    """Write the page, those of all experiments beside it, the README's table, and the plots."""
    texts = {page: _filled(page, results.store, front(results))}
    for e in EXPERIMENTS.values():
        foot = f"[All results](../{page.name}). Commands: `letgo reproduce {e.name} --commands`."
        picture = [f"![{e.title}](../assets/{e.name}.svg)"] if e.plot and e.plot.points(results) else []
        drawn = [p for p in e.pictures if p.reports(results.store)]
        picture += [f"![{p.analysis}](../assets/analysis/{p.name}.png)" for p in drawn]
        text = "\n\n".join([f"# {e.title}", *picture, e.show(results), foot])
        texts[page.with_suffix("") / f"{e.name}.md"] = f"{text}\n"
    if readme is not None and readme.is_file():
        texts[readme] = _filled(readme, results.store, readme_table(results))
    for path, text in texts.items():
        write_atomically(path, text)
        yield path
    for e in EXPERIMENTS.values() if available() and not results.quick else ():
        if e.plot and e.plot.points(results):
            yield page.parent / "assets" / f"{e.name}.svg"
            e.plot.draw(results, page.parent / "assets" / f"{e.name}.svg")
        for picture in (picture for picture in e.pictures if picture.reports(results.store)):
            yield from picture.draw(results.store, page.parent / "assets" / "analysis")


def publish(results: Results, names: list[str], page: Path | None, root: Path | None, quiet: bool) -> None:
    """Print the sections on the terminal; write the pages where they belong to these results."""
    folder = results.store.folder
    if names != ["page"] and not quiet:
        with blaming(folder, BLAME):
            print(text_of(results, names))
    readme = None
    if page is None and root is not None and not results.quick and folder.resolve() == (root / "results").resolve():
        page, readme = root / "docs" / "results.md", root / "README.md"
    if page is None and "page" in names:
        raise LetgoError(f"{folder} is no results folder of a letgo checkout; say where with --page FILE")
    if page is not None and not folder.is_dir():
        raise LetgoError(f"{folder}: no such folder, so there is nothing for {page}; name one with --out FOLDER")
    if page is not None:
        with blaming(folder, BLAME):
            print(f"wrote {page} and {len(list(write_pages(results, page, readme))) - 1} files beside it")


def stale(page: Path, store: Store) -> bool:
    """Return whether a page was made from other files than these."""
    return DIGEST.format(store.digest()) not in page.read_text(encoding="utf-8")


def checkout() -> Path | None:
    """Return the root of letgo's source tree that we stand in, if we do."""
    for folder in (Path.cwd(), *Path.cwd().parents):
        project = folder / "pyproject.toml"
        if project.is_file() and 'name = "letgo"' in project.read_text(encoding="utf-8"):
            return folder
    return None
