"""Write the GPU tables of docs/performance.md from results/bench/*.json, between its markers, and draw the loss curves.

python tools/performance.py            # the test suite fails where the files have changed since
"""

import hashlib
import json
import statistics
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PAGE, BENCH = ROOT / "docs" / "performance.md", ROOT / "results" / "bench"
TRAINED = {  # bench files and what their rows are called
    "train-sudoku": "Sudoku, step",
    "train-sudoku-seeds3": "Sudoku, step, three seeds, per model",
    "train-queens": "14-queens, step, batch 256",
    "train-connectivity-ired": "graphs (`connectivity-ired`, N = 12), step, batch 64",
}
BEGIN, END = "<!-- gpu:begin -->", "<!-- gpu:end -->"


def read(name: str) -> dict[str, Any]:
    return json.loads((BENCH / f"{name}.json").read_text())


def row_of(report: dict[str, Any], path: str, objective: str | None = None) -> dict[str, Any]:
    rows = [r for r in report["rows"] if r["path"] == path and r.get("objective") == objective]
    assert len(rows) == 1, (path, objective)
    return rows[0]


def goals() -> list[str]:
    """The project's goals beside what was measured."""
    train, three, sample = read("train-sudoku"), read("train-sudoku-seeds3"), read("sample-sudoku")
    simple, both = (row_of(train, "ours", o)["ms"] for o in ("simple", "self-correction"))
    stacked = row_of(three, "ours", "simple")["ms"]
    speed = row_of(sample, "ours")["board_steps_per_second"]
    tenfold = read("pass-at-10")
    sampling = tenfold["seconds"] - tenfold["building_seconds"]
    return [
        "| Sudoku, batch 256, warm, no early exit | before | stage | goal | measured |",
        "|---|---|---|---|---|",
        f"| train step, simple loss | 2.1 ms | 1.4 | .8 | {simple:.2f} ms |",
        f"| train step, self-correction (App. C's form) | 3.0 ms | 2.0 | 1.15 | {both:.2f} ms |",
        f"| three seeds stacked, per model and step, simple | - | 1.2 | .6 | {stacked:.2f} ms |",
        f"| sampling, board-steps/s, bf16 | .69 M | 1.4 M | 2.5 M | {speed / 1e6:.2f} M |",
        "| Sudoku-Extreme pass@10: 20,000 trajectories of 1000 steps | 30 to 50 min (paper) | 20 s | 10 s | "
        f"{sampling:.1f} s |",
        "",
        f"The last row: `{tenfold['command']}`, sampling with all transfers, alone on the card. Compiling and "
        f"capturing took {tenfold['building_seconds']:.1f} s more; the start of the process (imports, model, data) and "
        "the scoring are not in it.",
    ]


