"""A trained network with its task: solve, generate, trajectory."""

from __future__ import annotations

import math
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from letgo.answers import Answer, Ledger
from letgo.checkpoints import load_model, read_json, read_tuning
from letgo.codecs import OneHot
from letgo.errors import LetgoError
from letgo.fast import cpu
from letgo.fast.loop import Loop
from letgo.kernels import Rule, make_rule
from letgo.machine import cpu_threads, pick_device, pick_precision
from letgo.models.transformer import Transformer
from letgo.pinning import Clues
from letgo.presets import Config
from letgo.rng import Noise, NoiseAhead
from letgo.sampling import BELIEF_TIMES, Snapshot, belief, trajectory, uniform_grid
from letgo.shapes import State, Symbols, Time
from letgo.tasks import Problem

STEPS = (64, 512, 2048, 8192, 32_768)  # batches on a GPU: few sizes, since each is compiled anew
WHOLE_ROUNDS = 13 * 132 * 192  # cells of a large batch: an H200's 132 multiprocessors take 192 each at a time


def calls_per_step(rule: str) -> int:
    return 2 if rule == "heun" else 1


def identities(problem: Problem) -> Int[Tensor, "batch"]:
    """A puzzle's own number, 32 bits: its noise, so its answer, is the same wherever it stands in a list."""
    clues = torch.where(problem.given, problem.solution, -1).to("cpu", torch.int64)
    context = torch.empty(len(clues), 0) if problem.context is None else problem.context.cpu().float()
    rows = zip(clues.numpy(), context.numpy(), strict=True)
    return torch.tensor([zlib.crc32(c.tobytes() + a.tobytes()) for c, a in rows])


