"""The clock measures seconds, bytes and FLOPs, and what the device could do at best."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, TypeVar

import torch

from letgo.engines import cuda

Key = TypeVar("Key")
Say = Callable[[str], None]


def seconds(work: Callable[[], object], device: torch.device) -> float:
    """Return wall-clock seconds until the device is idle again."""
    wait = {"cuda": torch.cuda.synchronize, "mps": torch.mps.synchronize}.get(device.type, lambda: None)
    wait()
    started = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - started


def race(works: dict[Key, Callable[[], object]], repeats: int, device: torch.device) -> dict[Key, list[float]]:
    """Run each in turn, again and again: what slows the machine down for a while slows all of them."""
    taken: dict[Key, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            taken[name].append(seconds(work, device))
    return taken


def best(work: Callable[[], object], device: torch.device) -> float:
    """Return the least seconds of three runs after a first one."""
    return min([seconds(work, device) for _ in range(4)][1:])


def matmul_peak(device: torch.device, half: bool | None = None) -> float:
    """Measure FLOP/s of one large product: bf16 or fp32 as `half` says, by default as the device trains."""
    gpu = device.type == "cuda"
    size, turns = (8192, 20) if gpu else (1024, 3)
    kind = torch.bfloat16 if (gpu if half is None else half) else torch.float32
    a, b = (torch.randn(size, size, device=device, dtype=kind) for _ in range(2))
    return 2 * size**3 * turns / best(lambda: [torch.mm(a, b) for _ in range(turns)], device)


def copy_bandwidth(device: torch.device) -> float:
    """Measure bytes per second, read and written, of a copy far larger than any cache."""
    source = torch.zeros((2**30 if device.type == "cuda" else 2**27) // 4, device=device)
    target = torch.empty_like(source)
    return 2 * source.nbytes / best(lambda: target.copy_(source), device)


def builds() -> int:
    """Count the graphs that torch.compile has built and CUDA has captured in this process so far."""
    dynamo = sys.modules.get("torch._dynamo.utils")  # if nobody imported it, nothing was compiled
    return cuda.captures + (0 if dynamo is None else int(dynamo.counters["stats"]["unique_graphs"]))


def memory_before(device: torch.device) -> int:
    """Return the bytes that a GPU holds now; the peak is counted anew."""
    if device.type != "cuda":
        return 0
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


@dataclass(frozen=True)
class Case:
    """A Case is one way to do the work: `advance` takes so many steps, each of `flops` FLOPs a model."""

    labels: dict[str, str]  # as its row names it
    advance: Callable[[int], object]
    flops: int
    peak: float  # FLOP/s of the device in this precision
    models: int = 1
    warm_up: int | None = None  # steps before timing; None: as many as are timed


def measure(works: Iterable[Case], steps: int, repeats: int, device: torch.device, say: Say) -> list[dict[str, Any]]:
    """Return a row of figures for each case, timed in turns.

    A generator builds each case when its turn to warm up comes: what it allocates counts as its memory.
    """
    cases: list[Case] = []
    notes: list[dict[str, Any]] = []
    before = memory_before(device)
    for case in works:
        say(f"{', '.join(case.labels.values())}: warming up")
        first = seconds(partial(case.advance, case.warm_up or steps), device)
        peak = torch.cuda.max_memory_allocated() - before if device.type == "cuda" else None
        notes.append({"warm_up_seconds": round(first, 2), "peak_memory": peak})
        cases.append(case)
        before = memory_before(device)
    built = builds()
    say(f"{repeats} times {steps} steps of each")
    taken = race({i: partial(case.advance, steps) for i, case in enumerate(cases)}, repeats, device)
    rebuilt, rows = builds() - built, []
    for case, times, note in zip(cases, taken.values(), notes, strict=True):
        ms = [1e3 * taken / steps / case.models for taken in times]
        speed = 1e3 * case.flops / median(ms)
        figures = {"ms": median(ms), "low": min(ms), "high": max(ms)}
        share = {"tflops": speed / 1e12, "share_of_peak": speed / case.peak}
        rows.append({**case.labels, "models": case.models, **figures, **share, **note, "rebuilt": rebuilt})
    return rows
