"""What follows the paper's tables on the page: our own rule, other systems, other models, and how all were trained."""

from __future__ import annotations

import re
import statistics
from typing import Any

from letgo.paper import OTHERS, TABLES
from letgo.presets import PRESETS
from letgo.reproduce.compare import result, same_training, together
from letgo.reproduce.markdown import as_table, command, commands_block, share, steps_text
from letgo.reproduce.plan import KNOWN
from letgo.reproduce.store import TRAINING, Report, Store, fits, sampler, size, split_seed

DECAY, STEPS = re.compile(r"--decay ([\d.]+)"), re.compile(r"--steps (\d+)")


def place(name: str) -> tuple[int, tuple[str, int]]:
    """Presets in their order, the further seeds of each after it; anything else comes last."""
    order, (model, seed) = list(PRESETS), split_seed(name)
    return order.index(model) if model in order else len(order), (model, seed)


Seeds = dict[int, Report]  # one rule's reports by training seed


def by_rule(store: Store, score: str = "validity") -> dict[tuple[str, str, int], dict[str, Seeds]]:
    """Reports that have a score, by model, regime and sampling steps, then by rule and training seed: the largest."""
    found: dict[tuple[str, str, int], dict[str, Seeds]] = {}
    for name in sorted(store.models(), key=place):
        model, seed = split_seed(name)
        for r in store.reports(name):
            if score in r and not sampler(r):
                seeds = found.setdefault((model, r["regime"], r["steps"]), {}).setdefault(r["rule"], {})
                seeds[seed] = max(seeds.get(seed, r), r, key=size)
    return found


def own_rule(store: Store) -> str:
    """`resample`, which no table of the paper has, beside the two rules that let go."""
    rows, commands = [], []
    for (model, regime, steps), rules in by_rule(store).items():
        ours = rules.get("resample", {})
        k = max((r["pass_at_k"]["k"] for r in ours.values()), default=0)
        scores = {regime: "validity", f"{regime}, pass@{k}": "pass_at_k"} if k > 1 else {regime: "validity"}
        for where, score in scores.items() if ours else ():
            mine = {s: r for s, r in ours.items() if score == "validity" or r["pass_at_k"]["k"] == k}
            cells = [_beside(rules.get(rule, {}), mine, score) for rule in ("resample", "tweedie", "em-decay")]
            n = together(list(mine.values()), score)["n"]
            rows.append([model, where, str(steps), ", ".join(map(str, mine)), str(n), *cells])
        commands += [command(r) for r in ours.values()]
    head = ["model", "regime", "sampling steps", "seeds", "n", "resample", "Tweedie", "EM decay"]
    note = (
        "`--rule resample` re-noises symbols drawn from the clean prediction instead of their mean. Where a "
        "self-corrected model has little to go by it ends in more valid boards than Tweedie reprojection; "
        "docs/log.md says why. Tweedie and EM decay are of the same training seeds with the same n, or say theirs; "
        "± is the standard deviation between seeds."
    )
    parts = ["## A rule of our own: resample", note, as_table(head, rows) if rows else "Not measured yet."]
    return "\n\n".join([*parts, *commands_block(commands)])


def spread(scores: list[dict[str, Any]]) -> str:
    """The standard deviation between training seeds, where there are several."""
    return f" ± {statistics.stdev(score['value'] for score in scores):.3f}" if len(scores) > 1 else ""


def _beside(theirs: Seeds, ours: Seeds, score: str) -> str:
    """A rate of another rule, pooled over the seeds that both have; with its own n where that differs."""
    both = [seed for seed in ours if seed in theirs and theirs[seed][score].get("k") == ours[seed][score].get("k")]
    if not both:
        return "-"
    rate = together([theirs[seed] for seed in both], score)
    text = share(rate) + spread([theirs[seed][score] for seed in both])
    same = (len(both), rate["n"]) == (len(ours), together(list(ours.values()), score)["n"])
    return text if same else f"{text} (seed {', '.join(map(str, both))}; n = {rate['n']})"


