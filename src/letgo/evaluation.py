"""A model and a sampler in, a report out. The rules of the task are looked at only after sampling has ended."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from letgo.answers import Ledger
from letgo.data.source import source_of
from letgo.errors import LetgoError, whole_number
from letgo.estimates import Column
from letgo.machine import device_name
from letgo.metrics import codeword_distances, violation_shares
from letgo.report import Outcomes, Report, board_digest, shard_of
from letgo.runs import own_name
from letgo.runs.files import crc32_of
from letgo.samplers import Sampler
from letgo.sampling import BELIEF_TIMES
from letgo.slots import Slots
from letgo.solver import Progress, Solver, load
from letgo.tasks import Problem


def evaluate_model(
    model: str | os.PathLike[str] | Solver,
    rule: str = "tweedie",
    regime: str | int | None = None,
    steps: int | None = None,
    count: int = 2000,
    passes: int = 1,
    seed: int = 0,
    data: str | None = None,
    shard: str | None = None,
    device: str = "auto",
    batch: int | None = None,
    progress: Progress | None = None,
    until_sure: bool = False,
    sure: float | None = None,
    whole_tries: bool = False,
    turns: int | None = None,
    **settings: float | None,
) -> Report:
    """Measure a model with a rule on instances that no training saw; `letgo.evaluate` and `letgo evaluate` are this.

    `settings` are those of the rule, as `letgo.samplers.Sampler` names them (sigma, tau_start, variance ...); where
    they are not given, as tuned. With `until_sure` an instance is tried again, `passes` times at most, until the
    network's self-likelihood of its board is above `sure`, by default what `letgo tune --belief` stored. Where it found
    one for boards on the way, a try ends there; with `whole_tries` only the last board is asked about, by more calls.
    A looped network takes other `turns` a call than it was trained with; the report has them among its settings.

    >>> import letgo
    >>> report = letgo.evaluate("sudoku-mini", rule="tweedie", count=8, device="cpu")
    >>> report.validity.n, report.regime, report.steps
    (8, '4', 50)
    """
    for key, value, least in (("count", count, 1), ("passes", passes, 1), ("seed", seed, None)):
        whole_number(key, value, least)
    if not until_sure and (whole_tries or sure is not None):
        raise LetgoError("--sure and --whole-tries say when --until-sure ends; give that, too, or leave them out")
    regime = None if regime is None else str(regime)
    solver = model if isinstance(model, Solver) else load(model, device)
    solver = solver if turns is None else solver.with_turns(turns)
    name = model.config.name if isinstance(model, Solver) else os.fspath(model)
    steps = solver.short_try if steps is None and until_sure else steps
    source, sampler = source_of(solver.task, data), solver.sampler(rule, steps, regime, **settings)
    doubt = doubt_of(solver, sampler, sure, whole_tries) if until_sure else None
    problem = source.draw("test", regime, count, seed)
    part = problem if shard is None else part_of(problem, shard)
    where = "file" if source.own_clues(problem) else regime or source.regimes[0]
    report = evaluate(solver, part, sampler, passes, seed, batch, progress, doubt)
    traces = {} if shard is None else traces_of(solver, problem)
    told = report.settings if turns is None else report.settings | {"turns": float(turns)}
    return replace(report, model=own_name(name), regime=where, settings=told, shard=shard, **traces)


def traces_of(solver: Solver, problem: Problem) -> dict[str, Any]:
    """Return what tells a part from one of other weights or other instances: a run is trained on, a file is changed."""
    drawn = {"solution": problem.solution, "given": problem.given, "context": problem.context}
    weights = {name: value.cpu() for name, value in solver.network.state_dict().items()}
    instances = crc32_of({name: value.cpu() for name, value in drawn.items() if value is not None})
    return {"whole": len(problem), "weights_crc32": crc32_of(weights), "instances_crc32": instances}


class Doubt(NamedTuple):
    """A Doubt is the likelihood above which a board is believed, and whether boards are asked about on the way."""

    sure: float
    early: bool = False


def doubt_of(solver: Solver, sampler: Sampler, sure: float | None = None, whole_tries: bool = False) -> Doubt:
    """Return the given likelihood or the model's own, and whether it is asked on the way or after each try."""
    solver.check_belief()
    stored, early = solver.mark(sampler, whole_tries)
    mark = stored if sure is None else sure
    if mark is None:
        raise LetgoError(
            f"model '{solver.config.name}' has no self-likelihood that tells right boards from wrong; find one with "
            "`letgo tune RUN --belief`, or give --sure"
        )
    return Doubt(mark, early)


def part_of(problem: Problem, shard: str) -> Problem:
    """Return part I of N of a list, "I/N", counted from 0; the instances keep their numbers."""
    index, total = shard_of(shard)
    if total > len(problem):
        raise LetgoError(
            f"--shard {shard}: expected I/N with I from 0 to N - 1, N at most the {len(problem)} instances"
        )
    number = torch.arange(len(problem)) if problem.number is None else problem.number
    return replace(problem, number=number)[torch.arange(len(problem)).tensor_split(total)[index]]


