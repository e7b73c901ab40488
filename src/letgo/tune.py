"""The checkpoint by Euler, then sigma and tau_start by five folds, on validation instances (section 4, App. F.3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from letgo.checkpoints import Weights, load_state, load_weights, read_json, save_weights, write_json
from letgo.errors import LetgoError
from letgo.solver import Solver
from letgo.tasks import Problem

FOLDS = 5
LONG = 500  # steps from which on the grids are those of Sudoku-Extreme's 1000 steps
# Above .4 the last of 200 steps are unstable. EM decay: Table 5's (7, .7), and (14, .8) and (20, .7) at 1000 steps.
SIGMAS = {"em": (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35), "em-decay": (3.0, 5.0, 7.0, 10.0, 14.0)}
LONG_SIGMAS = {"em": (0.06, 0.1, 0.14, 0.18, 0.22, 0.26), "em-decay": (7.0, 10.0, 14.0, 20.0, 28.0)}
TAU_STARTS = (0.6, 0.7, 0.8)
QUICK_SIGMAS = {"em": (0.1, 0.2, 0.3), "em-decay": (5.0, 7.0, 10.0)}
QUICK_LONG_SIGMAS = {"em": (0.12, 0.18, 0.24), "em-decay": (14.0, 20.0)}
QUICK_TAU_STARTS = (0.7, 0.8)

Progress = Callable[[int, int], None]


def default_grid(rule: str, steps: int, quick: bool = False) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """sigma and tau_start to try, around the settings that the paper found."""
    if quick:
        return (QUICK_LONG_SIGMAS if steps >= LONG else QUICK_SIGMAS)[rule], QUICK_TAU_STARTS
    return (LONG_SIGMAS if steps >= LONG else SIGMAS)[rule], TAU_STARTS


def tune(
    solver: Solver,
    rule: str,
    problem: Problem,
    sigmas: tuple[float, ...] | None = None,
    tau_starts: tuple[float, ...] | None = None,
    steps: int | None = None,
    seed: int = 0,
    batch: int | None = None,
    progress: Progress | None = None,
    quick: bool = False,
) -> dict[str, Any]:
    """Validity of every setting in each fold; the best mean over folds wins, the smaller sigma on a tie."""
    if len(problem) < FOLDS:
        raise LetgoError(f"{FOLDS} folds need at least {FOLDS} instances, got {len(problem)}")
    usual_sigmas, usual_taus = default_grid(rule, solver.steps(steps), quick)
    taus: tuple[float | None, ...] = (tau_starts or usual_taus) if rule == "em-decay" else (None,)
    settings = [(sigma, tau) for sigma in sorted(sigmas or usual_sigmas) for tau in taus]
    grid = []
    for done, (sigma, tau) in enumerate(settings):
        valid = _valid(solver, problem, rule, steps, seed, batch, sigma, tau)
        folds = [float(fold.mean()) for fold in valid.tensor_split(FOLDS)]
        mean = sum(folds) / FOLDS
        grid.append({"sigma": sigma, "tau_start": tau, "validity": round(mean, 4), "folds": folds})
        if progress is not None:
            progress(done + 1, len(settings))
    return {
        "rule": rule,
        "best": _best(grid),
        "count": len(problem),
        "folds": FOLDS,
        "steps": solver.steps(steps),
        "seed": seed,
        "grid": grid,
        "torch": torch.__version__,
    }


def together(tables: list[dict[str, Any]]) -> dict[str, Any]:
    """One setting for several runs: the best mean over all their folds, with all of these in the grid."""
    grid = []
    for rows in zip(*(table["grid"] for table in tables), strict=True):
        mean = round(sum(row["validity"] for row in rows) / len(rows), 4)
        grid.append({**rows[0], "validity": mean, "folds": [fold for row in rows for fold in row["folds"]]})
    return {**tables[0], "best": _best(grid), "grid": grid}


def _best(grid: list[dict[str, Any]]) -> dict[str, Any]:
    best = max(grid, key=lambda row: row["validity"])  # the first of equals: the smaller sigma
    return {key: best[key] for key in ("sigma", "tau_start", "validity")}


def advice(table: dict[str, Any]) -> str:
    """What a user should know of the best setting: that it lies at the edge of what was tried, or is worth nothing."""
    best = table["best"]
    if not best["validity"]:
        return "no setting gave a valid board; train longer, or sample with more --steps"
    edges, options = [], []
    for key in ("sigma", "tau_start"):
        tried = {row[key] for row in table["grid"]}
        if len(tried) > 1 and best[key] in (min(tried), max(tried)):
            end = "least" if best[key] == min(tried) else "largest"
            edges.append(f"{key} {best[key]:g} is the {end} that was tried")
            options.append(f"--{key.replace('_', '-')}s")
    return f"{'; '.join(edges)}; others may do better: {', '.join(options)}" if edges else ""


def kept_weights(folder: Path) -> Iterator[tuple[int, str, Weights]]:
    """Step, 'ema' or 'raw', and weights: of a run's last state, then of each step that it kept, latest first."""
    last = None
    if (folder / "state.pt").is_file():
        state = load_state(folder / "state.pt")
        last = int(state["step"])
        yield from ((last, kind, state[kind]) for kind in ("ema", "raw"))
    paths = {int(path.stem): path for path in folder.glob("checkpoints/*.safetensors") if path.stem.isdecimal()}
    for step in sorted(paths.keys() - {last}, reverse=True):  # the state's own step is there in full precision
        yield from ((step, kind, load_weights(paths[step], f"{kind}.")) for kind in ("ema", "raw"))


