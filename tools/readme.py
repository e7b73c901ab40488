"""Write the README's section of results from results/*.json, between its two markers.

python tools/readme.py            # the test suite fails where the README and the files disagree
"""

import json
from pathlib import Path
from typing import Any

from letgo.paper import OBJECTIVES, RULES, TABLE1, TABLE7, Cell, Column, Table
from letgo.reproduce.appendix import by_rule, spread
from letgo.reproduce.compare import Result, data_text, result, steps_span, together
from letgo.reproduce.store import SOLVE, Report, Store

ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "src" / "letgo" / "shipped"
BEGIN, END = "<!-- results:begin -->", "<!-- results:end -->"
NAMES = {
    "ddpm": "DDPM",
    "euler": "Euler",
    "em": "Euler-Maruyama",
    "em-decay": "EM decay",
    "tweedie": "**Tweedie reprojection**",
}
OTHERS = {  # recipes that are not the paper's, and how they differ
    "sudoku-extreme": {"sudoku-extreme-deep": "eight layers instead of the paper's four"},
    "connectivity": {"connectivity-ired": "IRED's network as released, two layers instead of four"},
}
DRAWN = (
    ("queens", "gen", 200, "14-queens from nothing"),
    ("latin", "gen", 200, "Latin squares from nothing"),
    ("sudoku", "hard", 200, "hard Sudoku"),
    ("sudoku", "0", 200, "Sudoku from nothing"),
    ("sudoku-extreme-deep", "test", 1000, "`sudoku-extreme-deep`"),
)
LETTING_GO = ("resample", "tweedie", "em-decay")
UNITS = {"sudoku": "clues", "connectivity": "nodes"}
FEW = 2000  # instances per seed, where not said otherwise
SUDOKU = TABLE1.columns[0]
MAZES, WAYS = "maze-muon", ("a way", "a shortest way", "a way, one of ten", "a shortest way, one of ten")
HEAD = ["| | DDPM | EM decay | Tweedie | self-corrected: DDPM | EM decay | Tweedie |", "|---|---|---|---|---|---|---|"]


def cell(found: Result | None) -> str:
    if found is None:
        return "-"
    fewer = "" if found.n == FEW * len(found.reports) else f" (n = {found.n})"
    between = "" if found.std is None else f" ± {found.std:.3f}"
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]{between}{fewer}"


def short(found: Result | None) -> str:
    return "-" if found is None else f"{found.value:.3f}"


