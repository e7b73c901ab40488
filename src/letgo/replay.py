"""A trajectory as a page that plays by itself: in a notebook, or as one HTML file without a server."""

from __future__ import annotations

import html
import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from letgo.data.source import source_of
from letgo.errors import LetgoError
from letgo.sampling import Snapshot
from letgo.tasks import Problem

if TYPE_CHECKING:
    from letgo.solver import Solver

FILES = Path(__file__).parent / "app" / "static"  # the page's own replay is made of the same three files
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_numbers = itertools.count(1)


class Trajectory(Iterator[Snapshot]):
    """It gives every step of one puzzle, once, as an iterator; in a notebook it shows the whole run, drawn afresh."""

    def __init__(self, solver: Solver, problem: Problem, walk: Callable[[], Iterator[Snapshot]], title: str):
        self.solver, self.problem, self.title = solver, problem, title
        self._walk, self._steps = walk, walk()

    def __next__(self) -> Snapshot:
        return next(self._steps)

    def close(self) -> None:
        """End the run before its last step."""
        close = getattr(self._steps, "close", None)
        if close is not None:
            close()

    def to_html(self) -> str:
        """Return one page that needs nothing else; it plays the proposals of the whole run."""
        if len(self.problem) != 1:
            raise LetgoError(f"a replay shows one puzzle, got {len(self.problem)}; give trajectory one of them")
        page, style, script = ((FILES / f"replay.{kind}").read_text() for kind in ("html", "css", "js"))
        run = json.dumps(self._run(), separators=(",", ":")).replace("<", "\\u003c")
        for name, text in {"STYLE": style, "NAME": "", "SCRIPT": script, "RUN": run}.items():
            page = page.replace(f"/*{name}*/", text)
        return page

    def _repr_html_(self) -> str:
        """Return a frame of its own, so that nothing of it meets the notebook's style or scripts."""
        number = next(_numbers)
        source, box = html.escape(self.to_html(), quote=True), "width:100%;height:560px;border:0"
        return f'<iframe title="letgo: a replay, {number}" srcdoc="{source}" style="{box}"></iframe>'

    def _run(self) -> dict[str, Any]:
        task, look = self.solver.task, source_of(self.solver.task).look
        clues = self.solver.clues(self.problem)
        symbols, given = self.problem.solution[0].tolist(), self.problem.given[0].tolist()
        rows, columns = look.rows, look.columns
        if look.kind == "graph":
            rows = columns = round(len(given) ** 0.5)
        frames = []
        for snapshot in self._walk():
            proposal = clues.pin(snapshot.x0_hat)
            board = self.solver.read(proposal, self.problem)
            certainty = proposal[..., : task.symbols].float().amax(-1).clamp(0, 1).cpu()
            if not self.solver.codec.one_hot:
                certainty = certainty.new_ones(board.shape)
            frames.append(
                {
                    "x": "".join(DIGITS[s] if 0 <= s < min(task.symbols, 36) else "?" for s in board[0].tolist()),
                    "c": "".join(DIGITS[level] for level in (certainty[0] * 35).round().long().tolist()),
                    "bad": task.violations(board, self.problem)[0].nonzero().flatten().tolist(),
                }
            )
        return {
            "title": self.title,
            "sides": [self.title],
            "kind": look.kind,
            "box": look.box,
            "steps": len(frames),
            "rows": rows,
            "columns": columns,
            "letters": list(look.letters),
            "given": [symbol if clue else None for symbol, clue in zip(symbols, given, strict=True)],
            "frames": [frames],
        }
