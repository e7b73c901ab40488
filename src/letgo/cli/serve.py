"""`letgo serve`: the page and its API by several processes of a Ray cluster."""

from __future__ import annotations

import argparse
import contextlib
import socket
import sys
from pathlib import Path
from typing import Any

from letgo.cli import options
from letgo.errors import LetgoError

BOARDS = 16  # requests under way in a replica, beyond which another one is started


def replicas(text: str) -> tuple[int, int]:
    few, _, many = text.partition(":")
    if not few.isdecimal() or not (many or few).isdecimal() or not 1 <= int(few) <= int(many or few) <= 1000:
        raise argparse.ArgumentTypeError(f"expected N or LEAST:MOST, for instance 1:4, got '{text}'")
    return int(few), int(many or few)


def add(parser: argparse.ArgumentParser) -> None:
    text = "deploy on the Ray cluster at this address (default: local, one of this machine); needed; extra ray"
    parser.add_argument("--ray", nargs="?", const="local", metavar="ADDRESS", help=text)
    text = "processes that sample, N or LEAST:MOST by how many requests there are (default 1:4)"
    parser.add_argument("--replicas", type=replicas, default=(1, 4), metavar="N", help=text)
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=options.at_least(0), default=8077, help="default 8077; 0 takes any free one")
    text = "offer this run folder too, which all nodes must see; may be repeated (default: the shipped models alone)"
    parser.add_argument("--model", action="append", metavar="RUN", help=text)
    options.device(parser, "cpu", "auto, cpu, cuda or mps (default cpu); with cuda a replica has a GPU of its own")
    text = "requests under way or waiting at each replica, above the 64 boards of a batch (default 128)"
    parser.add_argument("--queue", type=options.at_least(1), default=128, help=text)
    text = "answer to this host name too (default: none)"
    parser.add_argument("--allow-host", action="append", metavar="NAME", help=text)
    text = "a task of your own: this class of this file, which is run on every node (default: none)"
    parser.add_argument("--task", dest="task_file", metavar="FILE.py:CLASS", help=text)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    if args.ray is None:
        raise LetgoError("letgo serve deploys on Ray: give --ray, or --ray ADDRESS; `letgo app` does without")
    from letgo.cli.app import listen
    from letgo.extras import connected_ray, extra

    for model in args.model or []:
        from letgo.runs import load_model

        load_model(model)  # what is broken is said now
    with listen(args.host, args.port) as listener:
        args.voice.say("letgo serve: starting Ray; each replica reads all models")
        ray = connected_ray(args.ray)
        try:
            answer(args, listener)
        finally:
            if args.ray != "local":  # a cluster of others goes on without us
                with contextlib.suppress(Exception):
                    extra("ray.serve", "ray", "--ray").delete("letgo")
            ray.shutdown()
    return 0


def answer(args: argparse.Namespace, listener: socket.socket) -> None:
    """Deploy, and answer until Ctrl-C."""
    from letgo.app.connections import make_server
    from letgo.app.replicas import front
    from letgo.app.server import create_app
    from letgo.cli.app import shown_address

    routes = {getattr(route, "path", "") for route in create_app().routes}
    app = front(deploy(args), args.queue * args.replicas[1], args.host, args.allow_host or [], routes)
    server = make_server(app, "debug" if args.debug else "warning")
    if not args.quiet:
        print(f"letgo serve: {shown_address(args.host, listener.getsockname()[1])}  (Ctrl-C stops it)", flush=True)
        if args.host not in ("127.0.0.1", "localhost", "::1"):
            print("letgo serve: every machine that can reach this one can use it; there is no login", file=sys.stderr)
    with contextlib.suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


def deploy(args: argparse.Namespace) -> Any:
    """Start the replicas and return the handle by which they are asked."""
    from letgo.app.replicas import Replica
    from letgo.extras import extra

    serve = extra("ray.serve", "ray", "--ray")
    least, most = args.replicas
    own_task = None
    if args.task_file is not None:
        path, _, name = args.task_file.rpartition(":")
        own_task = f"{Path(path).absolute()}:{name}"
    scale: dict[str, Any] = {"num_replicas": least}
    if least < most:
        growth = {"min_replicas": least, "max_replicas": most, "target_ongoing_requests": BOARDS}
        scale = {"autoscaling_config": {**growth, "upscale_delay_s": 5, "downscale_delay_s": 120}}
    needs = {"num_cpus": args.threads, "num_gpus": int(args.device.startswith("cuda"))}
    serve.start(proxy_location="Disabled")  # the door is ours
    deployment = serve.deployment(Replica).options(
        name="letgo",
        max_ongoing_requests=args.queue,
        max_queued_requests=args.queue * most,
        ray_actor_options=needs,
        health_check_period_s=2,
        **scale,
    )
    models = [str(Path(model).absolute()) if Path(model).is_dir() else model for model in args.model or []]
    bound = deployment.bind(models, args.device, args.queue, args.host, args.allow_host or [], own_task)
    return serve.run(bound, name="letgo", route_prefix=None)
