"""Build the documentation as a site that asks for nothing from outside: no fonts, no scripts, equations as MathML.

    pip install -e '.[docs]'
    python tools/docs_site.py OUT

The pages are the Markdown files of the repository, as they lie; the notebooks with their output; the command line from
its parsers; the Python reference from docstrings. A warning of Sphinx, a link within the site that leads nowhere, or
anything that a page would load from elsewhere, ends it with an error.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from letgo import __version__, cli

ROOT = Path(__file__).resolve().parent.parent
NAVIGATION = {  # pages of docs/ that stand nowhere here come last
    "Start": ["index", "docs/install"],
    "Concepts": [
        "docs/concepts",
        "docs/without-a-network",
        "docs/lcm-without-distillation",
        "docs/looped",
        "docs/masked",
    ],
    "How to": ["docs/own-data", "docs/schedulers", "docs/ecosystem", "docs/app", "docs/formats", "CONTRIBUTING"],
    "Notebooks": ["examples/solve_and_watch", "examples/own_model"],
    "Reference": ["reference/cli", "reference/python", "docs/glossary"],
    "Results": [
        "docs/results",
        "docs/ablations",
        "docs/analysis",
        "docs/knife-edge",
        "docs/times",
        "docs/performance",
        "docs/robustness",
    ],
    "Project": ["docs/decisions", "docs/log", "docs/assets", "CHANGELOG"],
}
DOORS = ("load", "sample", "train", "evaluate")
MODULES = [
    *("solver", "answers", "report", "paths", "codecs", "kernels", "samplers", "sampling", "pinning", "discrete"),
    *("objectives", "models", "models.denoiser", "models.transformer", "models.looped", "models.nlm", "tasks"),
    *("tasks.task", "data.source", "config", "presets", "runs", "metrics", "estimates", "rng", "schedulers", "errors"),
]
LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "object": "data", "source": "src"}
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")


# The pages


def lay_out(stage: Path) -> None:
    """Write every page to the stage, with the repository's folders, so that links hold as they are."""
    texts = {path.relative_to(ROOT): path.read_text() for path in ROOT.glob("docs/**/*.md")}
    texts |= {Path(name): (ROOT / name).read_text() for name in ("CONTRIBUTING.md", "CHANGELOG.md")}
    texts[Path("index.md")] = (ROOT / "README.md").read_text()
    for path in sorted(ROOT.glob("examples/*.ipynb")):
        texts[path.relative_to(ROOT).with_suffix(".md")] = notebook(path, stage / "examples")
    texts[Path("reference/cli.md")] = command_line()
    texts |= python_reference()
    for name, text in texts.items():
        for linked in files_of(name, text):
            (stage / linked).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / linked, stage / linked)
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).write_text(links_to_pages(text))
    linked = [target.removesuffix(".md") for target, _ in LINK.findall(texts[Path("docs/results.md")])]
    every = sorted(f"results/{page.stem}" for page in texts if page.parent == Path("docs/results"))
    tables = toctree(list(dict.fromkeys([*(page for page in linked if page in every), *every])))
    for page, contents in (("index", navigation(set(texts))), ("docs/results", tables)):
        with (stage / f"{page}.md").open("a") as text:
            text.write(contents)


def files_of(name: Path, text: str) -> Iterator[Path]:
    """The files, other than pages, that a page links to or shows."""
    for target, _ in LINK.findall(text):
        path = (ROOT / name.parent / target).resolve()
        if path.is_file() and path.suffix not in (".md", ".ipynb", ".html"):
            yield path.relative_to(ROOT)


def links_to_pages(text: str) -> str:
    """The README is the start page, a notebook is a page, and what is HTML already stays so."""
    text = re.sub(r"\]\((\.\./)?README\.md", r"](\1index.md", text).replace(".ipynb)", ".md)")
    return re.sub(r"\[([^\]]+)\]\((\w+\.html)\)", r'<a href="\2">\1</a>', text)


def navigation(pages: set[Path]) -> str:
    """The tables of contents, hidden on the page and shown beside it."""
    there = {path.with_suffix("").as_posix() for path in pages}
    listed = {page for group in NAVIGATION.values() for page in group}
    more = sorted(page for page in there - listed if re.fullmatch(r"docs/[^/]+", page))
    groups = {**NAVIGATION, "More": more}
    written = []
    for caption, group in groups.items():
        if found := [page for page in group if page in there]:
            own = ["letgo <self>" if page == "index" else page for page in found]
            written.append(toctree(own, f":caption: {caption}"))
    return "\n".join(written)


def toctree(pages: list[str], *options: str) -> str:
    return "\n".join(["", "```{toctree}", ":hidden:", *options, "", *pages, "```", ""])


