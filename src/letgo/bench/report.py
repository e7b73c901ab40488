"""What a step costs on paper, a bench's JSON, and the same as a table for a reader."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from letgo import __version__
from letgo.bench.clock import copy_bandwidth
from letgo.config import Config
from letgo.machine import device_name
from letgo.objectives import simple_rows
from letgo.tasks import Problem


def board_flops(config: Config, problem: Problem, backward: bool = False) -> int:
    """Count FLOPs of a forward pass (and a backward one) of a board: products and attention of the plain network."""
    network, state = config.build_model(), config.build_codec().encode(problem.solution[:1])
    context, counter = None if problem.context is None else problem.context[:1].float(), FlopCounterMode(display=False)
    with counter, torch.set_grad_enabled(backward), sdpa_kernel(SDPBackend.MATH):  # as products, which it can count
        x0_hat = network(state, torch.full((1, 1, 1), 0.5), context)
        if backward:
            x0_hat.square().mean().backward()
    return counter.get_total_flops()


def step_flops(config: Config, problem: Problem) -> int:
    """Count FLOPs of an optimiser step: Eq. 4, or Eq. 9 as App. C or Algorithm 2 has it."""
    both = board_flops(config, problem, backward=True)
    if config.objective == "simple":
        return config.batch * both
    if config.full_gradient:
        return 2 * config.batch * both
    rows = config.batch + simple_rows(config.simple_weight, config.batch)
    return config.batch * board_flops(config, problem) + rows * both


def head(what: str, config: Config, device: torch.device, peak: float) -> dict[str, Any]:
    return {
        "bench": what,
        "preset": config.name,
        "device": device_name(device),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "version": __version__,
        "matmul_peak_tflops": peak / 1e12,
        "copy_gb_per_second": copy_bandwidth(device) / 1e9,
    }


def summary(report: dict[str, Any]) -> str:
    """Write the report as a table for a reader."""
    train, models = report["bench"] == "train", report.get("seeds", 1)
    size = f"batch {report['batch']}" + (f", ours {models} models stacked" if models > 1 else "")
    lines = [
        f"{report['bench']} {report['preset']}, {size}, {report['weights']} weights; {report['device']}, "
        f"{report['threads']} thread(s), torch {report['torch']}",
        f"large product {report['matmul_peak_tflops']:.3g} TFLOP/s, copy {report['copy_gb_per_second']:.3g} GB/s; "
        f"median of {report['repeats']} x {report['steps_each']} steps",
        f"{'':26}{'ms/step':>9}{'' if train else ' board-steps/s':>14}{'TFLOP/s':>9}{'of peak':>9}{'memory':>10}"
        f"{'warm-up':>10}{'rebuilt':>9}",
    ]
    for row in report["rows"]:
        name = ", ".join(row[key] for key in ("objective", "path", "precision") if key in row)
        speed = "" if train else f"{row['board_steps_per_second']:,.0f}"
        memory = "-" if row["peak_memory"] is None else f"{row['peak_memory'] / 2**20:,.0f} MiB"
        lines.append(
            f"{name:26}{row['ms']:>9.3f}{speed:>14}{row['tflops']:>9.3g}{row['share_of_peak']:>9.1%}{memory:>10}"
            f"{row['warm_up_seconds']:>8.1f} s{row['rebuilt']:>9}"
        )
    lines += [f"{name}: {ratio:.2f}" for name, ratio in report["ratios"].items()]
    return "\n".join([*lines, *report.get("notes", [])])
