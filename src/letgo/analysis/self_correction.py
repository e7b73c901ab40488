"""Figure 1 with a model's own boards: noised, proposed, noised again, and proposed anew (Algorithm 2).

Self-correction trains the second answer to be the clean board; without it the network has never seen such a state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from letgo.analysis import Report
from letgo.analysis.boards import draw_board
from letgo.analysis.drawing import caption
from letgo.analysis.study import Piece, Study, solutions
from letgo.analysis.trajectory import board_of, scene_of
from letgo.estimates import rate
from letgo.rng import KERNEL, START
from letgo.shapes import State

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T1, T2 = 0.5, 0.2  # the times of both noisings; training draws t1 from [0, 1] and t2 from [0, t1]
STAGES = {
    "clean": "x0",
    "noised": f"x_t1, t1 = {T1:g}",
    "proposal": "f(x_t1, t1)",
    "again": f"proposal noised, t2 = {T2:g}",
    "answer": "f(x_t2, t2): is it x0?",
}


def run(study: Study) -> Report:
    """Count what both proposals get right, and show the first board whose first proposal breaks a rule."""
    solutions(study)
    shown: Report | None = None
    valid: dict[str, list[torch.Tensor]] = {"proposal": [], "answer": []}
    show = study.progress("noised twice")
    for piece in study.pieces():
        found = stages(piece)
        for name, parts in valid.items():
            parts.append(piece.broken(found[name]) == 0)
        telling = (~valid["proposal"][-1]).nonzero().flatten().tolist()
        if shown is None or (telling and not shown["broken"]):
            number = telling[0] if telling else 0
            shown = {"instance": piece.start + number, "broken": bool(telling), **_boards(piece, found, number)}
        show(piece.start + piece.count, len(study.problem))
    shares = {name: torch.cat(parts) for name, parts in valid.items()}
    return {
        "t1": T1, "t2": T2,
        "valid": {name: rate(int(each.sum()), len(each)).as_dict() for name, each in shares.items()},
        **(shown or {}),
    }  # fmt: skip


def stages(piece: Piece) -> dict[str, State]:
    """Return the five states of Algorithm 2 for every board, with times that are the same for all."""
    path, clues, x0 = piece.solver.path, piece.clues, piece.clues.values
    t1, t2 = (torch.full((1, 1, 1), t, device=x0.device) for t in (T1, T2))
    x_t1 = clues.pin(path.sample(x0, t1, piece.noise.normal(0, START, *x0.shape[1:])))
    proposal = clues.pin(piece.propose(x_t1, t1))
    x_t2 = clues.pin(path.sample(proposal, t2, piece.noise.normal(0, KERNEL, *x0.shape[1:])))
    return {"clean": x0, "noised": x_t1, "proposal": proposal, "again": x_t2, "answer": piece.propose(x_t2, t2)}


def _boards(piece: Piece, found: dict[str, State], number: int) -> Report:
    """Return one board at each of its stages; a noised one has a time."""
    row = torch.tensor([number])
    one = Piece(piece.solver, piece.problem[row], piece.noise, 1, 0)
    times = {"noised": T1, "again": T2}
    boards = {name: board_of(one, x[number : number + 1], times.get(name)) for name, x in found.items()}
    return {"scene": scene_of(one), "boards": boards}


def tell(report: Report) -> str:
    first, second = (
        f"{one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"
        for one in (report["valid"][name] for name in ("proposal", "answer"))
    )
    return (
        f"valid of the proposals at t1 = {report['t1']:g}: {first}; of the answers to these, noised to t2 = "
        f"{report['t2']:g}: {second}; shown is instance {report['instance']}"
    )


def plot(reports: list[Report]) -> Figure:
    """Draw a row for each model: one board from the left, where it is clean, to the answer that training judges."""
    from matplotlib.figure import Figure

    shape = max(report["scene"]["rows"] / report["scene"]["columns"] for report in reports)
    figure = Figure(
        figsize=(1.9 * len(STAGES) + 0.3, (1.75 * shape + 0.35) * len(reports) + 0.35), layout="constrained"
    )
    axes = figure.subplots(len(reports), len(STAGES), squeeze=False)
    for row, report in zip(axes, reports, strict=True):
        for axis, (name, label) in zip(row, STAGES.items(), strict=True):
            board = report["boards"][name]
            draw_board(axis, report["scene"], board, 1.4)
            broken = len(board["broken"])
            axis.set_title(f"{label}\n" + (f"{broken} cells broken" if broken else "valid"), fontsize=7)
        first, second = (report["valid"][name]["value"] for name in ("proposal", "answer"))
        row[0].set_ylabel(f"{report['model']}\nvalid: {first:.2f}, then {second:.2f}", fontsize=7)
    caption(figure, [{key: value for key, value in report.items() if key != "steps"} for report in reports])
    return figure