def paths() -> list[str]:
    lines = [
        "| | ours, ms | plain, ms | plain / ours | TFLOP/s | of the large product | memory, MiB | warm-up | rebuilt |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, title in TRAINED.items():
        report = read(name)
        for objective in ("simple", "self-correction"):
            ours, plain = (row_of(report, path, objective) for path in ("ours", "plain"))
            lines.append(line(f"{title}, {objective}", ours, plain))
    report = read("sample-sudoku")
    ours = row_of(report, "ours")
    for path in ("plain", "diffusers"):
        lines.append(line(f"Sudoku, sampling {report['batch']:,} boards, against {path}", ours, row_of(report, path)))
    lines.append("")
    for name in (*TRAINED, "sample-sudoku"):
        report = read(name)
        lines.append(
            f"- `{report['command']}`: {report['device']}, torch {report['torch']}, large product "
            f"{report['matmul_peak_tflops']:.0f} TFLOP/s, copy {report['copy_gb_per_second'] / 1000:.2f} TB/s, "
            f"median of {report['repeats']} x {report['steps_each']} steps."
        )
    ratios = [
        row_of(read(name), "ours", "self-correction")["ms"] / row_of(read(name), "ours", "simple")["ms"]
        for name in ("train-sudoku", "train-queens", "train-connectivity-ired")
    ]
    lines.append(
        f"- Self-correction costs {ratios[0]:.2f} simple steps of Sudoku, {ratios[1]:.2f} of 14-queens, "
        f"{ratios[2]:.2f} of graphs; App. C says 1.43."
    )
    return lines


def line(title: str, ours: dict[str, Any], other: dict[str, Any]) -> str:
    return (
        f"| {title} | {ours['ms']:.3f} | {other['ms']:.2f} | {other['ms'] / ours['ms']:.1f} | {ours['tflops']:.3g} | "
        f"{ours['share_of_peak']:.1%} | {ours['peak_memory'] / 2**20:,.0f} | {ours['warm_up_seconds']:.0f} s | "
        f"{ours['rebuilt']} |"
    )


def listed(columns: list[str], rows: list[list[Any]], what: str) -> list[str]:
    lines = [f"| | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    lines += [f"| {' | '.join('-' if cell is None else str(cell) for cell in row)} |" for row in rows]
    return [*lines, "", f"({what[0].upper()}{what[1:]}.)"]


def designs() -> list[str]:
    train, sample = read("designs"), read("sampling-designs")
    later, counters = sample["training"], sample["counters"]
    heads = ["issue slots busy, %", "busiest pipe, %", "memory bandwidth, %", "warps"]
    return [
        "Training:", "", *listed(train["columns"], train["rows"], train["what"]), "",
        "Sampling:", "", *listed(sample["columns"], sample["rows"], sample["what"]), "",
        "What the later designs of sampling do to training, whose rows above are older:", "",
        *listed(later["columns"], later["rows"], later["what"]), "",
        "Sudoku-Extreme pass@10, 20,000 trajectories of 1000 steps:", "",
        *listed(["s"], read("pass-at-10")["tries"], "without compiling and capturing"), "",
        "Hardware counters:", "", *listed(heads, counters["rows"], counters["what"]),
    ]  # fmt: skip


def same() -> list[str]:
    report = read("fast-and-plain")
    loss, queens = report["loss"], report["loss_queens"]
    late = [i for i, step in enumerate(loss["steps"]) if step > 10_000]
    means = {path: statistics.mean(loss[path][i] for i in late) for path in ("plain", "fast")}
    apart = max(abs(f / p - 1) for f, p in zip(loss["fast"], loss["plain"], strict=True))
    lines = [
        f"Loss from step 10,000 to 20,000: {means['plain']:.5f} on the plain network (compiled by torch, 1,000,000 "
        f"boards), {means['fast']:.5f} with the fused kernels (the first 600,000 of them); the means of 500 "
        f"steps are never more than {apart:.1%} apart (other random numbers, so noise too).",
        "",
        "![Loss of both paths](assets/fast-and-plain.svg)",
        "",
        f"14-queens, the first {queens['steps'][-1]:,} steps: {', '.join(f'{v:.4f}' for v in queens['plain'])} and "
        f"{', '.join(f'{v:.4f}' for v in queens['fast'])} ({queens['what']}).",
        "",
        "| rule | fast | plain bf16 | plain fp32 | boards equal to plain fp32 |",
        "|---|---|---|---|---|",
    ]
    for row in report["validity"]["rows"]:
        cells = [
            f"{v:.3f} [{low:.3f}, {high:.3f}]" for v, low, high in (row["fast"], row["plain bf16"], row["plain fp32"])
        ]
        lines.append(f"| {row['rule']} | {' | '.join(cells)} | {row['boards equal to plain fp32']:.0%} |")
    lines += ["", f"({report['validity']['what']}.) Later, with the bf16 residual stream:", ""]
    for part in report["validity"]["later"]:
        lines += ["| model | rule | fast | fp32 on the CPU |", "|---|---|---|---|"]
        for row in part["rows"]:
            cells = [f"{v:.3f} [{low:.3f}, {high:.3f}]" for v, low, high in (row["fast"], row["fp32 on the CPU"])]
            lines.append(f"| {row['model']} | {row['rule']} | {' | '.join(cells)} |")
        lines += ["", f"({part['what']}.)", ""]
    return lines[:-1]


def seconds() -> list[str]:
    """2M steps at the measured speed beside App. F.2."""

    def minutes(name: str) -> str:
        simple, both = (row_of(read(name), "ours", o)["ms"] * 2e6 / 60e3 for o in ("simple", "self-correction"))
        return f"{simple:.0f} minutes with the simple loss and {both:.0f} with self-correction"

    return [
        f"At these speeds 2,000,000 steps take, of Sudoku, {minutes('train-sudoku')}; of 14-queens, "
        f"{minutes('train-queens')}; of graphs (two layers), {minutes('train-connectivity-ired')}. "
        "The paper's RTX 3090 took 17, 10 and 44 hours (App. F.2).",
    ]


def block() -> str:
    parts = [goals(), paths(), seconds(), ["### Both paths learn and answer the same", "", *same()]]
    parts.append(["### Designs that were measured", "", *designs()])
    return "\n\n".join("\n".join(part) for part in parts)


def digest() -> str:
    """The sha256 of the bench files: the page says from which it was made."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(BENCH.glob("*.json")))).hexdigest()


def page(text: str) -> str:
    before, rest = text.split(BEGIN)
    return f"{before}{BEGIN}\n<!-- sha256 {digest()} -->\n{block()}\n{END}{rest.split(END)[1]}"


def draw() -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "letgo"
    import matplotlib.pyplot as plt

    loss = read("fast-and-plain")["loss"]
    figure, axes = plt.subplots(figsize=(6, 3))
    for path, style in (("plain", "-"), ("fast", "--")):
        axes.plot(loss["steps"], loss[path], style, label=path)
    axes.set(xlabel="step", ylabel="simple loss (mean of 500 steps)", ylim=(0.013, 0.03))
    axes.legend()
    figure.tight_layout()
    figure.savefig(ROOT / "docs" / "assets" / "fast-and-plain.svg", metadata={"Date": None})


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    draw()
