"""The checkpoint by Euler, then sigma and tau_start by five folds, on validation instances (section 4, App. F.3)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from letgo.errors import LetgoError
from letgo.machine import cpu_threads
from letgo.rng import Noise
from letgo.runs import Run
from letgo.samplers import BAND, RULES, USUAL, Sampler, rule_kind
from letgo.sampling import Diverged
from letgo.shapes import Symbols
from letgo.solver import Progress, Solver
from letgo.tasks import Problem

FOLDS = 5
LONG = 500  # steps from which on the grids are those of Sudoku-Extreme's 1000 steps
# Above .4 the last of 200 steps are unstable. EM decay: Table 5's (7, .7), and (14, .8) and (20, .7) at 1000 steps.
SIGMAS = {"em": (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35), "em-decay": (3.0, 5.0, 7.0, 10.0, 14.0)}
LONG_SIGMAS = {"em": (0.06, 0.1, 0.14, 0.18, 0.22, 0.26), "em-decay": (7.0, 10.0, 14.0, 20.0, 28.0)}
LEAST_OF_EACH = 20  # right and wrong boards, to tell one kind from the other
TAU_STARTS = (0.6, 0.7, 0.8)
T_MAXS, T_MINS = (1.0, 0.7, 0.5, 0.3), (0.0, 0.1, 0.2)  # of rules that let go of the state; (1, 0) is the usual grid

Values = tuple[float, ...]


def grid_of(
    solver: Solver,
    rule: str,
    sigmas: Values | None = None,
    tau_starts: Values | None = None,
    steps: int | None = None,
    t_maxs: Values | None = None,
    t_mins: Values | None = None,
) -> list[Sampler]:
    """List the samplers to try, by default around the settings that the paper found; the smaller sigma first.

    Of Tweedie reprojection and `resample` they are the times between which proposals are noised; the usual ones first.
    """
    if rule_kind(rule).forgets:
        pairs = [(high, low) for high in t_maxs or T_MAXS for low in t_mins or T_MINS if low < high]
        return [solver.sampler(rule, steps, t_max=high, t_min=low) for high, low in pairs]
    taus = (tau_starts or TAU_STARTS) if "tau_start" in rule_kind(rule).takes else (None,)
    sigmas = sigmas or (LONG_SIGMAS if solver.steps(steps) >= LONG else SIGMAS)[rule]
    return [solver.sampler(rule, steps, sigma=sigma, tau_start=tau) for sigma in sorted(sigmas) for tau in taus]


def tune(
    solver: Solver,
    problem: Problem,
    samplers: list[Sampler],
    seed: int = 0,
    batch: int | None = None,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Measure the validity of every sampler in each fold; the best mean over folds wins, the first of equals."""
    check_count(problem)
    grid, names = [], BAND if rule_kind(samplers[0].rule).forgets else ("sigma", "tau_start")
    for done, sampler in enumerate(samplers, 1):
        valid = _valid(solver, problem, sampler, seed, batch, _within(progress, done - 1, len(samplers)))
        folds = [float(fold.mean()) for fold in valid.tensor_split(FOLDS)]
        setting = {name: getattr(sampler, name) for name in names}
        grid.append({**setting, "validity": round(sum(folds) / FOLDS, 4), "folds": folds})
        progress(done, len(samplers))
    return {
        "rule": samplers[0].rule,
        "best": _best(grid),
        "count": len(problem),
        "folds": FOLDS,
        "steps": samplers[0].steps,
        "seed": seed,
        "grid": grid,
        "torch": torch.__version__,
    }


def find_sure(
    solver: Solver, problem: Problem, sampler: Sampler, seed: int = 0, batch: int | None = None
) -> dict[str, Any]:
    """Find the self-likelihood that tells right boards from wrong ones: halfway, on a log scale, between nine tenths of
    the right boards and all of the wrong ones. There is none where the two overlap."""
    if sampler.asks_anew:
        boards, *seen = walked(solver, problem, sampler, seed, batch)
        early = {"sure_early": sure_early(*seen)}
    else:
        boards, early = solver.read(solver.sample(problem, sampler, seed, batch=batch), problem), {}
    valid, likelihood = solver.task.validate(boards, problem), solver.self_likelihood(boards, problem, seed, batch)
    right, wrong = likelihood[valid], likelihood[~valid]
    if min(len(right), len(wrong)) < LEAST_OF_EACH:
        raise LetgoError(
            f"{len(right)} right and {len(wrong)} wrong boards are too few to tell them apart ({LEAST_OF_EACH} of "
            "each); give more --count, or fewer or more --steps"
        )
    low, high = float(right.quantile(0.1)), float(wrong.max())
    sure = -math.sqrt(max(-low, 1e-3) * -high) if low > high else None
    return {
        "best": {"sure": sure, **early},
        "right": {"count": len(right), "tenth": low, "least": float(right.min())},
        "wrong": {"count": len(wrong), "most": high, "median": float(wrong.median())},
        "rule": sampler.rule,
        "steps": sampler.steps,
        "count": len(problem),
        "seed": seed,
        "torch": torch.__version__,
    }


