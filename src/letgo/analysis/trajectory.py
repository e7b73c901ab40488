"""One puzzle on its way through two rules (App. P): states and proposals at some times, broken cells marked."""

from __future__ import annotations

import base64
import zlib
from typing import TYPE_CHECKING, Any, cast

import torch

from letgo.analysis import Report
from letgo.analysis.boards import draw_board
from letgo.analysis.drawing import caption
from letgo.analysis.study import Piece, Study
from letgo.codecs import is_varied
from letgo.data.source import source_of
from letgo.metrics import symbol_chances
from letgo.models.srm import as_board
from letgo.samplers import Sampler, fitting
from letgo.shapes import State

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from letgo.solver import Solver

RULES = ("ddpm", "tweedie", "ancestral", "confidence")  # of each family two
OF_IMAGES = ("euler", "tweedie")  # as Figs. 16 and 17 have them
TAUS = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9, 1.0)  # of progress, as far as the steps go
SURE = 0.3  # how far a proposal that is no one-hot state may lie from a codeword and still count as fairly sure


def run(study: Study) -> Report:
    """Show the first instance that the first rule ends wrong and the second right; else the first of all."""
    solver = study.solver
    rules = [rule for rule in rules_of(solver) if rule in fitting(solver.path, solver.codec)]
    samplers = [study.sampler(rule) for rule in rules]
    right = [_ends(study, sampler) for sampler in samplers]
    telling = (~right[0] & right[1]).nonzero().flatten().tolist()
    number = telling[0] if telling else 0
    [piece] = study.pieces(study.problem[torch.tensor([number])])
    walks = {sampler.rule: frames(piece, sampler, kept_steps(sampler.steps)) for sampler in samplers}
    return {"scene": scene_of(piece), "instance": number, "telling": len(telling), "walks": walks}


def _ends(study: Study, sampler: Sampler) -> torch.Tensor:
    show = study.progress(f"{sampler.rule}: sampled")
    solver, problem = study.solver, study.problem
    boards = solver.read(solver.sample(problem, sampler, study.seed, batch=study.wish.batch, progress=show), problem)
    return solver.task.validate(boards, problem)


def rules_of(solver: Solver) -> tuple[str, ...]:
    return OF_IMAGES if is_varied(solver.codec) else RULES


def kept_steps(steps: int) -> list[int]:
    """Return the steps, counted from 1, whose states are shown."""
    return sorted({1 + round(tau * (steps - 1)) for tau in TAUS})


def scene_of(piece: Piece) -> Report:
    """Return what all boards of one puzzle share."""
    look, problem = source_of(piece.solver.task).look, piece.rows
    side = look.rows, look.columns
    if look.kind == "graph":  # of any size
        side = (round(problem.solution.shape[1] ** 0.5),) * 2
    edges = None if problem.context is None else problem.context[0].flatten().int().tolist()
    given = problem.given[0].tolist()
    named = {"rows": side[0], "columns": side[1], "letters": list(look.letters), "edges": edges, "given": given}
    return {"kind": look.kind, "box": look.box, **named}


def frames(piece: Piece, sampler: Sampler, steps: list[int]) -> list[Report]:
    """Return the chosen steps of one board: the state that was reached, and the proposal that led to it."""
    found = []
    for i, (step, x_s) in enumerate(piece.transitions(sampler), start=1):
        if i in steps:
            tau = 1 - float(step.s.flatten()[0])
            boards = {"state": board_of(piece, x_s, 1 - tau), "proposal": board_of(piece, step.x0_hat, None)}
            found.append({"step": i, "tau": round(tau, 6), **boards})
    return found


def board_of(piece: Piece, x: State, t: float | None) -> Report:
    """Return symbols, how sure they are, and which cells break a rule; a state has a time, a proposal none."""
    solver, path = piece.solver, cast(Any, piece.solver.path)
    if path.family != "gaussian" or (t is None and solver.codec.one_hot):
        chances = x[..., : solver.task.symbols].float().clamp(0, 1)
    else:
        time = torch.full((1, 1, 1), t or 0.0)
        spread = SURE if t is None else max(float(path.beta(time)), 1e-3)
        alpha = 1.0 if t is None else float(path.alpha(time))
        chances = symbol_chances(x, solver.codec, solver.task.symbols, alpha, spread)
    board = piece.decode(x)
    if path.family != "gaussian" and t is not None:  # a masked cell has no symbol yet
        board = board.where(chances[: piece.count].amax(-1).cpu() > 0, -1)
    broken = solver.task.violations(board, piece.rows)[0].nonzero().flatten().tolist()
    certainty = [round(float(c), 2) for c in chances[0].amax(-1).nan_to_num(0.0)]
    image = {"image": image_of(piece, x)} if is_varied(solver.codec) else {}
    return {"symbols": board[0].tolist(), "certainty": certainty, "broken": broken, **image}


def image_of(piece: Piece, x: State) -> Report:
    """Return a board's pixels, clues included, from -1 to 1 as bytes, packed as text."""
    board = as_board(piece.clues.pin(x)[:1].float().cpu())[0]
    pixels = ((board.clamp(-1, 1) + 1) * 127.5).round().to(torch.uint8)
    return {"side": len(board), "pixels": base64.b85encode(zlib.compress(pixels.numpy().tobytes(), 9)).decode()}


def tell(report: Report) -> str:
    lines = [f"instance {report['instance']}; of {report['n']} instances {report['telling']} end so differently"]
    for rule, walk in report["walks"].items():
        counts = ", ".join(f"{len(frame['proposal']['broken'])} at {frame['tau']:.2f}" for frame in walk)
        lines.append(f"{rule:10} broken cells of the proposal by progress: {counts}")
    return "\n".join(lines)


def plot(reports: list[Report]) -> Figure:
    """Draw a row of states and one of proposals for each rule; time runs to the right."""
    from matplotlib.figure import Figure

    report = reports[0]
    rows = [(rule, kind) for rule in report["walks"] for kind in ("state", "proposal")]
    across = max(len(walk) for walk in report["walks"].values())
    shape = report["scene"]["rows"] / report["scene"]["columns"]
    figure = Figure(figsize=(1.35 * across + 0.3, 1.35 * len(rows) * shape + 0.5), layout="constrained")
    axes = figure.subplots(len(rows), across, squeeze=False)
    for line, (rule, kind) in zip(axes, rows, strict=True):
        for axis, frame in zip(line, report["walks"][rule], strict=False):
            draw_board(axis, report["scene"], frame[kind])
            broken = len(frame[kind]["broken"])
            axis.set_title(f"tau {frame['tau']:.2f}: " + (f"{broken} broken" if broken else "valid"), fontsize=7)
        line[0].set_ylabel(f"{rule}\n{'x_t' if kind == 'state' else 'x0_hat'}", fontsize=8)
    figure.suptitle(f"{report['model']}, instance {report['instance']} of split {report['split']}", fontsize=8)
    caption(figure, [{**report, "n": 1}])
    return figure