def own_choice(store: Store) -> str:
    """Of k tries the one that the network believes most, between pass@1 and pass@k."""
    rows, commands = [], []
    for (model, regime, steps), rules in by_rule(store, "chosen_at_k").items():
        for rule, r in ((rule, r) for rule, seeds in rules.items() for r in seeds.values()):
            if not r["pass_at_k"]["value"]:
                continue  # no valid board to choose
            scores = [share(r[score]) for score in ("validity", "chosen_at_k", "pass_at_k")]
            k, n = str(r["chosen_at_k"]["k"]), str(r["count"])
            rows.append([model, regime, rule, str(steps), k, n, str(r["seed"]), *scores])
            commands.append(command(r))
    head = ["model", "regime", "rule", "sampling steps", "k", "n", "seed", "pass@1", "chosen of k", "pass@k"]
    note = (
        "Of k tries `letgo evaluate --passes k` also scores the one that the network itself believes most: each "
        "finished board is noised a little and asked for again, eight calls a board. The rules are not looked at, so "
        "this is what a user without written rules gets from `letgo solve --no-verify --tries k`; pass@k is the most "
        "that any choice can reach."
    )
    parts = ["## Choosing among tries without the rules", note, as_table(head, rows) if rows else "Not measured yet."]
    return "\n\n".join([*parts, *commands_block(commands)])


def other_systems() -> str:
    rows = [[o.system, o.task, o.score, o.source] for o in OTHERS]
    note = (
        "Published by their authors or quoted by the paper, **not compute-matched**, not measured here. IRED "
        "counts matrix entries, so compare it with 'entries right' above; the paper and we count whole matrices."
    )
    return "\n\n".join(["## Other systems", note, as_table(["system", "task", "score", "source"], rows)])


def other_models(store: Store) -> str:
    """What other recipes and the 4x4 model were measured on beside the tables' cells."""
    rows, commands = [], []
    for name in store.models():
        model, _ = split_seed(name)
        if model in KNOWN:
            continue
        every = [(cell, result(store, cell, model)) for table in TABLES.values() for cell in table.cells()]
        cells = [cell for cell, found in every if found is not None and same_training(model, found, cell)]
        for r in store.reports(name):
            if any(fits(r, cell) for cell in cells):
                continue
            commands.append(command(r))
            settings = " ".join(f"{k}={v:g}" for k, v in r["settings"].items())
            steps = steps_text(store, r)
            rows.append([name, r["regime"], f"{r['rule']} {settings}".strip(), share(r["validity"]),
                         str(r["validity"]["n"]), str(r["seed"]), str(r["steps"]), steps])  # fmt: skip
    head = ["model", "regime", "rule", "valid, 95% interval", "n", "seed", "sampling steps", "steps"]
    body = as_table(head, rows) if rows else "None yet."
    return "\n\n".join(["## Measured beside the tables", body, *commands_block(commands)])


def training(store: Store) -> str:
    read = store.read(TRAINING)
    runs = {name: run for name, run in read.items() if isinstance(run, dict)} if isinstance(read, dict) else {}
    rows = []
    for name in sorted(runs, key=place):
        run = runs[name]
        minutes = f"{run['seconds'] / 60:.0f}" if "seconds" in run else "?"
        steps = f"{run['steps']:,}" if "steps" in run else "?"
        rows.append([name, steps, _rate(name, run), minutes, str(run.get("device", "?")), str(run.get("note", ""))])
    body = as_table(["run", "steps", "rate", "minutes", "device", "note"], rows) if rows else "No record yet."
    note = "Commands and losses are in `results/training.json`."
    return "\n\n".join(["## How the models were trained", note, body])


def _rate(name: str, run: dict[str, Any]) -> str:
    """What the learning rate did, as the commands and the preset have it; a run that ended early says it itself."""
    if "rate" in run:
        return str(run["rate"])
    if not run.get("commands") or not run.get("steps"):
        return "?"
    preset, last = PRESETS.get(split_seed(name)[0]), run["commands"][-1]
    given, steps = DECAY.search(last), STEPS.search(last)
    share = float(given[1]) if given else preset.decay if preset else 0.0
    falling = share * (int(steps[1]) if steps else run["steps"])  # of the last command's own steps
    return f"falls to 0 over the last {falling / run['steps']:.0%}" if falling else "constant"