def walked(
    solver: Solver, problem: Problem, sampler: Sampler, seed: int, batch: int | None
) -> tuple[Symbols, Float[Tensor, "boards steps"], Bool[Tensor, "boards steps"]]:
    """Return the last board of a try each; and of every board proposed before, how likely the next proposal finds it,
    and whether it is right."""
    number = torch.arange(len(problem)) if problem.number is None else problem.number
    noise = Noise(seed, number.to(solver.device), torch.zeros_like(number).to(solver.device))
    lasts, asked, right = [], [], []
    with cpu_threads(solver.threads):
        for count, part, part_noise in solver.chunks(problem, noise, batch):
            clues, boards, x = solver.clues(part, sampler.soft_until), part.solution, None
            steps: list[tuple[Tensor, Tensor]] = []
            for shot in solver.sample_engine.walk(sampler, clues, part_noise, solver.context(part)):
                steps.append((solver.likelihood(shot.x0_hat, boards, part), solver.task.validate(boards, part)))
                boards, x = part.with_clues(solver.read(shot.x0_hat, part)), shot.x
            assert x is not None
            lasts.append(solver.read(x, part)[:count])
            for of_all, of_these in zip((asked, right), zip(*steps, strict=True), strict=True):
                of_all.append(torch.stack(of_these[1:], 1)[:count])  # at the first step nothing has been proposed
    return torch.cat(lasts), torch.cat(asked), torch.cat(right)


def sure_early(asked: Float[Tensor, "boards steps"], right: Bool[Tensor, "boards steps"]) -> float | None:
    """Find the likelihood under the next proposal from which on a board may end its try: a hundredth of the likeliest
    wrong board's. There is none where it would end fewer than half of the tries that propose a right board."""
    mark = float(asked.masked_fill(right, -math.inf).max()) / 100
    ended = ((asked > mark) & right).any(1).sum()
    return mark if -math.inf < mark and 2 * int(ended) >= int(right.any(1).sum()) else None


def check_count(problem: Problem) -> None:
    if len(problem) < FOLDS:
        raise LetgoError(f"{FOLDS} folds need {FOLDS} instances or more, got {len(problem)}; give a larger --count")


def together(tables: list[dict[str, Any]]) -> dict[str, Any]:
    """Choose one setting for several runs: the best mean over all their folds, with all of these in the grid."""
    grid = []
    for rows in zip(*(table["grid"] for table in tables), strict=True):
        mean = round(sum(row["validity"] for row in rows) / len(rows), 4)
        grid.append({**rows[0], "validity": mean, "folds": [fold for row in rows for fold in row["folds"]]})
    return {**tables[0], "best": _best(grid), "grid": grid}


def _best(grid: list[dict[str, Any]]) -> dict[str, Any]:
    best = max(grid, key=lambda row: row["validity"])  # the first of equals: the smaller sigma
    return {key: value for key, value in best.items() if key != "folds"}


def advice(table: dict[str, Any]) -> str:
    """Tell a user that the best setting lies at the edge of the grid, or is worth nothing."""
    best = table["best"]
    if not best["validity"]:
        return "no setting gave a valid board; train longer, or sample with more --steps"
    edges, options = [], []
    for key in [name for name in ("sigma", "tau_start", *BAND) if name in best]:
        values = {row[key] for row in table["grid"]}
        if len(values) > 1 and best[key] in (min(values), max(values)) and best[key] != USUAL[key]:
            end = "least" if best[key] == min(values) else "largest"
            edges.append(f"{key} {best[key]:g} is the {end} that was tried")
            options.append(f"--{key.replace('_', '-')}s")
    return f"{'; '.join(edges)}; others may do better: {', '.join(options)}" if edges else ""


def pick_checkpoint(
    run: Run,
    candidates: list[tuple[int, str]],
    build: Callable[[nn.Module], Solver],
    problem: Problem,
    steps: int | None = None,
    seed: int = 0,
    batch: int | None = None,
    progress: Progress = lambda done, total: None,
) -> dict[str, Any]:
    """Find the step and kind of the weights that Euler does best with, and the scores of all candidates.

    Ancestral sampling takes its place where the path is discrete.
    """
    rows, rule = [], "euler"
    for step, kind in candidates:
        solver = build(run.network(step, kind))
        rule = next(name for name in ("euler", "ancestral") if RULES[name].fits(solver.path, solver.codec))
        part = _within(progress, len(rows), len(candidates))
        value = float(_valid(solver, problem, solver.sampler(rule, steps), seed, batch, part).mean())
        rows.append({"step": step, "weights": kind, "validity": round(value, 4)})
        progress(len(rows), len(candidates))
    best = rows[best_of([row["validity"] for row in rows], len(problem))]
    return {**best, "rule": rule, "count": len(problem), "seed": seed, "scores": rows}


def best_of(shares: Sequence[float], count: int) -> int:
    """Find the largest share of `count` boards; the first stays unless led by more than a standard error."""
    error = math.sqrt(max(shares[0] * (1 - shares[0]), 1 / count) / count)
    best = shares.index(max(shares))
    return best if shares[best] > shares[0] + error else 0


def _within(progress: Progress, before: int, total: int) -> Progress:
    """Return progress inside one of several measurements."""
    return lambda done, boards: progress(before + done / boards, total) if done < boards else None


def _valid(
    solver: Solver, problem: Problem, sampler: Sampler, seed: int, batch: int | None, progress: Progress
) -> torch.Tensor:
    """Return which boards end valid: none, where the sampler diverges on any."""
    try:
        boards = solver.read(solver.sample(problem, sampler, seed, batch=batch, progress=progress), problem)
    except Diverged:
        return torch.zeros(len(problem))
    return solver.task.validate(boards, problem).float()
