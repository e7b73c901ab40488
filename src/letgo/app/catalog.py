"""The models that the page offers: those shipped, and run folders named on the command line."""

from __future__ import annotations

import math
import threading
from dataclasses import asdict
from typing import TYPE_CHECKING

from letgo.app import limits
from letgo.app.limits import Unavailable, UnknownModel
from letgo.app.schemas import Example, ModelCard, Regime
from letgo.errors import LetgoError

if TYPE_CHECKING:
    from letgo.data.source import Source
    from letgo.solver import Solver
    from letgo.tasks import Problem, Task

MOST_SYMBOLS = 36  # a frame writes a cell as one digit of base 36
OBJECTIVES = {"simple": "Plain training", "self-correction": "Self-correction training", "masked": "Masked diffusion"}
NOTHING = "gen"  # the regime without clues
FEW = 8  # puzzles of which one is likely to have a clue
USUAL = ("ddpm", "tweedie")  # the two rules that the page compares at first


class Catalog:
    """A Catalog reads every model once, on `load`; from then on it is only read, so threads may share it."""

    def __init__(self, folders: list[str], device: str = "cpu"):
        self.folders, self.device = folders, device
        self.solvers: dict[str, Solver] = {}
        self.cards: dict[str, ModelCard] = {}
        self.examples: dict[str, str] = {}  # of models that share their boards: some take a second to draw
        self.ready = threading.Event()
        self.failure: str | None = None
        self.failed: dict[str, str] = {}  # models that cannot be read, and why; the others are served

    def load(self) -> None:
        """Import torch, read all models; a failure is kept in words for whoever asks."""
        try:
            from letgo.machine import pick_device
            from letgo.runs import shipped

            fast = pick_device(self.device).type == "cpu"
            for name in dict.fromkeys([*shipped(), *self.folders]):
                self._read(name, fast)
        except Exception as error:
            self.fail(error)
        self.ready.set()

    def _read(self, name: str, fast: bool) -> None:
        from letgo.solver import load

        try:
            solver = load(name, self.device, fast=fast)
            boards = repr((solver.config.task, solver.config.task_options))
            self.cards[name] = describe(name, solver, self.examples.get(boards))
            self.solvers[name], self.examples[boards] = solver, self.cards[name].example.puzzle
        except LetgoError as error:
            self.failed[name] = str(error)
        except Exception as error:  # a task of one's own may do anything
            self.failed[name] = f"{name} cannot be read ({type(error).__name__}: {error})"

    def fail(self, error: Exception) -> None:
        self.failure = str(error) or type(error).__name__
        self.ready.set()

    def wait(self) -> None:
        self.ready.wait()
        if self.failure is not None:
            raise Unavailable(f"the models could not be read: {self.failure}")

    @property
    def default(self) -> str | None:
        """Return the plain 9x9 network, which shows the difference best; without it whatever there is."""
        wanted = [*self.folders, "sudoku-baseline", "sudoku", *self.cards]
        return next((name for name in wanted if name in self.cards), None)

    def pick(self, task: str | None, model: str | None) -> tuple[str, Solver]:
        """Return the model asked for; a task's own model has the task's name."""
        self.wait()
        if model is None:
            from letgo.tasks import USUAL as task_of_no_name

            wanted = task or task_of_no_name
            fitting = [name for name, card in self.cards.items() if card.task == wanted]
            if not fitting:
                raise UnknownModel(f"no model for {wanted} here; GET /api/models lists what there is")
            model = task if task in fitting else fitting[0]
        if model not in self.solvers:
            raise UnknownModel(f"no model '{model}' here; choose one of {', '.join(self.solvers) or 'none'}")
        card = self.cards[model]
        if task is not None and card.task != task:
            raise LetgoError(f"model '{model}' was trained for {card.task}, not for {task}; leave one of them out")
        return model, self.solvers[model]

    def beside(self, first: str, name: str | None) -> tuple[str, Solver]:
        """Return the model of one side: another one must play on the same boards as the first."""
        if name is None:
            return first, self.solvers[first]
        name, solver = self.pick(None, name)
        here, there = self.cards[first], self.cards[name]
        if (here.title, here.cells, here.letters) != (there.title, there.cells, there.letters):
            raise LetgoError(f"model '{name}' has other boards than '{first}'; choose one of the same task and size")
        return name, solver


