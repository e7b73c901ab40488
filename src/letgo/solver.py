"""A trained network with its task: solve, generate, trajectory."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from letgo.answers import Answer, Ledger
from letgo.codecs import encoded, is_varied
from letgo.config import Config
from letgo.data.puzzles import parse_puzzles
from letgo.discrete import masked_belief
from letgo.engines import pick_engine
from letgo.engines.cpu import has_bf16, packs
from letgo.errors import LetgoError, unknown, whole_number
from letgo.machine import cpu_threads, pick_device, pick_precision, refuse_beyond_memory
from letgo.models import LOOPED
from letgo.pinning import Clues
from letgo.replay import Trajectory
from letgo.rng import Noise
from letgo.runs import Run, load_model, read_card
from letgo.samplers import SETTINGS, Sampler, check_fit, fitting, rule_kind
from letgo.sampling import Snapshot, Walk, cell_belief, cell_likelihood
from letgo.shapes import State, Symbols
from letgo.slots import Slots
from letgo.tasks import Problem
from letgo.tasks.task import identities

# How a finished board's self-likelihood is asked, by the path's family and whether states are probabilities of symbols.
BELIEFS = {("gaussian", True): cell_belief, ("absorbing", False): masked_belief}

Progress = Callable[[float | int, int], None]  # how many are done, of a batch on its way a part, and of how many


class Solver:
    """A Solver is task, codec, path and network. `letgo.load(name)` returns one."""

    def __init__(
        self,
        config: Config,
        network: nn.Module,
        device: str | torch.device = "cpu",
        folder: Path | None = None,
        fast: bool = True,
        threads: int = 1,
        precision: str = "auto",
    ):
        self.config, self.folder, self.threads, self.asked = config, folder, threads, (fast, precision)
        self.task, self.codec, self.path = config.build_task(), config.build_codec(folder), config.build_path()
        self.device = pick_device(device)
        self.network = network.to(self.device).eval()
        packed = fast and self.device.type == "cpu" and packs(self.network)
        # What `solve` finds is checked; what `sample` ends in is measured, and a figure must not hang on the CPU.
        self.precision = pick_precision(precision, self.device, fast, half=packed and has_bf16())
        self.sample_precision = pick_precision(precision, self.device, fast, half=False)
        kinds = dict.fromkeys((self.precision, self.sample_precision))
        engines = {kind: pick_engine(self.network, self.path, self.device, kind, fast) for kind in kinds}
        self.engine, self.sample_engine = engines[self.precision], engines[self.sample_precision]

    def with_network(self, network: nn.Module) -> Solver:
        """Return the same model with other weights, on the same device and as fast and precise as was asked."""
        fast, precision = self.asked
        return Solver(self.config, network, self.device, self.folder, fast, self.threads, precision)

    def with_turns(self, turns: int) -> Solver:
        """Return the same model with so many turns a call: a looped network has the same weights for any number."""
        if self.config.network not in LOOPED:
            raise LetgoError(f"turns are a looped network's, and {self.config.name} has another; leave --turns out")
        config = self.config.changed(network_options={**self.config.network_options, "turns": turns})
        network = config.build_model()
        network.load_state_dict(self.network.state_dict())
        return self.with_network(network)

    def __repr__(self) -> str:
        weights = sum(weight.numel() for weight in self.network.parameters())
        return (
            f"<Solver '{self.config.name}': {self.task.name}, {self.task.cells} cells of {self.task.symbols} "
            f"symbols, {type(self.network).__name__} of {weights:,} weights on {self.device}, {self.best_rule} in "
            f"{self.steps()} steps>"
        )

    # Samplers

    def tuning(self, rule: str, regime: str | None = None) -> dict[str, Any]:
        """Return what `letgo tune` stored with the model, for this regime or else for the usual one; or nothing."""
        return {} if self.folder is None else Run(self.folder, self.config).tuning(rule, regime)

    def tuned(self, rule: str, regime: str | None = None) -> dict[str, float]:
        """Return the stored settings of a rule."""
        names = rule_kind(rule).tuned
        best = self.tuning(rule, regime).get("best", {}) if names else {}
        return {name: float(best[name]) for name in names if best.get(name) is not None}

    def sampler(
        self, rule: str | None = None, steps: int | None = None, regime: str | None = None, **settings: Any
    ) -> Sampler:
        """Return a rule with the settings that are given, else those tuned for the regime, and the model's own steps.

        Without a rule it is Tweedie reprojection, or what suits a model of another kind.
        """
        rule = rule or self.best_rule
        for name in settings:
            if name not in SETTINGS:
                raise unknown("setting", name, SETTINGS)
        given = {name: value for name, value in settings.items() if value is not None}
        check_fit(rule, self.path, self.codec)  # before a setting is missed that would not help
        return Sampler(rule, self.steps(steps), **{**self.tuned(rule, regime), **given})

    @property
    def best_rule(self) -> str:
        usual = next(iter(fitting(self.path, self.codec)), "tweedie")  # which says why it does not fit
        return self.config.sample_rule or usual

    @property
    def sure(self) -> float | None:
        """Return the self-likelihood above which a board counts as settled, where `letgo tune --belief` found one."""
        return self.tuning("belief").get("best", {}).get("sure")

    @property
    def sure_early(self) -> float | None:
        """Return the same of a board on the way, whose likelihood is what the next proposal gives it."""
        return self.tuning("belief").get("best", {}).get("sure_early")

    def mark(self, sampler: Sampler, whole_tries: bool = False) -> tuple[float | None, bool]:
        """Return the self-likelihood above which a board settles its puzzle, and whether it is asked on the way or at
        the end.

        On the way it is the next proposal that tells: where such a mark was found for the model, and the sampler asks
        for each proposal from the one before. With `whole_tries` no try ends before its last step.
        """
        early = self.sure_early if sampler.asks_anew and not whole_tries else None
        return (self.sure, False) if early is None else (early, True)

    @property
    def short_try(self) -> int | None:
        """Return the steps of a try that others may follow: those of its mark, where the model has one."""
        found = self.tuning("belief") if (self.sure, self.sure_early) != (None, None) else {}
        return found.get("steps")

    def steps_of_tries(self, steps: int | None, tries: int) -> int:
        """Return the steps of each of so many tries: as asked for, else short ones where there may be several."""
        return self.steps(self.short_try if steps is None and tries > 1 else steps)

    def steps(self, steps: int | None = None) -> int:
        return self.config.sample_steps if steps is None else steps

    # Batches

    def default_batch(self) -> int:
        return self.engine.batch(self.task.cells)

    def clues(self, problem: Problem, soft_until: float | None = None) -> Clues:
        symbols = problem.solution.to(self.device)
        values = encoded(self.codec, symbols, lambda: identities(problem).to(self.device))
        return Clues(values, problem.given.to(self.device), math.inf if soft_until is None else soft_until)

    def read(self, x: State, problem: Problem) -> Symbols:
        """Return the boards that states hold, on the CPU; where a decoder can err, clues are taken as given."""
        boards = self.codec.decode(x).cpu()
        return problem.with_clues(boards) if is_varied(self.codec) else boards

    def on_split(self, split: str) -> Solver:
        """Show boards with the images of a split, where symbols are images; as it is, they are those for tests."""
        self.codec = self.config.build_codec(self.folder, split)
        return self

    def context(self, problem: Problem) -> Tensor | None:
        """Return what the network is told beside the state; a foreign one may have to be told its clues."""
        if getattr(self.network, "sees_clues", False):
            clues = self.clues(problem)
            return torch.cat([clues.given[..., None].float(), clues.values * clues.given[..., None]], -1)
        return None if problem.context is None else problem.context.to(self.device)

    def walk(self, problem: Problem, noise: Noise, sampler: Sampler, walk: Walk | None = None) -> Iterator[Snapshot]:
        """Take one batch through Algorithm 1, or what is left of it, in the precision of `solve`."""
        clues = self.clues(problem, sampler.soft_until)
        return self.engine.walk(sampler, clues, noise, self.context(problem), walk)

    def batch_size(self, boards: int, batch: int | None = None) -> int:
        """Return how many boards go through the network together, where there are so many and `batch` at most may."""
        size = self.default_batch() if batch is None else batch
        if size < 1:
            raise LetgoError(f"batch must be at least 1, got {size}")
        return self.engine.size(size, boards)

    def chunks(self, problem: Problem, noise: Noise, batch: int | None) -> Iterator[tuple[int, Problem, Noise]]:
        """Yield pieces with their true length; where the engine pads, the last one repeats its first instance."""
        size = self.batch_size(len(problem), batch)
        for start in range(0, len(problem), size):
            count = min(size, len(problem) - start)
            index = torch.arange(start, start + (size if self.engine.pads else count))
            index[count:] = start
            yield count, problem[index], noise[index.to(noise.instance.device)]

    # Final states: the task's constraints are not used

    def sample(
        self,
        problem: Problem,
        sampler: Sampler,
        seed: int = 0,
        tries: int = 1,
        attempt: int = 0,
        batch: int | None = None,
        progress: Progress | None = None,
    ) -> State:
        """Return final states on the CPU, one per instance, then those of the next of the `tries`, in full batches.

        Noise is keyed by the number that an instance carries, or by its place in the list.
        """
        refuse_beyond_memory(len(problem) * tries, 4 * self.task.cells * self.codec.dim, "final states")
        number = torch.arange(len(problem)) if problem.number is None else problem.number
        attempts = torch.arange(attempt, attempt + tries).repeat_interleave(len(problem))
        noise = Noise(seed, number.repeat(tries).to(self.device), attempts.to(self.device))
        problem = problem[torch.arange(len(problem)).repeat(tries)] if tries > 1 else problem
        finals, done, count = [], 0, 0

        def each(step: int) -> None:
            if progress is not None and step < sampler.steps:
                progress(done + count * step / sampler.steps, len(problem))

        with cpu_threads(self.threads):
            for count, part, part_noise in self.chunks(problem, noise, batch):
                clues = self.clues(part, sampler.soft_until)
                x = self.sample_engine.finish(sampler, clues, part_noise, self.context(part), each)
                finals.append(x[:count].float().cpu())
                done += count
                if progress is not None:
                    progress(done, len(problem))
        return torch.cat(finals)

    def draw(
        self,
        problem: Problem,
        sampler: Sampler,
        seed: int = 0,
        tries: int = 1,
        batch: int | None = None,
        progress: Progress | None = None,
    ) -> Symbols:
        """Return final boards; of several tries the one with the highest self-likelihood."""
        if tries > 1:
            self.check_belief()
        states = self.sample(problem, sampler, seed, tries, 0, batch, progress)
        boards = torch.stack([self.read(x, problem) for x in states.unflatten(0, (tries, -1))])
        if tries == 1:
            return boards[0]
        return boards[self.most_believed(boards, problem, seed, batch), torch.arange(len(problem))]

    @property
    def doubts(self) -> bool:
        """Say whether the network's answers are probabilities of symbols, so that a board has a self-likelihood."""
        return (self.path.family, self.codec.one_hot) in BELIEFS

    def check_belief(self) -> None:
        if not self.doubts:
            codec = self.config.codec
            raise LetgoError(f"self-likelihood needs one-hot symbols, and this model has codec {codec}; take one try")

    def belief(self, boards: Symbols, problem: Problem, noise: Noise) -> Float[Tensor, "batch"]:
        """Return the self-likelihood of finished boards, 0 at most; all tries of a puzzle meet the same noise."""
        return self.cell_belief(boards, problem, noise).sum(1)

    def cell_belief(self, boards: Symbols, problem: Problem, noise: Noise) -> Float[Tensor, "batch cells"]:
        """Return what each cell has in the self-likelihood of its board; a clue has nothing."""
        self.check_belief()
        clues = self.clues(Problem(boards, problem.given, problem.context))
        noise = Noise(noise.seed, noise.instance, torch.zeros_like(noise.attempt))
        denoise = self.sample_engine.denoise(self.context(problem))
        ask = BELIEFS[self.path.family, self.codec.one_hot]
        return ask(denoise, self.path, clues, clues.values, noise).cpu()

    def likelihood(self, x0_hat: State, boards: Symbols, problem: Problem) -> Float[Tensor, "batch"]:
        """Return the log-probability that proposals give to boards, 0 at most."""
        return self.cell_likelihood(x0_hat, boards, problem).sum(1)

    def cell_likelihood(self, x0_hat: State, boards: Symbols, problem: Problem) -> Float[Tensor, "batch cells"]:
        """Return what each cell has in the likelihood of its board; a clue has nothing."""
        clues = self.clues(Problem(boards, problem.given, problem.context))
        return cell_likelihood(x0_hat, clues.values, clues.given).cpu()

    def most_believed(
        self, tries: Int[Tensor, "tries boards cells"], problem: Problem, seed: int = 0, batch: int | None = None
    ) -> Int[Tensor, "boards"]:
        """Return, for each puzzle, the number of the try whose board has the highest self-likelihood."""
        return torch.stack([self.self_likelihood(boards, problem, seed, batch) for boards in tries]).argmax(0)

    def self_likelihood(
        self, boards: Symbols, problem: Problem, seed: int = 0, batch: int | None = None
    ) -> Float[Tensor, "boards"]:
        """Return the `belief` of many boards, in full batches; noise is keyed as in `sample`."""
        number = torch.arange(len(problem)) if problem.number is None else problem.number
        noise = Noise(seed, number.to(self.device), torch.zeros_like(number).to(self.device))
        finished = Problem(boards, problem.given, problem.context)
        with cpu_threads(self.threads):
            pieces = self.chunks(finished, noise, batch)
            return torch.cat([self.belief(p.solution, p, n)[:count] for count, p, n in pieces])

    # Answers

    def parse(self, puzzles: Sequence[str] | Problem) -> Problem:
        if isinstance(puzzles, Problem):
            return puzzles
        if isinstance(puzzles, str) or not isinstance(puzzles, Sequence):
            raise LetgoError("puzzles must be a list of strings; wrap a single one: [puzzle]")
        if not all(isinstance(text, str) for text in puzzles):
            raise LetgoError("puzzles must be strings, one each; read a file of them with letgo.data.load_problems")
        if len(puzzles) == 0:
            raise LetgoError("no puzzles to solve; expected a list of strings, one puzzle each")
        return parse_puzzles(((f"puzzle {i + 1}", text) for i, text in enumerate(puzzles)), self.task)

    def solve(
        self,
        puzzles: Sequence[str] | Problem,
        rule: str | None = None,
        steps: int | None = None,
        tries: int = 1,
        seed: int = 0,
        verify: bool = True,
        batch: int | None = None,
        progress: Progress | None = None,
        **settings: Any,
    ) -> list[Answer]:
        """Return a record for each puzzle. With `verify`, stop at the first valid proposal and retry what is unsolved.

        Without, the first board that the network is sure of is the answer, on the way or at a try's end; where there is
        none, or the model knows no such mark, the one with the highest self-likelihood. A board that breaks a
        constraint is not handed out.
        """
        slots = self.slots(puzzles, rule, steps, tries, seed, verify, batch, **settings)
        ledger, count = slots.ledger, len(slots.problem)
        for _ in slots.run():
            if progress is not None:
                progress(count - len(ledger.open()), count)
        return ledger.answers(self.task)

    def slots(
        self,
        puzzles: Sequence[str] | Problem,
        rule: str | None = None,
        steps: int | None = None,
        tries: int = 1,
        seed: int = 0,
        verify: bool = True,
        batch: int | None = None,
        **settings: Any,
    ) -> Slots:
        """Return what `solve` runs: the tries of these puzzles, none of which has begun."""
        whole_number("tries", tries, 1)
        problem, sampler = self.parse(puzzles), self.sampler(rule, self.steps_of_tries(steps, tries), **settings)
        whole_number("seed", seed)
        choosing, looking = tries > 1 and not verify, verify and self.task.has_rules
        if choosing:
            self.check_belief()
        mark, early = self.mark(sampler) if choosing else (None, False)
        ledger, size = Ledger(problem, choosing, mark), self.batch_size(len(problem), batch)
        return Slots(self, self.engine, sampler, ledger, identities(problem), seed, tries, size, looking, early)

    def solve_each(
        self, puzzles: Sequence[str] | Problem, batch: int | None = None, **options: Any
    ) -> Iterator[list[Answer]]:
        """Yield the records of `solve` in order, a few puzzles at a time, each time all tries of them.

        Where a batch may have any size the first ones are small, so that the first answer does not wait for many.
        """
        slots, start = self.slots(puzzles, batch=batch, **options), 0
        slots.gently, size = not self.engine.pads, slots.size if self.engine.pads else 1
        for _ in slots.run():
            while start < len(slots.problem) and bool(slots.finished[start : start + size].all()):
                yield slots.ledger.answers(self.task, slice(start, start + size))
                start, size = start + size, min(2 * size, slots.whole)

    def trajectory(
        self,
        puzzle: str | Problem,
        rule: str | None = None,
        steps: int | None = None,
        seed: int = 0,
        attempt: int = 0,
        **settings: Any,
    ) -> Trajectory:
        """Return every step of one puzzle: snapshot.t, snapshot.x, snapshot.x0_hat. A notebook shows it as a replay."""
        problem = puzzle if isinstance(puzzle, Problem) else self.parse([puzzle])
        sampler, instance = self.sampler(rule, steps, **settings), identities(problem).to(self.device)
        noise = Noise(seed, instance, torch.full_like(instance, attempt))
        title = f"{sampler.rule}, {sampler.steps} steps, seed {seed}"
        return Trajectory(self, problem, lambda: self.walk(problem, noise, sampler), title)

    # Boards from nothing

    def generate(
        self,
        count: int,
        seed: int = 0,
        rule: str | None = None,
        steps: int | None = None,
        tries: int = 1,
        **settings: Any,
    ) -> list[str]:
        """Return unconditional samples as text, valid or not: no rule is asked. Without `rule`, `generation_rule`."""
        problem = self.empty(count)
        sampler = self.sampler(rule or self.generation_rule(steps), steps, self.generation, **settings)
        return self.task.format(self.draw(problem, sampler, seed, tries), problem)

    @property
    def generation(self) -> str:
        """Return the regime without clues."""
        return "gen" if "gen" in self.task.regimes else "0"

    def generation_rule(self, steps: int | None = None) -> str:
        """Return the rule that draws most valid boards from nothing, as the model's card has it; or the model's best.

        Settings that were tuned for other steps are no choice of ours: EM decay draws nothing valid with a quarter. Nor
        does Tweedie reprojection, whose mean of many boards is none; drawn symbols are (docs/decisions.md).
        """
        rule = str(self.card.get("generation_rule") or self.best_rule)
        tuned = self.tuning(rule, self.generation).get("steps")
        if tuned in (None, self.steps(steps)):
            return rule
        return "resample" if "resample" in fitting(self.path, self.codec) else self.best_rule

    @property
    def card(self) -> dict[str, Any]:
        """Return what `card.json` says of the model, where its folder has one."""
        return {} if self.folder is None else read_card(self.folder)

    def empty(self, count: int) -> Problem:
        """Return instances without clues; only tasks without a context have such."""
        whole_number("count", count, 1)
        if not self.task.generates:
            raise LetgoError(f"{self.task.name} answers a question; it has nothing to generate without one")
        refuse_beyond_memory(count, 9 * self.task.cells, "boards")
        board = torch.zeros(count, self.task.cells, dtype=torch.long)
        return Problem(board, torch.zeros(count, self.task.cells, dtype=torch.bool))


def load(
    model: str | os.PathLike[str],
    device: str | torch.device = "auto",
    fast: bool = True,
    threads: int = 1,
    precision: str = "auto",
) -> Solver:
    """Load a shipped name, a run or its folder, RUN@STEP or hub:ID, onto the GPU where there is one.

    Without `fast` the network is used as it is.
    """
    if not isinstance(model, str | os.PathLike):
        raise LetgoError(f"a model is given by its name or its run folder, got {model!r}")
    config, network, folder = load_model(os.fspath(model))
    return Solver(config, network, device, folder, fast, threads, precision)
