"""How fast: our paths, the plain eager ones and a `diffusers` scheduler loop, in one run on one machine.

Speed does not depend on the weights: sampling takes the shipped ones where there are any, training starts afresh.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, product
from statistics import median
from typing import Any, TypeVar
from unittest import mock

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from letgo import __version__
from letgo.checkpoints import load_model, shipped
from letgo.errors import LetgoError
from letgo.evaluate import device_name, instances
from letgo.kernels import ddpm
from letgo.paths import CosinePath
from letgo.pinning import Clues
from letgo.presets import Config
from letgo.rng import KERNEL, START, Noise, data_rng
from letgo.shapes import State
from letgo.solver import Solver
from letgo.tasks import Problem
from letgo.trainer import WARM_STEPS, Trainer, TrainingData

BOARDS = 512  # training instances: speed does not depend on how many there are, and mazes take long to make
OBJECTIVES = ("simple", "self-correction")
Key = TypeVar("Key")
APPENDIX_C = 1.43  # self-correction's cost over the simple loss in the paper


# ---------------------------------------------------------------- clocks


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
    elif device.type == "mps":
        torch.mps.synchronize()


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Wall-clock seconds until the device is idle again."""
    synchronize(device)
    started = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - started


def race(works: dict[Key, Callable[[], object]], repeats: int, device: torch.device) -> dict[Key, list[float]]:
    """Each in turn, again and again: what slows the machine down for a while slows all of them."""
    taken: dict[Key, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            taken[name].append(seconds(work, device))
    return taken


def matmul_peak(device: torch.device, half: bool | None = None) -> float:
    """FLOP/s of one large product: bf16 or fp32 as `half` says, by default as the device trains."""
    gpu = device.type == "cuda"
    size, kind = 8192 if gpu else 1024, torch.bfloat16 if (gpu if half is None else half) else torch.float32
    a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    turns = 20 if gpu else 3

    def work() -> None:
        for _ in range(turns):
            torch.mm(a, b)

    seconds(work, device)
    return 2 * size**3 * turns / min(seconds(work, device) for _ in range(3))


def copy_bandwidth(device: torch.device) -> float:
    """Bytes per second, read and written, of a copy far larger than any cache."""
    source = torch.zeros((2**30 if device.type == "cuda" else 2**27) // 4, device=device)
    target = torch.empty_like(source)

    def work() -> Tensor:
        return target.copy_(source)

    seconds(work, device)
    return 2 * source.nbytes / min(seconds(work, device) for _ in range(3))


def builds() -> int:
    """Graphs that torch.compile has built in this process so far."""
    dynamo = sys.modules.get("torch._dynamo.utils")  # if nobody imported it, nothing was compiled
    return 0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"])


class Memory:
    """Peak bytes on a GPU beyond what was there before; None elsewhere."""

    def __init__(self, device: torch.device):
        self.device, self.before = device, 0
        if device.type == "cuda":
            gc.collect()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            self.before = torch.cuda.memory_allocated()

    def peak(self) -> int | None:
        return torch.cuda.max_memory_allocated() - self.before if self.device.type == "cuda" else None


def process_peak() -> int | None:
    """The largest resident size of this process so far, in bytes."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


# ---------------------------------------------------------------- counting


@dataclass(frozen=True)
class Work:
    """What one board costs, counted on the plain network: matrix products and attention."""

    forward: int  # FLOPs of a forward pass
    both: int  # FLOPs of a forward and a backward pass
    kept: int  # bytes that autograd keeps between the two
    weights: int  # number of parameters
    state: int  # entries of a state

    @staticmethod
    def of(config: Config, problem: Problem, half: bool) -> Work:
        network = config.build_model().eval()  # a dropout mask is nothing that must be kept
        state = config.build_codec().encode(problem.solution[:1])
        weights = sum(p.numel() for p in network.parameters())
        forward, both = (_flops(network, state, problem, backward) for backward in (False, True))
        once, twice = (_kept(network, state.repeat(n, 1, 1), problem, half) for n in (1, 2))
        return Work(forward, both, twice - once, weights, state.numel())

    def step_flops(self, config: Config) -> int:
        """Of an optimiser step: Eq. 4, or Eq. 9 as App. C or Algorithm 2 has it."""
        if config.objective == "simple":
            return config.batch * self.both
        if config.full_gradient:
            return 2 * config.batch * self.both
        return config.batch * self.forward + (config.batch + int(config.simple_weight * config.batch)) * self.both

    def step_bytes(self, config: Config) -> int:
        """Weights, gradients and Adam's two moments read and written (fp32), and what autograd keeps likewise."""
        rows = config.batch if config.objective == "simple" else int((1 + config.simple_weight) * config.batch)
        return 8 * 4 * self.weights + 2 * rows * self.kept

    def sample_bytes(self, batch: int, half: bool) -> int:
        """Of a reverse step, all else staying on the chip: weights read, states read and written."""
        return self.weights * (2 if half else 4) + batch * 2 * 4 * self.state


def _predict(network: nn.Module, state: State, problem: Problem) -> State:
    """x0_hat of copies of the first instance."""
    context = None if problem.context is None else problem.context[:1].float().expand(len(state), -1, -1)
    return network(state, torch.full((len(state), 1, 1), 0.5), context)


def _flops(network: nn.Module, state: State, problem: Problem, backward: bool) -> int:
    counter = FlopCounterMode(display=False)
    with counter, torch.set_grad_enabled(backward), sdpa_kernel(SDPBackend.MATH):  # as products, which it can count
        x0_hat = _predict(network, state, problem)
        if backward:
            x0_hat.square().mean().backward()
    return counter.get_total_flops()


def _kept(network: nn.Module, state: State, problem: Problem, half: bool) -> int:
    """Bytes that autograd keeps of a forward pass, weights apart."""
    weights = {p.untyped_storage().data_ptr() for p in network.parameters()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor  # held, so that no address is used twice
        return tensor

    cast = torch.autocast("cpu", torch.bfloat16, cache_enabled=False) if half else nullcontext()
    with cast, torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        x0_hat = _predict(network, state, problem)
    assert x0_hat.requires_grad
    return sum(tensor.untyped_storage().nbytes() for address, tensor in kept.items() if address not in weights)


# ---------------------------------------------------------------- training


def bench_train(
    config: Config,
    device: torch.device,
    steps: int | None = None,
    repeats: int = 5,
    seeds: int = 1,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Milliseconds per optimiser step and model, warm, of both objectives; ours with `seeds` models stacked."""
    gpu = device.type == "cuda"
    task = config.build_task()
    problem = task.generate(BOARDS, data_rng(0, "train"), "train")
    data = TrainingData.of(problem, config.masks, device)
    half = gpu and config.precision in ("auto", "bf16", "fp16")
    work, peak = Work.of(config, problem[:1], half), matmul_peak(device)
    paths = ("ours", "plain") if gpu or seeds > 1 else ("plain",)
    runs: dict[tuple[str, str], Trainer] = {}
    notes: dict[tuple[str, str], dict[str, Any]] = {}
    for objective, path in product(OBJECTIVES, paths):
        say(f"{objective}, {path}: warming up")
        memory, ours, case = Memory(device), path == "ours", replace(config, objective=objective)
        trainer = Trainer(case, data, device, None if ours else False, range(seeds) if ours else ())
        warm = WARM_STEPS + 4 if gpu and ours else 3
        first = seconds(partial(_advance, trainer, warm), device)
        notes[objective, path] = {"warm_up_seconds": round(first, 2), "peak_memory": memory.peak()}
        runs[objective, path] = trainer
        if steps is None:  # half a second where a step is short
            steps = 200 if gpu else max(1, min(50, round(0.5 * warm / first)))
    assert steps is not None
    before = builds() + sum(trainer.captures for trainer in runs.values())
    say(f"{repeats} times {steps} steps of each")
    taken = race({key: partial(_advance, trainer, steps) for key, trainer in runs.items()}, repeats, device)
    rebuilt = builds() + sum(trainer.captures for trainer in runs.values()) - before
    rows: list[dict[str, Any]] = []
    for (objective, path), times in taken.items():
        models = len(runs[objective, path].seeds)
        per_step = [1e3 * second / steps / models for second in times]
        flops = work.step_flops(replace(config, objective=objective))
        rows.append({
            "objective": objective,
            "path": path,
            "models": models,
            **_spread("ms", per_step),
            **_share(flops / (median(per_step) / 1e3), peak),
            **notes[objective, path],
            "rebuilt": rebuilt,
        })  # fmt: skip
    memory_used = process_peak()
    bandwidth = copy_bandwidth(device)  # last: its buffers are larger than all else on a CPU
    counted = {o: replace(config, objective=o) for o in OBJECTIVES}
    return {
        **_head("train", config, device, peak, bandwidth),
        "weights": "freshly drawn",
        "batch": config.batch,
        "seeds": seeds,
        "steps_each": steps,
        "repeats": repeats,
        "step_flops": {o: work.step_flops(c) for o, c in counted.items()},
        "step_bytes": {o: work.step_bytes(c) for o, c in counted.items()},
        "floor_ms": {
            o: {"arithmetic": 1e3 * work.step_flops(c) / peak, "bytes": 1e3 * work.step_bytes(c) / bandwidth}
            for o, c in counted.items()
        },
        "rows": rows,
        "ratios": _train_ratios(rows),
        "process_peak_memory": memory_used,
    }


def _advance(trainer: Trainer, steps: int) -> None:
    for _ in range(steps):
        trainer.step()


def _train_ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    ms = {(row["objective"], row["path"]): row["ms"] for row in rows}
    ratios = {}
    for objective in OBJECTIVES:
        if (objective, "ours") in ms:
            ratios[f"plain / ours, {objective}"] = ms[objective, "plain"] / ms[objective, "ours"]
    for path in ("ours", "plain"):
        if ("simple", path) in ms:
            ratios[f"self-correction / simple, {path}"] = ms["self-correction", path] / ms["simple", path]
    return ratios | {"self-correction / simple, App. C": APPENDIX_C}


# ---------------------------------------------------------------- sampling


def bench_sample(
    config: Config,
    device: torch.device,
    batch: int | None = None,
    steps: int | None = None,
    repeats: int = 5,
    threads: int = 1,
    precision: str = "auto",
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Board-steps per second of DDPM to the last step, one batch: ours, plain, and diffusers' DDPMScheduler.

    Ours has by default the precision of `letgo solve`; the two others have the device's plain one.
    """
    gpu = device.type == "cuda"
    has_weights = config.name in shipped()
    if has_weights:
        config, network, _ = load_model(config.name)
    else:
        torch.manual_seed(0)
        network = config.build_model()
    precision = Solver(config, network, device.type, precision=precision).precision
    ours = Solver(config, network, device.type, threads=threads, precision=precision)
    plain = Solver(config, network, device.type, fast=False, threads=threads)
    batch = batch or (ours.default_batch() if gpu else 16)
    steps = steps or (200 if gpu else 20)
    problem = instances(ours.task, None, batch, 0)
    precisions = {"ours": precision, "plain": plain.precision, "diffusers": plain.precision}
    peaks = {kind: matmul_peak(device, kind == "bf16") for kind in set(precisions.values())}
    work, peak = Work.of(config, problem[:1], gpu), peaks[precision]
    notes: dict[str, dict[str, Any]] = {}
    works: dict[str, Callable[[], object]] = {
        name: partial(solver.sample, problem, ddpm, steps, batch=batch)
        for name, solver in (("ours", ours), ("plain", plain))
    }
    try:
        scheduler = make_scheduler(config, steps)
        clues = plain.clues(problem)
        works["diffusers"] = partial(scheduler_loop, plain, scheduler, problem, clues)
        notes["diffusers"] = {"difference": agreement(config, deepcopy(network), problem[:4], min(steps, 10))}
    except LetgoError as error:
        notes["diffusers"] = {"note": str(error)}
    for name, sample in works.items():
        say(f"{name}: warming up")
        memory = Memory(device)
        first = seconds(sample, device)
        notes[name] = {"warm_up_seconds": round(first, 2), **notes.get(name, {}), "peak_memory": memory.peak()}
    before = builds() + _captured(ours)
    say(f"{repeats} times {batch} boards, {steps} steps")
    taken = race(works, repeats, device)
    rebuilt, memory_used = builds() + _captured(ours) - before, process_peak()
    bandwidth = copy_bandwidth(device)  # last: its buffers are larger than all else on a CPU
    rows: list[dict[str, Any]] = []
    for name, times in taken.items():
        speeds = [batch * steps / second for second in times]
        rows.append({
            "path": name,
            "precision": precisions[name],
            **_spread("board_steps_per_second", speeds),
            "ms": 1e3 * median(times) / steps,
            **_share(work.forward * median(speeds), peaks[precisions[name]]),
            **notes[name],
            "rebuilt": rebuilt,
        })  # fmt: skip
    if "diffusers" not in works:
        rows.append({"path": "diffusers", **notes["diffusers"]})
    speed = {row["path"]: row["board_steps_per_second"] for row in rows if "ms" in row}
    return {
        **_head("sample", config, device, peak, bandwidth),
        "weights": "shipped" if has_weights else "freshly drawn",
        "rule": "ddpm",
        "batch": batch,
        "steps_each": steps,
        "repeats": repeats,
        "board_step_flops": work.forward,
        "step_bytes": work.sample_bytes(batch, precision == "bf16"),
        "floor_board_steps_per_second": {
            "arithmetic": peak / work.forward,
            "bytes": batch * bandwidth / work.sample_bytes(batch, precision == "bf16"),
        },
        "rows": rows,
        "ratios": {f"ours / {p}": speed["ours"] / speed[p] for p in speed if p != "ours"},
        "process_peak_memory": memory_used,
    }


def _captured(solver: Solver) -> int:
    return 0 if solver.loop is None else len(solver.loop.steps)


def make_scheduler(config: Config, steps: int) -> Any:
    """diffusers' DDPMScheduler on our grid: beta_i = 1 - delta(t_i), so its cumulative products are alpha(t_i)^2."""
    try:
        from diffusers.schedulers.scheduling_ddpm import DDPMScheduler  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise LetgoError("diffusers is not installed") from None
    path = config.build_path()
    if not isinstance(path, CosinePath):
        raise LetgoError("diffusers' DDPM needs a variance-preserving path")
    alpha = path.alpha(torch.linspace(0, 1, steps + 1, dtype=torch.float64).view(-1, 1, 1)).flatten()
    betas = (1 - (alpha[1:] / alpha[:-1]) ** 2).tolist()
    return DDPMScheduler(
        num_train_timesteps=steps,
        trained_betas=betas,
        prediction_type="sample",
        clip_sample=False,
        variance_type="fixed_small",
    )


def scheduler_loop(
    solver: Solver, scheduler: Any, problem: Problem, clues: Clues, noise: Callable[[int], State] | None = None
) -> State:
    """The loop that diffusers' users write, on our network: its own draws, or those of `noise` (0 is x_T)."""
    device, shape = solver.device, clues.values.shape
    context = None if problem.context is None else problem.context.to(device)
    half: AbstractContextManager[Any] = nullcontext()
    if device.type == "cuda":
        half = torch.autocast("cuda", torch.bfloat16)
    replaced: AbstractContextManager[Any] = nullcontext()
    if noise is not None:
        draws = map(noise, count(1))
        module = sys.modules[type(scheduler).__module__]
        replaced = mock.patch.object(module, "randn_tensor", side_effect=lambda *_, **__: next(draws))
    generator = torch.Generator(device).manual_seed(0)
    scheduler.set_timesteps(scheduler.config.num_train_timesteps, device=device)
    with torch.no_grad(), replaced:
        x = torch.randn(shape, device=device, generator=generator) if noise is None else noise(0)
        x = clues.pin(x)
        for t in scheduler.timesteps:
            time = ((t + 1) / len(scheduler.timesteps)).expand(len(x), 1, 1)
            with half:
                x0_hat = solver.network(x, time, context)
            x = clues.pin(scheduler.step(x0_hat, t, x, generator=generator).prev_sample)
    return x.cpu()


def agreement(config: Config, network: nn.Module, problem: Problem, steps: int) -> float:
    """Largest difference between our last state and the scheduler's: same weights and noise, CPU, fp32."""
    solver = Solver(config, network, "cpu", fast=False)
    clues, noise = solver.clues(problem), Noise.first(0, len(problem))
    cells, dim = clues.values.shape[1:]

    def draw(step: int) -> State:
        return noise.normal(step, KERNEL if step else START, cells, dim)

    theirs = scheduler_loop(solver, make_scheduler(config, steps), problem, clues, draw)
    *_, last = solver.run(problem, noise, ddpm, steps)
    return float((last.x - theirs).abs().max())


# ---------------------------------------------------------------- reports


def _head(what: str, config: Config, device: torch.device, peak: float, bandwidth: float) -> dict[str, Any]:
    return {
        "bench": what,
        "preset": config.name,
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "version": __version__,
        "matmul_peak_tflops": peak / 1e12,
        "copy_gb_per_second": bandwidth / 1e9,
    }


def _spread(name: str, values: list[float]) -> dict[str, Any]:
    return {name: median(values), "low": min(values), "high": max(values)}


def _share(flops_per_second: float, peak: float) -> dict[str, float]:
    return {"tflops": flops_per_second / 1e12, "share_of_peak": flops_per_second / peak}


def summary(report: dict[str, Any]) -> str:
    """The report as a table for a reader."""
    size = f"batch {report['batch']}" + (
        f", ours {report['seeds']} models stacked" if report.get("seeds", 1) > 1 else ""
    )
    lines = [
        f"{report['bench']} {report['preset']}, {size}, {report['weights']} weights; {report['device']}, "
        f"{report['threads']} thread(s), torch {report['torch']}",
        f"large product {report['matmul_peak_tflops']:.3g} TFLOP/s, copy {report['copy_gb_per_second']:.3g} GB/s; "
        f"median of {report['repeats']} x {report['steps_each']} steps",
    ]
    train = report["bench"] == "train"
    head = f"{'':26}{'ms/step':>9}{'' if train else ' board-steps/s':>14}{'TFLOP/s':>9}{'of peak':>9}{'memory':>10}"
    lines.append(head + f"{'warm-up':>10}{'rebuilt':>9}")
    for row in report["rows"]:
        name = f"{row['objective']}, {row['path']}" if train else row["path"]
        name += f", {row['precision']}" if "precision" in row else ""
        if "ms" not in row:
            lines.append(f"{name:26}{row['note']}")
            continue
        speed = "" if train else f"{row['board_steps_per_second']:,.0f}"
        memory = "-" if row["peak_memory"] is None else f"{row['peak_memory'] / 2**20:,.0f} MiB"
        lines.append(
            f"{name:26}{row['ms']:>9.3f}{speed:>14}{row['tflops']:>9.3g}{row['share_of_peak']:>9.1%}{memory:>10}"
            f"{row['warm_up_seconds']:>8.1f} s{row['rebuilt']:>9}"
        )
    if train:
        for objective, floor in report["floor_ms"].items():
            lines.append(
                f"floors, {objective}: {floor['arithmetic']:.3g} ms of arithmetic, {floor['bytes']:.3g} ms of bytes"
            )
    else:
        floor = report["floor_board_steps_per_second"]
        lines.append(f"floors: {floor['arithmetic']:,.0f} board-steps/s by arithmetic, {floor['bytes']:,.0f} by bytes")
        for row in report["rows"]:
            if "difference" in row:
                lines.append(f"same noise, same weights: the two loops end {row['difference']:.1e} apart (CPU, fp32)")
    if report["process_peak_memory"] is not None:
        lines.append(f"largest size of this process: {report['process_peak_memory'] / 2**20:,.0f} MiB")
    lines += [f"{name}: {ratio:.2f}" for name, ratio in report["ratios"].items()]
    return "\n".join(lines)