def describe(name: str, solver: Solver, puzzle: str | None = None) -> ModelCard:
    from letgo.app.pictures import picture_side
    from letgo.data.source import source_of
    from letgo.runs import shipped
    from letgo.samplers import RULES

    task, config = solver.task, solver.config
    instances = source_of(task)
    look = instances.look
    if task.symbols > MOST_SYMBOLS or task.cells > limits.MAX_CELLS:
        raise LetgoError(f"the page draws {MOST_SYMBOLS} symbols and {limits.MAX_CELLS} cells at most")
    puzzle = puzzle or look.example or random_puzzle(task, None, 0)
    own = f"{OBJECTIVES.get(config.objective, config.objective)}; a run folder of your own"
    rules = {rule: kind.settings for rule, kind in RULES.items() if kind.fits(solver.path, solver.codec)}
    return ModelCard(
        name=name,
        task=config.task,
        summary=str(solver.card.get("summary", own)),
        source="shipped" if name in shipped() else "local",
        cells=task.cells,
        side=look.columns,
        **{key: value for key, value in asdict(look).items() if key != "example"},
        blank=blank(solver, look.separator),
        context=task.parse(puzzle).context is not None,
        masked=solver.path.family != "gaussian",
        image=picture_side(solver),
        steps=min(config.sample_steps, limits.MAX_STEPS),
        rules=rules,
        default_rules=[*USUAL] if rules.keys() >= set(USUAL) else [*rules][:2],
        regime=regime(instances),
        example=Example(puzzle=puzzle, seed=0),
        tuned={rule: settings for rule in rules if (settings := solver.tuned(rule))},
        tuned_steps={rule: int(steps) for rule in rules if (steps := solver.tuning(rule).get("steps"))},
        sure=solver.sure if solver.sure_early is None else solver.sure_early,
    )


def blank(solver: Solver, separator: str) -> str:
    """Return what the text of a puzzle without clues has in its first cell."""
    if not solver.task.generates:
        return "."
    text = solver.task.format_clues(solver.empty(1))[0]
    return text.split(separator)[0] if separator else text[:1]


def regime(source: Source) -> Regime:
    """Describe a regime by numbers of clues where the source has such, of nodes for graphs; others have only names."""
    if source.counts is None:
        return Regime(named=list(source.regimes), fewest=None, most=None, usual=None)
    fewest, most, usual = source.counts
    most = min(most, math.isqrt(limits.MAX_CELLS)) if source.look.kind == "graph" else most
    return Regime(named=[], fewest=fewest, most=most, usual=usual)


def puzzling(source: Source) -> str:
    """Return the regime of random puzzles: the source's usual one, or where that gives no clues the first that does."""
    return source.usual if source.usual != NOTHING else next((r for r in source.regimes if r != NOTHING), "train")


def random_puzzle(task: Task, regime: str | None, seed: int) -> str:
    """Return a seed's test instance without its answer: the first or, if no regime is named, the first with clues."""
    from letgo.data.source import source_of

    few = FEW if regime is None and source_of(task).usual == NOTHING else 1
    problem = random_puzzles(task, regime, few, seed)
    first = int(problem.given.any(dim=1).byte().argmax())
    return task.format_clues(problem[first : first + 1])[0]


def random_puzzles(task: Task, regime: str | None, count: int, seed: int) -> Problem:
    """Return the first test instances of a seed, without their answers."""
    from letgo.data.source import source_of

    source, most = source_of(task), limits.MAX_CELLS
    nodes = regime if source.look.kind == "graph" and regime is not None and regime.isdecimal() else "0"
    if int(nodes) ** 2 > most:
        raise LetgoError(f"a graph of {nodes} nodes has too many cells; this server takes at most {most}")
    problem = source.draw("test", regime or puzzling(source), count, seed)
    if problem.solution.shape[1] > most:
        raise LetgoError(f"{problem.solution.shape[1]} cells are more than this server takes ({most})")
    return _without_answers(problem)


def _without_answers(problem: Problem) -> Problem:
    from letgo.tasks import Problem

    return Problem(problem.solution * problem.given, problem.given, problem.context)


def parse(solver: Solver, puzzle: str) -> Problem:
    """Read one puzzle, or refuse it in words; its known answer, if it came with one, is dropped."""
    problem = solver.task.parse(puzzle)
    cells = problem.solution.shape[1]
    if cells > limits.MAX_CELLS:
        raise LetgoError(f"the puzzle has {cells} cells; this server takes at most {limits.MAX_CELLS}")
    return _without_answers(problem)