class Solver:
    """Task, codec, path and network. `letgo.load(name)` returns one."""

    def __init__(
        self,
        config: Config,
        network: torch.nn.Module,
        device: str | torch.device = "cpu",
        folder: Path | None = None,
        fast: bool = True,
        threads: int = 1,
        precision: str = "auto",
    ):
        self.config, self.folder, self.threads = config, folder, threads
        self.task, self.codec, self.path = config.build_task(), config.build_codec(), config.build_path()
        self.device = pick_device(device)
        self.network = network.to(self.device).eval()
        self.fast_cpu = fast and self.device.type == "cpu"
        self.packed = self.fast_cpu and isinstance(self.network, Transformer) and cpu.available()
        # What `solve` finds is checked; what `sample` ends in is measured, and a figure must not hang on the CPU.
        self.precision = pick_precision(precision, self.device, fast, half=self.packed and cpu.has_bf16())
        self.sample_precision = pick_precision(precision, self.device, fast, half=False)
        compiled = fast and self.device.type == "cuda" and self.precision == "bf16"
        self.loop = Loop(self.network, self.path) if compiled else None
        self.forwards = {name: self.forward(name) for name in (self.precision, self.sample_precision)}

    def forward(self, precision: str) -> Callable[..., State]:
        """The network in this precision: packed where that can be, autocast elsewhere."""
        half = precision == "bf16"
        if self.packed and isinstance(self.network, Transformer):
            return cpu.PackedTransformer(self.network, torch.bfloat16 if half else torch.float32)
        cast = torch.autocast(self.device.type, torch.bfloat16) if half else nullcontext()

        def forward(x_t: State, t: Time, context: Tensor | None = None) -> State:
            with cast:
                return self.network(x_t, t, context)

        return forward

    def default_batch(self) -> int:
        """As many as make a batch faster: beyond 16 boards of 81 cells a CPU core gains nothing.

        The plain path on a CPU has small fixed chunks, so that there too an answer never depends on its neighbours.
        """
        if self.device.type == "cpu":
            return max(1, (1296 if self.fast_cpu else 128) // self.task.cells)
        return max(1, WHOLE_ROUNDS // self.task.cells)

    def tuning(self, rule: str, regime: str | None = None) -> dict[str, Any]:
        """What `letgo tune` stored with the model, for this regime or else for the usual one; or nothing."""
        return {} if self.folder is None else read_tuning(self.folder, rule, regime)

    def tuned(self, rule: str, regime: str | None = None) -> dict[str, float]:
        """The stored settings of a rule."""
        best = self.tuning(rule, regime).get("best", {})
        return {k: best[k] for k in ("sigma", "tau_start") if best.get(k) is not None}

    def rule(
        self,
        name: str,
        sigma: float | None = None,
        tau_start: float | None = None,
        variance: float = 1.0,
        regime: str | None = None,
    ) -> tuple[Rule, dict[str, float]]:
        """A rule and the settings it ended up with: given ones first, then those tuned for the regime."""
        if name == "resample" and not isinstance(self.codec, OneHot):
            raise LetgoError(f"rule 'resample' draws symbols from one-hot states; this model has {self.config.codec}")
        settings = self.tuned(name, regime) if name in ("em", "em-decay") else {}
        given = {"sigma": sigma, "tau_start": tau_start}
        settings |= {k: v for k, v in given.items() if v is not None}
        made = make_rule(name, settings.get("sigma"), settings.get("tau_start"), variance)
        return made, settings | ({"variance": variance} if variance != 1.0 else {})

    def clues(self, problem: Problem, soft_until: float | None = None) -> Clues:
        values = self.codec.encode(problem.solution.to(self.device))
        if soft_until is not None and math.isnan(soft_until):
            raise LetgoError("soft_until is not a number; give a time from 0 to 1, or leave it out")
        return Clues(values, problem.given.to(self.device), math.inf if soft_until is None else soft_until)

    def denoise(self, context: Tensor | None, precision: str | None = None) -> Callable[[State, Time], State]:
        """The network as `trajectory` calls it.

        On the CPU's fast path with one row of t for all boards: then no product's shape depends on the batch but by
        whole boards, and a board has the same bits in any company.
        """
        forward, on_device = self.forwards[precision or self.precision], self.on_device(context)

        def denoise(x_t: State, t: Time) -> State:
            return forward(x_t, t if self.fast_cpu else t.expand(len(x_t), 1, 1), on_device)

        return denoise

    def on_device(self, context: Tensor | None) -> Tensor | None:
        return None if context is None else context.to(self.device)

    def run(
        self,
        problem: Problem,
        noise: Noise,
        rule: Rule,
        steps: int,
        soft_until: float | None = None,
        precision: str | None = None,
        x_t: State | None = None,
        done: int = 0,
    ) -> Iterator[Snapshot]:
        """One batch through Algorithm 1, or what is left of it; in the precision of `solve` unless told."""
        clues, times = self.clues(problem, soft_until), uniform_grid(steps)
        if self.loop is not None:
            return self.loop.run(rule, times, clues, noise, self.on_device(problem.context), x_t, done)
        noise = NoiseAhead.of(noise) if self.fast_cpu else noise
        denoise = self.denoise(problem.context, precision)
        return trajectory(denoise, self.path, rule, times, clues, noise, x_t=x_t, done=done)

    def final(self, problem: Problem, noise: Noise, rule: Rule, steps: int, soft_until: float | None = None) -> State:
        """The last state of `run`, with no look on the way and in the precision of `sample`."""
        if self.loop is None:
            run = self.run(problem, noise, rule, steps, soft_until, self.sample_precision)
            return deque(run, maxlen=1).pop().x  # keeps one snapshot: memory is flat in the number of steps
        clues, times = self.clues(problem, soft_until), uniform_grid(steps)
        return self.loop.final(rule, times, clues, noise, self.on_device(problem.context))

    def steps(self, asked: int | None) -> int:
        return self.config.sample_steps if asked is None else asked

    def chunks(self, problem: Problem, noise: Noise, batch: int | None) -> Iterator[tuple[int, Problem, Noise]]:
        """Fixed-size pieces with their true length; the last is padded by repeating its first instance."""
        size = self.default_batch() if batch is None else batch
        if size < 1:
            raise LetgoError(f"batch must be at least 1, got {size}")
        if self.fast_cpu:
            size = min(size, len(problem))
        elif self.device.type != "cpu":
            size = min([size, *(step for step in STEPS if step >= len(problem))])
        for start in range(0, len(problem), size):
            count = min(size, len(problem) - start)
            index = torch.arange(start, start + (count if self.fast_cpu else size))
            index[count:] = start
            yield count, problem[index], noise[index.to(noise.instance.device)]

    def sample(
        self,
        problem: Problem,
        rule: Rule,
        steps: int | None = None,
        seed: int = 0,
        attempt: int = 0,
        batch: int | None = None,
        soft_until: float | None = None,
        progress: Callable[[int, int], None] | None = None,
        tries: int = 1,
    ) -> State:
        """Final states on the CPU, one per instance, then those of the next of the `tries`, all in full batches.

        Rules of the task are never looked at.
        """
        index = torch.arange(len(problem)).repeat(tries)
        attempts = torch.arange(attempt, attempt + tries).repeat_interleave(len(problem))
        noise = Noise(seed, index.to(self.device), attempts.to(self.device))
        problem = problem[index] if tries > 1 else problem
        finals, done = [], 0
        with cpu_threads(self.threads):
            for count, part, part_noise in self.chunks(problem, noise, batch):
                x = self.final(part, part_noise, rule, self.steps(steps), soft_until)
                finals.append(x[:count].float().cpu())
                done += count
                if progress is not None:
                    progress(done, len(problem))
        return torch.cat(finals)

    def check_belief(self) -> None:
        if not isinstance(self.codec, OneHot):
            raise LetgoError(f"boards are believed by their one-hot symbols; this model has {self.config.codec}")

    def belief(self, boards: Symbols, problem: Problem, noise: Noise) -> Float[Tensor, "batch"]:
        """How sure the network is of finished boards, 0 at most; all tries of a puzzle meet the same noise."""
        self.check_belief()
        clues = self.clues(Problem(boards, problem.given, problem.context))
        noise = Noise(noise.seed, noise.instance, torch.zeros_like(noise.attempt))
        denoise = self.denoise(problem.context, self.sample_precision)
        return belief(denoise, self.path, clues, clues.values, noise).cpu()

    def most_believed(
        self, tries: Int[Tensor, "tries boards cells"], problem: Problem, seed: int = 0, batch: int | None = None
    ) -> Int[Tensor, "boards"]:
        """Of each puzzle's finished boards the one that the network believes most: the number of its try."""
        noise, sure = Noise.first(seed, len(problem), self.device), []
        with cpu_threads(self.threads):
            for boards in tries:
                asked = Problem(boards, problem.given, problem.context)
                pieces = self.chunks(asked, noise, batch)
                sure.append(torch.cat([self.belief(p.solution, p, n)[:count] for count, p, n in pieces]))
        return torch.stack(sure).argmax(0)

    def parse(self, puzzles: Sequence[str] | Problem) -> Problem:
        if isinstance(puzzles, Problem):
            return puzzles
        if isinstance(puzzles, str) or not isinstance(puzzles, Sequence):
            raise LetgoError("puzzles must be a list of strings; wrap a single one: [puzzle]")
        if not all(isinstance(text, str) for text in puzzles):
            raise LetgoError("puzzles must be strings, one each; read a file of them with letgo.data.load_problems")
        if len(puzzles) == 0:
            raise LetgoError("no puzzles to solve; expected a list of strings, one puzzle each")
        problems = [self.task.parse(text) for text in puzzles]
        if len({p.solution.shape for p in problems}) > 1:
            raise LetgoError("puzzles of several sizes do not fit in one batch; solve them one size at a time")
        return Problem.cat(problems)

    def solve(
        self,
        puzzles: Sequence[str] | Problem,
        rule: str = "tweedie",
        steps: int | None = None,
        tries: int = 1,
        seed: int = 0,
        verify: bool = True,
        batch: int | None = None,
        progress: Callable[[int, int], None] | None = None,
        **settings: float | None,
    ) -> list[Answer]:
        """One record per puzzle. With `verify`, stop at the first valid proposal and retry only what is unsolved.

        Without, every try goes to its end, and of several the board that the network believes most is the answer; one
        that breaks a rule is not handed out.
        """
        problem, steps = self.parse(puzzles), self.steps(steps)
        if tries < 1:
            raise LetgoError(f"tries must be at least 1, got {tries}")
        choosing = tries > 1 and not verify
        if choosing:
            self.check_belief()
        soft_until = settings.pop("soft_until", None)
        made, _ = self.rule(rule, **settings)  # pyright: ignore[reportArgumentType]
        ledger = Ledger(problem, choosing)
        with cpu_threads(self.threads):
            for attempt in range(tries):
                rows = ledger.open()
                if len(rows) == 0:
                    break
                part = problem[rows]
                instance = identities(part).to(self.device)
                noise = Noise(seed, instance, torch.full_like(instance, attempt))
                for count, piece, piece_noise in self.chunks(part, noise, batch):
                    started = time.perf_counter()
                    found, valid, spent = self._attempt(piece, piece_noise, made, steps, verify, soft_until)
                    sure = self.belief(found, piece, piece_noise)[:count] if choosing else None
                    elapsed = (time.perf_counter() - started) / count
                    calls = spent[:count] * calls_per_step(rule) + choosing * len(BELIEF_TIMES)
                    ledger.enter(rows[:count], found[:count], valid[:count], calls, elapsed, sure)
                    rows = rows[count:]
                    if progress is not None:
                        progress(int(ledger.solved.sum()), len(problem))
        return ledger.answers(self.task)

    def _attempt(
        self, problem: Problem, noise: Noise, rule: Rule, steps: int, verify: bool, soft_until: float | None
    ) -> tuple[Symbols, Tensor, Tensor]:
        """Boards, whether each is valid, and the steps until it was. Without `verify` invalid boards come along."""
        boards = torch.zeros_like(problem.solution)
        done = torch.zeros(len(problem), dtype=torch.bool)
        spent = torch.full((len(problem),), steps)
        rows = torch.arange(len(problem))  # the boards that are still in the batch
        run, last = self.run(problem, noise, rule, steps, soft_until), None
        while (snapshot := next(run, None)) is not None:
            last = snapshot
            if not verify:
                continue
            proposal = torch.where(problem.given, problem.solution, self.codec.decode(last.x0_hat).cpu())
            new = self.task.validate(proposal, problem) & ~done[rows]
            boards[rows[new]], spent[rows[new]] = proposal[new], last.step
            done[rows] |= new
            if bool(done.all()):
                return boards, done, spent
            size = self.smaller_batch(len(done), len(rows), int((~done).sum()))
            if size < len(rows) and last.step < steps:
                kept = done[rows].long().argsort(stable=True)[:size]  # the unfinished first
                rows, problem, noise = rows[kept], problem[kept], noise[kept.to(noise.instance.device)]
                x_t = last.x[kept.to(last.x.device)].clone()
                run = self.run(problem, noise, rule, steps, soft_until, x_t=x_t, done=last.step)
        assert last is not None
        final = self.codec.decode(last.x).cpu()
        valid = self.task.validate(final, problem) & ~done[rows]
        kept = valid if verify else torch.ones_like(valid)
        boards[rows[kept]] = final[kept]
        done[rows] |= valid
        return boards, done, spent

    def smaller_batch(self, whole: int, size: int, left: int) -> int:
        """How many boards go on when `left` of the `size` in the batch, `whole` at first, are unfinished.

        On a GPU only to sizes that are compiled already: compiling takes longer than what is left. The plain path's
        own small chunks stay whole, so that an answer never depends on when its neighbours finish.
        """
        if self.device.type == "cpu":
            return left if self.fast_cpu or whole > self.default_batch() else size
        built = STEPS if self.loop is None else self.loop.sizes()
        return min([size, *(step for step in built if step >= left)])

    def generate(
        self,
        count: int,
        seed: int = 0,
        rule: str | None = None,
        steps: int | None = None,
        tries: int = 1,
        **settings: float | None,
    ) -> list[str]:
        """Unconditional samples as text, valid or not: no rule is looked at. Without `rule`, `generation_rule`."""
        problem, soft_until = self.empty(count), settings.pop("soft_until", None)
        name = rule or self.generation_rule()
        made, _ = self.rule(name, regime=self.generation, **settings)  # pyright: ignore[reportArgumentType]
        boards = self.draw(problem, made, steps, seed, tries, soft_until=soft_until)
        return self.task.format(boards, problem)

    def draw(
        self,
        problem: Problem,
        rule: Rule,
        steps: int | None = None,
        seed: int = 0,
        tries: int = 1,
        batch: int | None = None,
        soft_until: float | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Symbols:
        """Final boards; of several tries the one that the network believes most."""
        if tries > 1:
            self.check_belief()
        states = self.sample(problem, rule, steps, seed, 0, batch, soft_until, progress, tries)
        boards = self.codec.decode(states).unflatten(0, (tries, -1))
        if tries == 1:
            return boards[0]
        return boards[self.most_believed(boards, problem, seed, batch), torch.arange(len(problem))]

    @property
    def generation(self) -> str:
        """The regime without clues."""
        return "gen" if "gen" in self.task.regimes else "0"

    def generation_rule(self) -> str:
        """The rule that draws most valid boards from nothing, as the model's card has it; or Tweedie."""
        path = None if self.folder is None else self.folder / "card.json"
        card = read_json(path) if path is not None and path.is_file() else {}
        return str(card.get("generation_rule", "tweedie"))

    def empty(self, count: int) -> Problem:
        """No clues at all; only tasks without a context have such instances."""
        if count < 1:
            raise LetgoError(f"count must be at least 1, got {count}")
        if self.config.network == "nlm" or self.task.name == "maze":
            raise LetgoError(f"{self.task.name} answers a question; it has nothing to generate without one")
        board = torch.zeros(count, self.task.cells, dtype=torch.long)
        return Problem(board, torch.zeros(count, self.task.cells, dtype=torch.bool))

    def trajectory(
        self,
        puzzle: str | Problem,
        rule: str = "tweedie",
        steps: int | None = None,
        seed: int = 0,
        attempt: int = 0,
        **settings: float | None,
    ) -> Iterator[Snapshot]:
        """Every step of one puzzle: snapshot.t, snapshot.x, snapshot.x0_hat."""
        problem = puzzle if isinstance(puzzle, Problem) else self.parse([puzzle])
        soft_until = settings.pop("soft_until", None)
        made, _ = self.rule(rule, **settings)  # pyright: ignore[reportArgumentType]
        instance = identities(problem).to(self.device)
        noise = Noise(seed, instance, torch.full_like(instance, attempt))
        return self.run(problem, noise, made, self.steps(steps), soft_until)


def load(
    model: str | Path, device: str | torch.device = "cpu", fast: bool = True, threads: int = 1, precision: str = "auto"
) -> Solver:
    """A shipped name, a run folder, RUN@STEP or hub:ID. Without `fast` the network is used as it is."""
    config, network, folder = load_model(str(model))
    return Solver(config, network, device, folder, fast, threads, precision)
