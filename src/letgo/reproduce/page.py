"""docs/results.md and a page for each experiment, made of the JSON files; prose outside of the markers is kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from letgo.data.files import written_atomically
from letgo.errors import LetgoError
from letgo.reproduce import plots
from letgo.reproduce.experiments import EXPERIMENTS
from letgo.reproduce.grids import show_brief, show_misses
from letgo.reproduce.paper import OBJECTIVES, RULES, TABLE1, TABLES, Cell
from letgo.reproduce.plan import QUICK_COUNT
from letgo.reproduce.results import RULE_NAMES, Results, as_table, orderings, share, summary
from letgo.reproduce.store import Store

BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
EMPTY = f"# Results\n\n{BEGIN}\n{END}\n"
DIGEST = re.compile(
    r"<!-- made from results/\*\.json, sha256 ([0-9a-f]{64}); `letgo reproduce page` writes it anew -->"
)
QUICK = (
    f"A quick look, not a reproduction: DDPM and Tweedie reprojection only, pass@1, one seed, n = {QUICK_COUNT} where "
    "an entry says nothing else. Mazes are left out unless asked for (`table7`, or `--tasks maze`), Sudoku-Extreme "
    "without its file (`--data`). With n = 16 an interval spans up to .46; compare with nothing."
)


def text_of(results: Results, names: Iterable[str]) -> str:
    """Some experiments, for the terminal."""
    shown = [f"## {e.title}\n\n{e.show(results)}" for e in EXPERIMENTS.values() if e.name in names]
    return "\n\n".join([QUICK, *shown] if results.quick else shown)


def commands(results: Results, names: Iterable[str]) -> list[str]:
    """What repeats the reports behind some experiments."""
    text_of(results, names)
    return list(dict.fromkeys(report["command"] for report in results.used.values() if "command" in report))


def front(results: Results) -> str:
    """What docs/results.md shows itself: Table 1 in brief, and where the rest is."""
    rows = []
    for e in EXPERIMENTS.values():
        cells = list(TABLES[e.name].cells()) if e.name in TABLES else []
        found = [one for cell in cells if (one := results.result(cell))]
        misses = sum(results.miss(one) is not None for one in found)
        counts = [f"{len(found)} of {len(cells)}", str(misses)] if cells else ["", ""]
        rows.append([f"[{e.title}](results/{e.name}.md)", *counts, f"`letgo reproduce {e.name} --commands`"])
    parts = [
        QUICK if results.quick else summary(results),
        as_table(["page", "entries measured", "misses", "its commands"], rows),
        "## Table 1: success rates\n\nOurs, and the paper's in brackets; intervals, n, seeds and steps: "
        "[Table 1](results/table1.md).",
        show_brief(results),
        "![Validity by rule, ours with intervals beside the paper's](assets/table1.svg)",
        orderings(results),
        *show_misses(results, list(TABLE1.cells())),
    ]
    return "\n\n".join(parts)


def readme_table(results: Results) -> str:
    """Sudoku with 21 clues: every sampler with both trainings, ours and the paper's."""
    rows = []
    for rule in RULES:
        cells = [Cell(TABLE1, TABLE1.columns[0], rule, objective) for objective in OBJECTIVES]
        row = [RULE_NAMES[rule]]
        for cell, found in ((cell, results.result(cell)) for cell in cells):
            own = share(found.score) if found else "-"
            row += [own + (f" ± {found.std:.3f}" if found and found.std else ""), f"{cell.paper.value:.2f}"]
        rows.append(row)
    return as_table(["sampler", "`sudoku-baseline`", "paper", "`sudoku` (self-corrected)", "paper"], rows)


def _filled(path: Path, store: Store, text: str) -> str:
    """A page with its generated part anew."""
    page = path.read_text(encoding="utf-8") if path.is_file() else EMPTY
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise LetgoError(f"{path}: no {BEGIN} and {END} around what to replace; add them or move it away")
    digest = f"<!-- made from results/*.json, sha256 {store.digest()}; `letgo reproduce page` writes it anew -->"
    return f"{before}{BEGIN}\n{digest}\n\n{text}\n{END}{after}"


def write_pages(results: Results, page: Path, readme: Path | None = None) -> Iterator[Path]:
    """The page, those of all experiments beside it, the README's table, and plots whose points have changed."""
    texts = {page: _filled(page, results.store, front(results))}
    for e in EXPERIMENTS.values():
        foot = f"[All results](../{page.name}). Commands: `letgo reproduce {e.name} --commands`."
        picture = [f"![{e.title}](../assets/{e.name}.svg)"] if e.plot and e.plot.points(results.store) else []
        text = "\n\n".join([f"# {e.title}", *picture, e.show(results), foot])
        texts[page.with_suffix("") / f"{e.name}.md"] = f"{text}\n"
    if readme is not None and readme.is_file():
        texts[readme] = _filled(readme, results.store, readme_table(results))
    for path, text in texts.items():
        with written_atomically(path) as file:
            file.write(text.encode())
        yield path
    for e in EXPERIMENTS.values() if plots.available() and not results.quick else ():
        picture, points = page.parent / "assets" / f"{e.name}.svg", e.plot.points(results.store) if e.plot else []
        if e.plot and points and plots.drawn_digest(picture) != plots.digest(points):
            plots.draw(e.plot, results.store, picture)
            yield picture


def publish(results: Results, names: list[str], page: Path | None, root: Path | None, quiet: bool) -> None:
    """The sections on the terminal; the pages where they belong to these results."""
    folder = results.store.folder
    if names != ["page"] and not quiet:
        print(text_of(results, names))
    readme = None
    if page is None and root is not None and not results.quick and folder.resolve() == (root / "results").resolve():
        page, readme = root / "docs" / "results.md", root / "README.md"
    if page is None and "page" in names:
        raise LetgoError(f"{folder} is no results folder of a letgo checkout; say where with --page FILE")
    if page is not None and not folder.is_dir():
        raise LetgoError(f"{folder}: no such folder, so there is nothing for {page}; name one with --out FOLDER")
    if page is not None:
        print(f"wrote {page} and {len(list(write_pages(results, page, readme))) - 1} files beside it")


def stale(page: Path, store: Store) -> bool:
    """Whether a page was made from other files than these."""
    found = DIGEST.search(page.read_text(encoding="utf-8"))
    return found is None or found[1] != store.digest()


def checkout() -> Path | None:
    """The root of letgo's source tree that we stand in, if we do."""
    here = Path.cwd()
    for folder in (here, *here.parents):
        project = folder / "pyproject.toml"
        if project.is_file() and 'name = "letgo"' in project.read_text(encoding="utf-8"):
            return folder
    return None
