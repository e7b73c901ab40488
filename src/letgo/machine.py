"""What a machine has: devices, precisions, threads."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import torch

from letgo.errors import LetgoError, unknown, whole_number

MOST_THREADS = 8  # boards are small: more gain nothing
PRECISIONS = ("auto", "fp32", "bf16")


def pick_device(name: str | torch.device) -> torch.device:
    """Return the device of a name: auto, cpu, cuda, mps, or one of several GPUs, such as cuda:1."""
    name = str(name)
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    count = {"cpu": 1, "cuda": torch.cuda.device_count(), "mps": int(torch.backends.mps.is_available())}
    kind, colon, number = name.partition(":")
    if kind not in count or (colon and not number.isdecimal()):
        raise unknown("device", name, ("auto", *count))
    if int(number or 0) >= count[kind]:
        there = " or ".join(f"{kind}:{i}" for i in range(count[kind])) if colon else ""
        raise LetgoError(f"device '{name}' is not available here; use --device {there or 'cpu'}")
    return torch.device(name)


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def pick_precision(name: str, device: torch.device, fast: bool, half: bool) -> str:
    """'auto' is bf16 on a GPU, fp32 elsewhere unless `half`."""
    if name not in PRECISIONS:
        raise unknown("precision", name, PRECISIONS)
    if name == "auto":
        return "bf16" if half or device.type == "cuda" else "fp32"
    if name == "bf16" and (device.type == "mps" or (device.type == "cpu" and not fast)):
        raise LetgoError(f"the plain path on '{device.type}' has fp32 only; choose --precision fp32")
    return name


def pick_threads(count: int | None) -> int:
    """Return as many threads as are asked for, as OMP_NUM_THREADS says, or as the machine has idle cores just now."""
    if count is not None:
        return count
    named = os.environ.get("OMP_NUM_THREADS", "")
    if named.isdecimal() and int(named) > 0:
        return int(named)
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(MOST_THREADS, cores - round(busy)))


def memory() -> float:
    """Return the bytes that this machine has or, in a container, lends; infinity where nobody says."""
    found: list[float] = [math.inf]
    with suppress(OSError, ValueError, AttributeError):
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return float(min(found))


def refuse_beyond_memory(count: int, each: int, what: str) -> None:
    """Refuse, before the work, what takes more memory than there is."""
    if count * each > memory():
        raise LetgoError(
            f"{count:,} {what} take {count * each / 1e9:,.0f} GB of memory, and this machine has "
            f"{memory() / 1e9:,.0f}; ask for fewer"
        )


@contextmanager
def cpu_threads(count: int) -> Iterator[None]:
    """Set torch's threads: a second one gains a fifth on an idle machine, and doubles the time on a busy one."""
    whole_number("threads", count, 1)
    before = torch.get_num_threads()
    if count == before:
        yield
        return
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
