"""`letgo export`: a network as a file for other runtimes."""

from __future__ import annotations

import argparse

from letgo.cli import options


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help=options.MODEL)
    text = "write the network here as ONNX: x_t, t (and the context of graphs) to x0_hat"
    parser.add_argument("--onnx", type=options.path, metavar="FILE", required=True, help=text)
    options.own_task(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    from letgo.data.files import refuse_unwritable
    from letgo.export import export_onnx, refuse_without_onnx

    refuse_without_onnx()
    refuse_unwritable(args.onnx, "--onnx")
    args.voice.announce(f"tracing {args.model}")
    about = export_onnx(args.model, args.onnx)
    print(f"{args.onnx}: {about['name']}, {about['task']}, {about['codec']} on the {about['path']} path")
    return 0
