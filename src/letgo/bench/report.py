"""A bench's JSON, and the same as a table for a reader."""

from __future__ import annotations

from statistics import median
from typing import Any

import torch

from letgo import __version__
from letgo.config import Config
from letgo.machine import device_name


def head(what: str, config: Config, device: torch.device, peak: float, bandwidth: float) -> dict[str, Any]:
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


def spread(name: str, values: list[float]) -> dict[str, Any]:
    return {name: median(values), "low": min(values), "high": max(values)}


def share(flops_per_second: float, peak: float) -> dict[str, float]:
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