def notebook(path: Path, folder: Path) -> str:
    """Text as it is, code with what it showed; pictures become files beside the page."""
    parts, folder = [], folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {"text/plain": output.get("text", [])})
            if "image/svg+xml" in data:
                (folder / f"{path.stem}-{number}.svg").write_text("".join(data["image/svg+xml"]))
                parts.append(f"![What the cell shows]({path.stem}-{number}.svg)")
            elif "text/html" in data:
                parts.append(re.sub(r"\n\s*\n", "\n", "".join(data["text/html"])))
            else:
                parts.append(f"```text\n{''.join(data['text/plain']).rstrip()}\n```")
    source = f"*The notebook itself is `examples/{path.name}` of the repository.*"
    return "\n\n".join([*parts, source, ""])


# The references


def plain(text: str) -> str:
    """Help text in a cell of a Markdown table; what stands in backticks stays code."""
    parts = re.split(r"(`[^`]+`)", " ".join(text.split()))
    return "".join(p if p.startswith("`") else re.sub(r"([\\*_|<>\[\]$])", r"\\\1", p) for p in parts)


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """The parser of every verb, and those below them."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield below
                yield from parsers(below)


def command_line() -> str:
    whole = cli.build_parser()
    [verbs] = [action for action in whole._actions if isinstance(action, argparse._SubParsersAction)]
    said = {f"letgo {choice.dest}": choice.help for choice in verbs._choices_actions}
    pages = [f"# Command line\n\nEvery command and option of letgo {__version__}, from its own `--help`."]
    for parser in parsers(whole):
        formatter = parser._get_formatter()
        pages.append(f"\n## {parser.prog}\n")
        if text := parser.description or said.get(parser.prog):
            pages.append(plain(text[:1].upper() + text[1:]) + ".\n")
        rows = []
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction | argparse._HelpAction):
                continue
            words = ", ".join(action.option_strings)
            takes = formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
            name = f"{words} {takes}".strip() if words else str(action.metavar or action.dest)
            rows.append(
                f"| `{name.replace('|', '/')}` | {plain(formatter._expand_help(action) if action.help else '')} |"
            )
        if rows:
            pages.append("\n".join(["| option | what it does |", "| --- | --- |", *rows, ""]))
        if parser.epilog:
            pages.append(f"```text\n{parser.epilog.strip()}\n```\n")
    return "\n".join(pages)


def python_reference() -> dict[Path, str]:
    pages: dict[Path, str] = {}
    doors = "\n".join(f"```{{eval-rst}}\n.. autofunction:: letgo.{door}\n```\n" for door in DOORS)
    names = [f"letgo.{module}" for module in MODULES]
    below = "\n".join(["```{toctree}", ":maxdepth: 1", "", *names, "```", ""])
    pages[Path("reference/python.md")] = f"# Python\n\nWhat `import letgo` offers.\n\n{doors}\n## Modules\n\n{below}"
    for name in names:
        automatic = f".. automodule:: {name}\n   :members:\n   :show-inheritance:\n"
        pages[Path(f"reference/{name}.md")] = f"# {name}\n\n```{{eval-rst}}\n{automatic}```\n"
    return pages


# The check


class Page(HTMLParser):
    """The names that can be linked to, the links, and what the page loads."""

    def __init__(self, path: Path):
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given: dict[str, Any] = dict(attrs)
        self.names |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and given.get("href"):
            self.links.append(given["href"])
        if (where := given.get(LOADS.get(tag, ""))) and given.get("rel") not in ("next", "prev"):
            self.loads.append(where)


def faults(site: Path) -> list[str]:
    """Links within the site that lead nowhere, and what pages load from elsewhere."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        where = path.relative_to(site)
        found += [f"{where} loads {link}" for link in page.loads if urlsplit(link).scheme not in ("", "data")]
        for link in (*page.links, *(link for link in page.loads if not urlsplit(link).scheme)):
            address = urlsplit(link)
            if address.scheme or address.netloc:
                continue
            target = (path.parent / unquote(address.path)).resolve() if address.path else path
            if not target.is_file():
                found.append(f"{where} links to {link}, which is not there")
            elif address.fragment and target in pages and unquote(address.fragment) not in pages[target].names:
                found.append(f"{where} links to {link}, and that page has no such place")
    for sheet in site.rglob("*.css"):
        outside = re.findall(r"(?:@import|url\()\s*[\"']?(https?:[^\"')\s]+)", sheet.read_text())
        found += [f"{sheet.relative_to(site)} loads {link}" for link in outside]
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder for the site; it is written anew")
    site = parser.parse_args().out.resolve()
    from sphinx.cmd.build import build_main

    if site.exists():
        if not (site / ".buildinfo").is_file() and any(site.iterdir()):
            sys.exit(f"{site} holds something else than a site; name a new folder")
        shutil.rmtree(site)
    with tempfile.TemporaryDirectory() as stage:
        lay_out(Path(stage))
        words = ["-q", "-W", "--keep-going", "-d", f"{stage}/_build", "-c", str(ROOT / "docs"), stage, str(site)]
        if code := build_main(words):
            return code
    shutil.copy(ROOT / "docs" / "demo.html", site / "docs" / "demo.html")
    found = faults(site)
    print("\n".join(found) or f"{len(list(site.rglob('*.html')))} pages in {site}; start with index.html")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
