"""`letgo analyze`: one of the paper's diagnostics on a model, as JSON, and a picture of it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from letgo.cli import options
from letgo.errors import LetgoError, blaming


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="an analysis; `--list` shows all")
    parser.add_argument("models", nargs="*", metavar="MODEL", help=f"{options.MODEL}; one report for each")
    options.flag(parser, "--list", "what can be analysed")
    plot = "draw these reports anew, several of one analysis in one picture, and stop (default: analyse)"
    parser.add_argument("--plot", nargs="+", type=options.path, metavar="FILE.json", help=plot)
    out = "folder for NAME-MODEL.json (with --regime NAME-MODEL-REGIME.json) and pictures (default analysis)"
    parser.add_argument("--out", type=options.path, metavar="DIR", help=out)
    parser.add_argument("--count", type=options.boards, help="instances (default: the analysis's own)")
    options.flag(parser, "--quick", "few instances: minutes on one core")
    parser.add_argument("--regime", help=options.REGIME)
    split = "which instances are drawn (default valid: test instances are for results alone)"
    parser.add_argument("--split", choices=["valid", "test"], default="valid", help=split)
    parser.add_argument("--data", help=options.INSTANCES)
    options.steps_and_seed(parser)
    options.device(parser)
    options.batch(parser)
    options.precision(parser, "of the network's products (default auto: bf16 on a GPU, else fp32)")
    options.flag(parser, "--plain", "no compilation: quicker for a short measurement")
    options.own_task(parser)
    options.valid(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.analysis import ANALYSES, analysis_of

    if args.list:
        rows = [
            f"{a.name:14} {a.shows} ({a.paper})" + ("" if a.needs_model else "; no MODEL") for a in ANALYSES.values()
        ]
        print("\n".join(rows))
        return 0
    if args.plot:
        return draw_again(args.plot, args.out)
    if args.name is None:
        raise LetgoError(f"name an analysis; `letgo analyze --list` shows {', '.join(ANALYSES)}")
    analysis = analysis_of(args.name)
    if analysis.needs_model and not args.models:
        raise LetgoError(f"{analysis.name} is of a model; name one: `letgo analyze {analysis.name} sudoku`")
    if not analysis.needs_model and args.models:
        raise LetgoError(f"{analysis.name} takes no model; leave {' '.join(args.models)} out")
    for model in args.models or [None]:
        analyze(args, model)
    return 0


def stem(name: str, model: str | None, regime: str | None) -> str:
    """Return NAME-MODEL; of a run folder its own name. A regime that was asked for follows."""
    from letgo.runs import own_name

    own = [] if model is None else [Path(own_name(model).removeprefix("hub:")).name]
    return "-".join([name, *own, *([regime] if regime else [])])


def analyze(args: argparse.Namespace, model: str | None) -> None:
    """Run one analysis of one model: say what is done, do it, write it, draw it."""
    from letgo.analysis import analysis_of
    from letgo.analysis.drawing import available, draw
    from letgo.analysis.study import Wish, run_analysis, write_report
    from letgo.data.files import refuse_unwritable
    from letgo.data.source import source_of
    from letgo.machine import device_name
    from letgo.progress import Progress
    from letgo.runs import own_name
    from letgo.solver import load

    analysis, name = analysis_of(args.name), stem(args.name, model, args.regime)
    target = (args.out or Path("analysis")) / f"{name}.json"
    refuse_unwritable(target)
    names = ("count", "seed", "steps", "regime", "data", "split", "batch", "quick")
    wish, solver = Wish(**{key: getattr(args, key) for key in names}), None
    if model is not None:
        solver = load(model, args.device, not args.plain, args.threads, args.precision)
        options.check_rows(solver, args)
        if (remark := source_of(solver.task, args.data).remark(args.regime)) and not args.quiet:
            print(f"letgo: {remark}", file=sys.stderr)
    of = (
        ""
        if solver is None
        else f" of {solver.config.name}, {solver.steps(args.steps)} steps, on {device_name(solver.device)}"
    )
    args.voice.announce(f"analysing: {analysis.name}{of}; {target} is written at the end")
    report = run_analysis(analysis, solver, wish, lambda label: Progress(f"{name}, {label}", voice=args.voice))
    own: dict[str, Any] = {} if model is None else {"model": own_name(model)}
    report = {**report, **own, "command": args.command_line}
    write_report(target, report)
    print(analysis.tell(report))
    pictures = draw([report], target.with_suffix("")) if available() else []
    print(f"wrote {', '.join(map(str, [target, *pictures]))}")
    if not pictures and not args.quiet:
        print(f"letgo: no matplotlib here; where it is, `letgo analyze --plot {target}` draws", file=sys.stderr)


def draw_again(files: list[Path], out: Path | None) -> int:
    """Draw pictures from reports: beside the first one, or in --out."""
    from letgo.analysis import ANALYSES
    from letgo.analysis.drawing import draw
    from letgo.runs import read_json

    reports = []
    for file in files:
        if not file.is_file():
            raise LetgoError(f"{file}: no such file; name a report of `letgo analyze`")
        report = read_json(file)
        if not isinstance(report, dict) or report.get("analysis") not in ANALYSES:
            raise LetgoError(f"{file} is no report of `letgo analyze`; name one")
        reports.append(report)
    first = files[0].stem
    more = [file.stem.removeprefix(f"{reports[0]['analysis']}-") for file in files[1:]]
    target = (out or files[0].parent) / "-".join([first, *more])
    with blaming(", ".join(map(str, files)), "analyse again"):
        pictures = draw(reports, target)
    print(f"wrote {', '.join(map(str, pictures))}")
    return 0