def evaluate(
    solver: Solver,
    problem: Problem,
    sampler: Sampler,
    passes: int = 1,
    seed: int = 0,
    batch: int | None = None,
    progress: Progress | None = None,
    doubt: Doubt | None = None,
) -> Report:
    """Sample every instance `passes` times from seeded noise and score the final states; with `doubt`, `until_sure`."""
    if passes < 1:
        raise LetgoError(f"passes must be at least 1, got {passes}")
    number = torch.arange(len(problem)) if problem.number is None else problem.number
    started, before = time.perf_counter(), solver.engine.building
    if doubt is None:
        tries = solver.sample(problem, sampler, seed, passes, 0, batch, progress).unflatten(0, (passes, -1))
        seconds = time.perf_counter() - started
        boards = torch.stack([solver.read(x, problem) for x in tries])
        best = solver.most_believed(boards, problem, seed, batch) if passes > 1 and solver.doubts else None
        columns = _columns(solver, problem, tries, boards, best, sampler.calls * passes)
        calls = sampler.calls * passes * len(problem)
    else:
        numbered = replace(problem, number=number)
        columns = until_sure(solver, numbered, sampler, passes, doubt, seed, batch, progress)
        seconds, calls = time.perf_counter() - started, int(columns["calls_per_instance"].values.sum())
    return Report.of(
        Outcomes(number.tolist(), columns),
        task=solver.task.name,
        rule=sampler.rule,
        settings=sampler.settings | ({} if doubt is None else {"sure_early" if doubt.early else "sure": doubt.sure}),
        steps=sampler.steps,
        seed=seed,
        calls=calls,
        seconds=round(seconds, 3),
        building_seconds=round(solver.engine.building - before, 3) if solver.engine.building else None,
        device=device_name(solver.device),
        precision=solver.sample_precision,
        digits=solver.config.codec_options.get("source"),
    )


def _columns(solver: Solver, problem: Problem, tries: Any, boards: Any, best: Any, calls: int) -> dict[str, Column]:
    """Return every score of every instance; the first try counts where a score is of one."""
    task, passes = solver.task, len(boards)
    valid = torch.stack([task.validate(board, problem) for board in boards], dim=1)
    columns = {
        "validity": Column.of("rate", valid[:, 0]),
        "pass_at_k": Column.of("any", valid),
        **_board_columns(solver, problem, tries[0], boards[0], valid[:, 0]),
        "calls_per_instance": Column.of("spread", torch.full((len(problem),), calls)),
    }
    if best is not None:
        chosen = valid.gather(1, best[:, None])[:, 0]
        cost = torch.tensor([passes, len(BELIEF_TIMES) * passes]).expand(len(problem), 2)
        columns["chosen_at_k"] = Column.of("chosen", torch.cat([chosen[:, None], cost], 1))
    return {**columns, **task.outcomes(list(boards), problem)}


def _board_columns(solver: Solver, problem: Problem, states: Any, boards: Any, valid: Any) -> dict[str, Column]:
    """Return what is measured of one board of each instance."""
    digests = torch.tensor([board_digest(board) for board in boards], dtype=torch.float64)
    return {
        "violation_rate": Column.of("share", violation_shares(boards, problem, solver.task)),
        "codeword_distance": Column.of("mean", codeword_distances(states, problem.given, solver.codec)),
        "uniqueness": Column.of("distinct", torch.stack([digests, valid.double()], 1)),
    }


def until_sure(
    solver: Solver,
    problem: Problem,
    sampler: Sampler,
    tries: int,
    doubt: Doubt,
    seed: int = 0,
    batch: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Column]:
    """Try each instance again until the network is sure of its board, `tries` times at most, and score the answers.

    The answer is the board with the highest self-likelihood so far; no rule of the task decides anything.
    """
    assert problem.number is not None, "noise is keyed by the instances' numbers"
    count, ledger, size = len(problem), Ledger(problem, True, doubt.sure), solver.batch_size(len(problem), batch)
    valid = torch.zeros(count, tries, dtype=torch.bool)
    states = torch.zeros(*problem.solution.shape, solver.codec.dim)
    slots = Slots(solver, solver.sample_engine, sampler, ledger, problem.number, seed, tries, size, False, doubt.early)
    for tried, better in slots.run():
        rows = tried.rows
        valid[rows, ledger.tries[rows] - 1] = tried.valid
        states[rows[better]] = tried.x.float().cpu()[better]
        if progress is not None:
            progress(count - len(ledger.open()), count)
    answered, settled = ledger.solved, ledger.belief > doubt.sure
    return {
        "validity": Column.of("rate", answered),
        "first_try": Column.of("rate", valid[:, 0]),
        "pass_at_k": Column.of("any", valid),
        "believed": Column.of("rate", settled),
        "believed_wrong": Column.of("rate", settled & ~answered),
        **_board_columns(solver, problem, states, ledger.boards, answered),
        "calls_per_instance": Column.of("spread", ledger.calls),
        "tries_per_instance": Column.of("spread", ledger.tries),
        **solver.task.outcomes([ledger.boards], problem),
    }
