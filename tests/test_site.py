"""The site of the documentation: its pages name what there is, and its check finds what it should."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from letgo import cli
from letgo.cli.main import VERBS

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def site():
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "tools" / "docs_site.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_the_command_line_has_every_command_and_option(site) -> None:
    parser, rows = cli.build_parser(), site.command_line().split("\n## ")[1:]
    pages = {row.splitlines()[0]: row for row in rows}
    assert {f"letgo {verb}" for verb in VERBS} <= set(pages)
    for verb in site.parsers(parser):
        for action in verb._actions:
            for word in set(action.option_strings) - {"-h", "--help"}:
                assert re.search(rf"^\| `[^`]*{word}[ `,]", pages[verb.prog], re.M), (verb.prog, word)


def test_pages_are_laid_out_with_what_they_link_to_and_none_is_left_out(site, tmp_path: Path) -> None:
    site.lay_out(tmp_path)
    index = (tmp_path / "index.md").read_text()
    assert index.startswith((ROOT / "README.md").read_text()[:200])
    for page in ROOT.glob("docs/*.md"):
        assert (tmp_path / "docs" / page.name).is_file()
        assert re.search(rf"^docs/{page.stem}$", index, re.M), page
    for page in ROOT.glob("docs/results/*.md"):
        assert re.search(rf"^results/{page.stem}$", (tmp_path / "docs/results.md").read_text(), re.M), page
    assert (tmp_path / "docs/assets/two-samplers.webp").is_file()
    assert "```text\n534678912" in (tmp_path / "examples/solve_and_watch.md").read_text()


def test_dead_links_and_what_comes_from_outside_are_found(site, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<h1 id="top">a</h1><a href="b.html#two"></a><a href="https://example.org"></a>')
    (tmp_path / "b.html").write_text('<h1 id="two">b</h1><a href="a.html#top"></a><img src="data:image/png;base64,">')
    (tmp_path / "c.css").write_text("body { background: url(b.png) }")
    assert site.faults(tmp_path) == []
    (tmp_path / "b.html").write_text(
        '<a href="a.html#below"></a><a href="c.html"></a><script src="https://example.org/x.js"></script>'
    )
    (tmp_path / "c.css").write_text('@import "https://example.org/font.css";')
    assert sorted(site.faults(tmp_path)) == [
        "a.html links to b.html#two, and that page has no such place",
        "b.html links to a.html#below, and that page has no such place",
        "b.html links to c.html, which is not there",
        "b.html loads https://example.org/x.js",
        "c.css loads https://example.org/font.css",
    ]
