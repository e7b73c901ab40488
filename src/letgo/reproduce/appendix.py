"""What follows the paper's tables on the page: our own rule, other systems, other models, and how all were trained."""

from __future__ import annotations

from letgo.paper import OTHERS
from letgo.presets import PRESETS
from letgo.reproduce.markdown import as_table, commands_block, share, steps_text
from letgo.reproduce.plan import KNOWN
from letgo.reproduce.store import TRAINING, Store, split_seed


def place(name: str) -> tuple[int, tuple[str, int]]:
    """Presets in their order, the further seeds of each after it; anything else comes last."""
    order, (model, seed) = list(PRESETS), split_seed(name)
    return order.index(model) if model in order else len(order), (model, seed)


def own_rule(store: Store) -> str:
    """`resample`, which no table of the paper has, beside the two rules that let go."""
    rows, commands = [], []
    for name in sorted((n for n in store.models() if n in KNOWN), key=place):
        reports = store.reports(name)
        for ours in (r for r in reports if r["rule"] == "resample"):
            same = [r for r in reports if all(r[key] == ours[key] for key in ("regime", "steps", "seed"))]
            beside = {r["rule"]: share(r["validity"]) for r in same}
            rows.append([name, ours["regime"], share(ours["validity"]), str(ours["count"]), str(ours["seed"]),
                         str(ours["steps"]), beside.get("tweedie", "-"), beside.get("em-decay", "-")])  # fmt: skip
            commands.append(ours["command"])
    head = ["model", "regime", "resample", "n", "seed", "sampling steps", "Tweedie", "EM decay"]
    note = (
        "`--rule resample` re-noises symbols drawn from the clean prediction instead of their mean. Where a "
        "self-corrected model has little to go by it ends in more valid boards than Tweedie reprojection; "
        "docs/log.md says why. Tweedie and EM decay are of the same model, with the n above."
    )
    parts = ["## A rule of our own: resample", note, as_table(head, rows) if rows else "Not measured yet."]
    return "\n\n".join([*parts, *commands_block(commands)])


def other_systems() -> str:
    rows = [[o.system, o.task, o.score, o.source] for o in OTHERS]
    note = (
        "Published by their authors or quoted by the paper, **not compute-matched**, not measured here. IRED "
        "counts matrix entries, so compare it with 'entries right' above; the paper and we count whole matrices."
    )
    return "\n\n".join(["## Other systems", note, as_table(["system", "task", "score", "source"], rows)])


def other_models(store: Store) -> str:
    """Models that no table asks for: other recipes, and the 4x4 one."""
    rows = []
    for name in store.models():
        if split_seed(name)[0] in KNOWN:
            continue
        for r in store.reports(name):
            settings = " ".join(f"{k}={v:g}" for k, v in r["settings"].items())
            steps = steps_text(store, r)
            rows.append([name, r["regime"], f"{r['rule']} {settings}".strip(), share(r["validity"]),
                         str(r["validity"]["n"]), str(r["seed"]), str(r["steps"]), steps])  # fmt: skip
    head = ["model", "regime", "rule", "valid, 95% interval", "n", "seed", "sampling steps", "steps"]
    body = as_table(head, rows) if rows else "None yet."
    return "\n\n".join(["## Models that no table asks for", body])


def training(store: Store) -> str:
    read = store.read(TRAINING)
    runs = {name: run for name, run in read.items() if isinstance(run, dict)} if isinstance(read, dict) else {}
    rows = []
    for name in sorted(runs, key=place):
        run = runs[name]
        minutes = f"{run['seconds'] / 60:.0f}" if "seconds" in run else "?"
        steps = f"{run['steps']:,}" if "steps" in run else "?"
        rows.append([name, steps, minutes, str(run.get("device", "?")), str(run.get("note", ""))])
    body = as_table(["run", "steps", "minutes", "device", "note"], rows) if rows else "No record yet."
    note = "Commands and losses are in `results/training.json`."
    return "\n\n".join(["## How the models were trained", note, body])