def pick_checkpoint(
    build: Callable[[Weights], Solver],
    folder: Path,
    problem: Problem,
    steps: int | None = None,
    seed: int = 0,
    batch: int | None = None,
    progress: Progress | None = None,
) -> tuple[Solver, dict[str, Any]] | None:
    """The solver with the weights that Euler does best with; None where the folder keeps no choice of them.

    The latest average stays unless others lead it by more than a standard error.
    """
    candidates, rows = list(kept_weights(folder)), []
    if not candidates:
        return None
    for step, kind, weights in candidates:
        value = float(_valid(build(weights), problem, "euler", steps, seed, batch).mean())
        rows.append({"step": step, "weights": kind, "validity": round(value, 4)})
        if progress is not None:
            progress(len(rows), len(candidates))
    values = [row["validity"] for row in rows]
    error = math.sqrt(max(values[0] * (1 - values[0]), 1 / len(problem)) / len(problem))
    best = values.index(max(values))
    if values[best] <= values[0] + error:
        best = 0
    picked = {**rows[best], "rule": "euler", "count": len(problem), "seed": seed, "scores": rows}
    return build(candidates[best][2]), picked


def keep_checkpoint(folder: Path, picked: dict[str, Any]) -> None:
    """The picked weights become the run's model, so that it is measured as it was tuned."""
    wanted, model = (picked["step"], picked["weights"]), folder / "model.safetensors"
    before = model.read_bytes() if model.exists() else b""
    save_weights(model, next(w for *which, w in kept_weights(folder) if tuple(which) == wanted))
    if model.read_bytes() != before:
        for path in folder.glob("tune-*.json"):
            path.unlink()  # found for other weights
    write_json(folder / "config.json", {**read_json(folder / "config.json"), "weights": picked["weights"]})
    path = folder / "validation.json"
    known = read_json(path) if path.exists() else {}
    write_json(path, {**known, "step": picked["step"], "weights": picked["weights"], "checkpoint": picked})


def _valid(
    solver: Solver,
    problem: Problem,
    rule: str,
    steps: int | None,
    seed: int,
    batch: int | None,
    sigma: float | None = None,
    tau_start: float | None = None,
) -> torch.Tensor:
    made, _ = solver.rule(rule, sigma, tau_start)
    boards = solver.codec.decode(solver.sample(problem, made, steps, seed, 0, batch))
    return solver.task.validate(boards, problem).float()