def seeds_text(seeds: list[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def sudoku_rows(store: Store) -> list[str]:
    rows = []
    for rule in RULES:
        pair = [Cell(TABLE1, SUDOKU, rule, objective) for objective in OBJECTIVES]
        ours = [result(store, one) for one in pair]
        if any(ours):
            both = " | ".join(f"{cell(o)} | {one.paper.value:.2f}" for o, one in zip(ours, pair, strict=True))
            rows.append(f"| {NAMES[rule]} | {both} |")
    return rows


def three(table: Table, column: Column) -> list[Cell]:
    """The samplers that the short tables have, with both objectives."""
    return [Cell(table, column, rule, o) for o in OBJECTIVES for rule in ("ddpm", "em-decay", "tweedie")]


def brief(store: Store, table: Table, column: Column, model: str) -> str | None:
    """A row: three samplers with both objectives, ours and the paper's, where one of them was measured."""
    cells = three(table, column)
    ours = [result(store, one, one.model.replace(column.model, model)) for one in cells]
    pairs = zip(ours, cells, strict=True)
    return " | ".join(f"{short(o)} ({one.paper.value:.2f})" for o, one in pairs) if any(ours) else None


def task_rows(store: Store) -> list[str]:
    """The other columns of Table 1 that have a model, in brief; below a column, another recipe for it."""
    return [
        f"| {column.title}{'' if model == column.model else f', `{model}`'} | {row} |"
        for column in TABLE1.columns[1:]
        for model in (column.model, *OTHERS.get(column.model, ()))
        if (row := brief(store, TABLE1, column, model))
    ]


def maze_rows(store: Store) -> list[str]:
    """Table 7 with `maze-muon`, our recipe; the paper's learns its mazes by heart here."""
    return [f"| {title} | {brief(store, TABLE7, c, MAZES)} |" for c, title in zip(TABLE7.columns, WAYS, strict=True)]


def maze_remarks(store: Store) -> str:
    """What lies behind those rows, and that they are another recipe on other mazes."""
    found = [
        f for one in three(TABLE7, TABLE7.columns[0]) if (f := result(store, one, one.model.replace("maze", MAZES)))
    ]
    models = {f.reports[0]["model"]: f for f in found}
    counts = {model: sorted({f.n for f in found if f.reports[0]["model"] == model}) for model in models}
    trained = ", ".join(
        f"`{model}` {f.all_steps[0]:,} training steps, n = {' to '.join(map(str, counts[model]))}"
        for model, f in models.items()
    )
    return (
        "Mazes of our own generator, not Table 7's; Muon and 20,000 of them, turned and reflected, where the paper has "
        "Adam and 1,000. "
        f"{trained}; seed 0, "
        f"{TABLE7.columns[0].steps} sampling steps. By the paper's recipe our mazes are learned by heart "
        "([docs/results.md](docs/results.md) has that, too)."
    )


def stand_in(report: Report) -> str:
    if report["task"] != "sudoku-extreme" or "own test file" in data_text(report):
        return ""
    return ", on a stand-in for its test file that is somewhat harder"


def task_remarks(store: Store) -> str:
    """n, steps and data behind those rows, models with the same ones together."""
    models: dict[str, str] = {}
    every = [(one, result(store, one)) for one in TABLE1.cells() if one.column.model != SUDOKU.model]
    for one, found in every:
        if found is None:
            continue
        counts = sorted({other.n for cell, other in every if other is not None and cell.model == one.model})
        n = " or ".join(map(str, counts))
        n += f" over {len(found.reports)} training seeds" if len(found.reports) > 1 else ""
        text = f"{steps_span(found.all_steps)} training steps, n = {n}, {one.column.steps} sampling steps"
        text += stand_in(next(iter(found.reports.values())))
        if not (SHIPPED / one.model / "tune-em-decay.json").is_file():
            text += "; EM decay not tuned"
        models.setdefault(one.model, text)
    others = {other: how for found in OTHERS.values() for other, how in found.items()}
    for name, how in ((model, how) for other, how in others.items() for model in (f"{other}-baseline", other)):
        card = SHIPPED / name / "card.json"
        if card.is_file():
            told = json.loads(card.read_text())
            counts = sorted({r["validity"]["n"] for r in told["scores"]})
            models[name] = (
                f"{how}, {told['steps']:,} training steps, n = {' or '.join(map(str, counts))}, "
                f"{told['scores'][0]['steps']} sampling steps{stand_in(told['scores'][0])}"
            )
    texts = dict.fromkeys(models.values())
    return " ".join(f"{', '.join(f'`{m}`' for m in models if models[m] == text)}: {text}." for text in texts)


def cards() -> dict[str, dict[str, Any]]:
    return {name: json.loads((SHIPPED / name / "card.json").read_text()) for name in ("sudoku-baseline", "sudoku")}


def measured(store: Store) -> str:
    """n, seeds, steps, command and weights behind the Sudoku table, in a sentence or two."""
    found = [f for o in OBJECTIVES for r in RULES if (f := result(store, Cell(TABLE1, SUDOKU, r, o)))]
    reports = [r for f in found for r in f.reports.values()]
    sizes = {f.cell.model: f"`{f.cell.model}` n = {f.n:,} ({seeds_text(list(f.reports))})" for f in found}
    runs = cards().items()
    trained = ", ".join(f"`{n}` {c['steps']:,} steps in {c['seconds'] / 60:.0f} minutes" for n, c in runs)
    trained += f" on {' and '.join(dict.fromkeys(c['trained_on'].replace('NVIDIA ', '') for _, c in runs))}"
    if any("decay to 0" in c["recipe"] for _, c in runs):
        trained += ", with the learning rate falling to 0 at the end"
    others = "" if all(r["weights"].startswith("fp16") for r in reports) else ", other seeds before rounding"
    return (
        f"Boards that no training saw: {', '.join(sizes.values())}, {SUDOKU.steps} steps, one sample a board; "
        f"`{reports[0]['command']}` and its like. Trained: {trained}. Seed 0 is measured with the shipped weights "
        f"(fp16){others}. The paper's columns are means of three seeds at 2,000,000 steps. Every figure with its "
        "command, and where we miss: [docs/results.md](docs/results.md)."
    )


def solving(store: Store) -> str:
    """Verified solving: each model that was measured beside its baseline."""
    order = [(column.model, column.regime) for column in (*TABLE1.columns, TABLE7.columns[0])]
    best: dict[tuple[str, str], Report] = {}
    for one in sorted(store.reports(SOLVE), key=lambda r: r["puzzles"]):
        if (one["task"], one["regime"]) in order:
            best[one["model"], one["regime"]] = one

    def place(name: str, regime: str) -> tuple[int, str]:
        return order.index((best[name, regime]["task"], regime)), name

    def entry(name: str, regime: str) -> str:
        r = best.get((name, regime))
        return "- | -" if r is None else f"{r['solved']:,} of {r['puzzles']:,} | {r['mean_calls']:,.0f}"

    mine = sorted((key for key in best if not key[0].endswith("-baseline")), key=lambda key: place(*key))
    rows = ["| | solved | calls | without self-correction | calls |", "|---|---|---|---|---|"]
    for name, regime in mine:
        what = f"`{name}`" + ("" if regime in ("random", "test") else f", {regime} {UNITS[best[name, regime]['task']]}")
        rows.append(f"| {what} | {entry(name, regime)} | {entry(f'{name}-baseline', regime)} |")
    text = (
        "Solved with a look at the rules (`letgo solve --tries 10`, Tweedie reprojection), instances that no training "
        "saw, with the network calls that one took on average; without self-correction they are often fewer (seed 0; "
        "commands: [docs/results.md](docs/results.md#verified-solving)):"
    )
    return "\n".join([text, "", *rows])


def fewer(n: int, than: int) -> str:
    return "" if n == than else f" (n = {n})"


def resampling(store: Store) -> str:
    """Our own rule, where self-corrected models have least to go by."""
    reports = by_rule(store)
    rows = [
        "| self-corrected | resample | Tweedie | EM decay | sampling steps | n | seeds |",
        "|---|---|---|---|---|---|---|",
    ]
    for model, regime, steps, what in DRAWN:
        found = reports[model, regime, steps]
        seeds = list(found["resample"])
        ours = [[found[rule][s] for s in seeds if s in found[rule]] for rule in LETTING_GO]
        rates = [together(reports, "validity") for reports in ours]
        cells = " | ".join(
            f"{rate['value']:.3f}{spread([r['validity'] for r in reports])}{fewer(rate['n'], rates[0]['n'])}"
            for rate, reports in zip(rates, ours, strict=True)
        )
        rows.append(f"| {what} | {cells} | {steps} | {rates[0]['n']} | {', '.join(map(str, seeds))} |")
    text = (
        "One rule more than the paper: `--rule resample` re-noises symbols drawn from the clean guess instead of their "
        "mean. A self-corrected network answers a blurred guess with the same blur; drawn symbols end it, with nothing "
        "to tune, though where EM decay was tuned it is mostly better (n boards, the same for each seed; commands: "
        "[docs/results.md](docs/results.md#a-rule-of-our-own-resample)):"
    )
    return "\n".join([text, "", *rows])


def choosing(store: Store) -> str:
    """What the network's own choice among its tries is worth."""
    rows = ["| of ten tries | pass@1 | the believed one | pass@10 | sampling steps | n |", "|---|---|---|---|---|---|"]
    for (model, regime, steps), rules in by_rule(store, "chosen_at_k").items():
        for r in (seeds[0] for rule, seeds in rules.items() if rule in ("ddpm", "tweedie") and 0 in seeds):
            if r["count"] < 500 or r["pass_at_k"]["value"] - r["validity"]["value"] < 0.01:
                continue  # too few, or nothing to choose
            scores = " | ".join(f"{r[key]['value']:.2f}" for key in ("validity", "chosen_at_k", "pass_at_k"))
            rows.append(f"| `{model}` {regime}, {r['rule']} | {scores} | {steps} | {r['count']} |")
    text = (
        "And the network mostly knows when it is right. Noise a finished board a little and ask for it again: of a "
        "broken board it doubts cells, of a valid one it hardly does (graphs aside, whose wrong answers agree with "
        "themselves). So of ten tries it can pick its best without a look at the "
        "rules (`letgo solve --no-verify --tries 10`); pass@10 is the most that any choice can reach (seed 0; "
        "commands: [docs/results.md](docs/results.md#choosing-among-tries-without-the-rules)):"
    )
    return "\n".join([text, "", *rows])


def section() -> str:
    store = Store(ROOT / "results")
    lines = [
        "Share of valid boards, Sudoku with 21 clues, with its 95% interval and, of several training seeds, their "
        "standard deviation (±):",
        "",
        "| sampler | `sudoku-baseline` | paper | `sudoku` (self-corrected) | paper |",
        "|---|---|---|---|---|",
        *sudoku_rows(store),
        "",
        measured(store),
    ]
    if rows := task_rows(store):
        lines += [
            "",
            "The other columns of Table 1, ours and in brackets the paper's:",
            "",
            *HEAD,
            *rows,
            "",
            task_remarks(store),
            "",
            "And mazes (Table 7), with a recipe of our own, `maze-muon`:",
            "",
            *HEAD,
            *maze_rows(store),
            "",
            maze_remarks(store),
        ]
    return "\n".join([*lines, "", resampling(store), "", choosing(store), "", solving(store)])


def updated(readme: str) -> str:
    head, rest = readme.split(BEGIN)
    _, tail = rest.split(END)
    return f"{head}{BEGIN}\n{section()}\n{END}{tail}"


if __name__ == "__main__":
    path = ROOT / "README.md"
    path.write_text(updated(path.read_text()))
