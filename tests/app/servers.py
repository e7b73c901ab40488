"""The application under uvicorn, on a free port of this machine."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def serving(connection: dict | None = None, **options) -> Iterator[str]:
    """The application under uvicorn, as `letgo app` runs it; yields its address. `connection`: other limits of it."""
    from letgo.app.connections import make_server
    from letgo.app.server import create_app
    from letgo.cli.app import listen, polite

    listener = listen("127.0.0.1", 0)
    app = create_app(**options)
    server = polite(make_server(app, "error", **(connection or {})), app.state.held.hang_up)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    until(lambda: health(address)["status"] == "ok")
    yield address
    server.should_exit = True
    thread.join(timeout=20)
    listener.close()
    assert not thread.is_alive()


def health(address: str) -> dict:
    with urllib.request.urlopen(f"{address}/api/health", timeout=30) as response:
        return json.load(response)


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits; the limit only ends a test that would otherwise hang."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
