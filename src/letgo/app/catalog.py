"""The models that the page offers: those shipped, and run folders named on the command line."""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING

from letgo.app import limits
from letgo.app.limits import UnknownModel
from letgo.app.schemas import Example, ModelCard, Regime
from letgo.errors import LetgoError

if TYPE_CHECKING:
    from letgo.solver import Solver
    from letgo.tasks import Problem, Task

TITLES = {
    "sudoku": "Sudoku",
    "sudoku-extreme": "Sudoku Extreme",
    "latin": "Latin square",
    "queens": "Queens",
    "connectivity": "Graph connectivity",
    "maze": "Maze",
}
OBJECTIVES = {"simple": "Plain training", "self-correction": "Self-correction training"}
KINDS = {"queens": "queens", "connectivity": "graph", "maze": "maze"}
# A first look that shows the point; the race says how typical it is. Other models show their first random puzzle.
EXAMPLES = {
    "sudoku": Example(
        puzzle=".6..........6.......9..43.....9...5......7.4....8.....84.1.5.......8.93469.4.....", seed=0
    ),
    "sudoku-mini": Example(puzzle=".1..3......2..3.", seed=0),
}


class Catalog:
    """Reads every model once, on `load`; from then on it is only read, so threads may share it."""

    def __init__(self, folders: list[str], device: str = "cpu"):
        self.folders, self.device = folders, device
        self.solvers: dict[str, Solver] = {}
        self.cards: dict[str, ModelCard] = {}
        self.ready = threading.Event()
        self.failure: str | None = None

    def load(self) -> None:
        """Import torch, read all models; a failure is kept in words for whoever asks."""
        try:
            from letgo.machine import pick_device
            from letgo.runs import shipped
            from letgo.solver import load

            for name in [*shipped(), *self.folders]:
                if name not in self.solvers:
                    solver = load(name, self.device, fast=pick_device(self.device).type == "cpu")
                    self.solvers[name] = solver
                    self.cards[name] = describe(name, solver, "shipped" if name in shipped() else "local")
        except Exception as error:
            self.fail(error)
        self.ready.set()

    def fail(self, error: Exception) -> None:
        self.failure = str(error) or type(error).__name__
        self.ready.set()

    def wait(self) -> None:
        self.ready.wait()
        if self.failure is not None:
            raise LetgoError(f"the models could not be read: {self.failure}")

    @property
    def default(self) -> str | None:
        """The plain 9x9 network shows the difference best; then whatever there is."""
        wanted = [*self.folders, "sudoku-baseline", "sudoku", *self.cards]
        return next((name for name in wanted if name in self.cards), None)

    def pick(self, task: str | None, model: str | None) -> tuple[str, Solver]:
        """The model asked for; a task's own model has the task's name."""
        self.wait()
        if model is None:
            fitting = [name for name, card in self.cards.items() if card.task == (task or "sudoku")]
            if not fitting:
                raise UnknownModel(f"no model for {task or 'sudoku'} here; GET /api/models lists what there is")
            model = task if task in fitting else fitting[0]
        if model not in self.solvers:
            raise UnknownModel(f"no model '{model}' here; choose one of {', '.join(self.solvers) or 'none'}")
        card = self.cards[model]
        if task is not None and card.task != task:
            raise LetgoError(f"model '{model}' was trained for {card.task}, not for {task}; leave one of them out")
        return model, self.solvers[model]


def describe(name: str, solver: Solver, source: str) -> ModelCard:
    from letgo.runs import read_json

    task, config = solver.task, solver.config
    side = task.cells if task.name == "queens" else math.isqrt(task.cells)
    card = solver.folder / "card.json" if solver.folder else None
    summary = (
        read_json(card).get("summary", "")
        if card and card.is_file()
        else f"{OBJECTIVES.get(config.objective, config.objective)}; a run folder of your own"
    )
    return ModelCard(
        name=name,
        task=config.task,
        title=TITLES.get(config.task, config.task) + (f" {side}x{side}" if config.task == "sudoku" else ""),
        summary=summary,
        source="shipped" if source == "shipped" else "local",
        kind=KINDS.get(task.name, "grid"),  # pyright: ignore[reportArgumentType]
        side=side,
        box=getattr(task, "box", 0),
        letters=letters(task),
        steps=min(config.sample_steps, limits.MAX_STEPS),
        regime=regime(task),
        example=example(config.name, task),
        tuned={rule: settings for rule in ("em", "em-decay") if (settings := solver.tuned(rule))},
    )


def letters(task: Task) -> str:
    """How the symbols are written: a board of all symbols, formatted."""
    if task.name == "connectivity":
        return "01"
    if task.name == "maze":
        return "#.SGo"
    alphabet = "abcdefghijklmnopqrstuvwxyz" if task.name == "queens" else "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
    return alphabet[: task.symbols]


def regime(task: Task) -> Regime:
    """Clue counts where the task has such; a graph's regime is its number of nodes, others have only names."""
    if task.name in ("maze", "sudoku-extreme"):
        return Regime(named=list(task.regimes), fewest=None, most=None, usual=None)
    if task.name == "connectivity":
        return Regime(named=[], fewest=2, most=math.isqrt(limits.MAX_CELLS), usual=math.isqrt(task.cells))
    of_table_2 = {"latin": 2 * task.symbols, "queens": task.symbols // 2}
    usual = of_table_2.get(task.name) or int(task.regimes[0])
    return Regime(named=[], fewest=0, most=task.cells - 1, usual=usual)


def example(name: str, task: Task) -> Example:
    """Models of one task show one puzzle, so that changing the model changes nothing else."""
    known = EXAMPLES.get(name.removesuffix("-baseline"))
    if known is not None:
        return known
    return Example(puzzle=random_puzzle(task, None, 0), seed=0)


def random_puzzle(task: Task, regime: str | None, seed: int) -> str:
    """The first test instance of a seed, without its answer."""
    from letgo.evaluate import instances

    if regime is None and task.name == "connectivity":
        regime = "train"  # graphs of the size that this model was trained with
    problem = instances(task, regime, 1, seed)
    if problem.solution.shape[1] > limits.MAX_CELLS:
        raise LetgoError(f"{problem.solution.shape[1]} cells are more than this server takes ({limits.MAX_CELLS})")
    return task.format_clues(problem)[0]


def parse(solver: Solver, puzzle: str) -> Problem:
    """One puzzle, refused in words; its known answer, if it came with one, is dropped."""
    from letgo.tasks import Problem

    problem = solver.task.parse(puzzle)
    cells = problem.solution.shape[1]
    if cells > limits.MAX_CELLS:
        raise LetgoError(f"the puzzle has {cells} cells; this server takes at most {limits.MAX_CELLS}")
    return Problem(problem.solution * problem.given, problem.given, problem.context)
