"""`letgo app`: serve the page on this machine."""

from __future__ import annotations

import argparse
import contextlib
import errno
import socket
import sys
import webbrowser
from collections.abc import Callable
from typing import Any

from letgo.cli import options
from letgo.errors import LetgoError


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: this machine only)")
    parser.add_argument("--port", type=options.at_least(0), default=8077, help="default 8077; 0 takes any free one")
    options.flag(parser, "--open", "open the page in a browser")
    parser.add_argument(
        "--model",
        action="append",
        metavar="RUN",
        help="offer this run folder too; may be repeated (default: the shipped models)",
    )
    options.device(parser, "cpu", "auto, cpu, cuda or mps (default cpu)")
    queue = "requests under way or waiting (default 64)"
    parser.add_argument("--queue", type=options.at_least(1), default=64, help=queue)
    parser.add_argument(
        "--allow-host", action="append", metavar="NAME", help="answer to this host name too (default: none)"
    )
    options.own_task(parser)
    options.common(parser)


def run(args: argparse.Namespace) -> int:
    try:
        from letgo.app.connections import make_server
        from letgo.app.server import create_app
    except ImportError as error:
        raise LetgoError(f"the page needs fastapi and uvicorn ({error}); pip install fastapi uvicorn") from None
    if args.model or args.device != "cpu":  # what is broken is said now, not to whoever opens the page
        from letgo.machine import pick_device

        pick_device(args.device)
        check_models(args.model or [])
    listener = listen(args.host, args.port)
    port = listener.getsockname()[1]
    app = create_app(args.model or [], args.device, args.queue, args.host, args.allow_host or [])
    server = make_server(app, "debug" if args.debug else "warning")
    address = shown_address(args.host, port)
    if not args.quiet:
        print(f"letgo app: {address}  (Ctrl-C stops it)", flush=True)
        if args.host not in ("127.0.0.1", "localhost", "::1"):
            print("letgo app: every machine that can reach this one can use it; there is no login", file=sys.stderr)
    if args.open:
        webbrowser.open(address)
    with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is how this command ends
        polite(server, app.state.held.hang_up).run(sockets=[listener])
    return 0


def check_models(models: list[str]) -> None:
    """Name every model that cannot be read; the rest is served. A wrong name is refused, and so is a rest of none."""
    from letgo.runs import load_model, locate

    for model in models:
        locate(model)
    faults: list[LetgoError] = []
    for model in models:
        try:
            load_model(model)
        except LetgoError as error:
            faults.append(error)
    if models and len(faults) == len(models):
        raise faults[0]
    for fault in faults:
        print(f"letgo: {fault}; the other models are served", file=sys.stderr, flush=True)


def shown_address(host: str, port: int) -> str:
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{shown}]:{port}/" if ":" in shown else f"http://{shown}:{port}/"


def polite(server: Any, hang_up: Callable[[], None]) -> Any:
    """Let a uvicorn server end its streams with a word before it waits for them to end."""
    shutdown = server.shutdown

    async def hang_up_then_shutdown(*args: Any, **kwargs: Any) -> None:
        hang_up()
        await shutdown(*args, **kwargs)

    server.shutdown = hang_up_then_shutdown
    return server


def listen(host: str, port: int) -> socket.socket:
    if port > 65535:
        raise LetgoError(f"port {port} does not exist; choose one from 0 to 65535 with --port")
    from letgo.app import connections

    try:
        return connections.listen(host, port)
    except OSError as error:
        reason = error.strerror or error
        other = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"  # no such name or address
        raise LetgoError(f"cannot listen on {host}, port {port}: {reason}; choose another with {other}") from None
