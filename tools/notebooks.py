"""Run the notebooks of examples/ from top to bottom and keep what their cells show.

    python tools/notebooks.py [--check] [NOTEBOOK ...]

With --check nothing is written; a cell that fails, or that shows another kind of thing than what was kept, is an error.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
KINDS = {"image/svg+xml": "_repr_svg_", "text/html": "_repr_html_"}


def run_cell(source: str, names: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """What a cell prints, and its last expression, as Jupyter shows them."""
    body, last = ast.parse(source).body, None
    if body and isinstance(body[-1], ast.Expr):
        last = ast.Expression(body.pop().value)
    printed, shown = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(ast.Module(body, []), f"<cell {number}>", "exec"), names)
        shown = None if last is None else eval(compile(last, f"<cell {number}>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue().splitlines(True)})
    if shown is not None:
        data = {kind: getattr(shown, method)() for kind, method in KINDS.items() if hasattr(shown, method)}
        data = {**data, "text/plain": repr(shown)}
        kept = {kind: text.splitlines(True) for kind, text in data.items()}
        outputs.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": kept})
    return outputs


def run(path: Path) -> dict[str, Any]:
    """The notebook with the outputs of today."""
    notebook, names, number = json.loads(path.read_text()), {"__name__": "__main__"}, 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            cell["execution_count"], cell["outputs"] = number, run_cell("".join(cell["source"]), names, number)
    return notebook


def kinds(notebook: dict[str, Any]) -> list[list[tuple[str, ...]]]:
    """What sort of thing each cell shows."""
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [[(out["output_type"], *out.get("data", ())) for out in cell["outputs"]] for cell in cells]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("notebooks", nargs="*", type=Path, help="default: those of examples/")
    options = parser.parse_args()
    paths = [path.resolve() for path in options.notebooks] or sorted((ROOT / "examples").glob("*.ipynb"))
    for path in paths:
        os.chdir(path.parent)  # as Jupyter does
        sys.path.insert(0, str(path.parent))
        notebook = run(path)
        if not options.check:
            path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
        elif kinds(notebook) != kinds(json.loads(path.read_text())):
            sys.exit(f"{path.name} shows something else by now; run tools/notebooks.py and look at it")


if __name__ == "__main__":
    main()
