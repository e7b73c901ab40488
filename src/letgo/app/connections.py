"""Connections under uvicorn: how many there may be, and how long each may keep the server waiting."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from letgo.app.limits import MAX_CONNECTIONS, REQUEST_SECONDS, WRITE_SECONDS

SPARE_FILES = 32  # that the process has open besides connections: models being read, the page, standard streams
SEND_BUFFER = 131_072  # bytes that the system keeps of what a client has not read
FULL = json.dumps({"detail": "too many connections are open; try again in a few seconds"}).encode()
REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nRetry-After: 2\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(FULL), FULL)
)


class Connection(H11Protocol):
    """A Connection speaks HTTP/1.1, and is cut when it is silent, half-sent or unread for too long."""

    most, request_seconds, write_seconds = MAX_CONNECTIONS, REQUEST_SECONDS, WRITE_SECONDS

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.idle_since = self.loop.time()
        self.alarms: dict[str, asyncio.TimerHandle] = {}

    @property
    def idle(self) -> bool:
        """Say whether no request of it is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        others = [other for other in self.connections if other is not self and not other.transport.is_closing()]
        if len(others) >= self.most:
            self._make_room([other for other in others if isinstance(other, Connection) and other.idle])
        self._expect_a_request()

    def _make_room(self, idle: list[Connection]) -> None:
        """Close the connection that has been idle longest; where all are at work, the new one."""
        if idle:
            min(idle, key=lambda other: other.idle_since).transport.abort()
        else:
            self.transport.write(REFUSAL)
            self.transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.idle:
            self._calm("request")

    def on_response_complete(self) -> None:
        super().on_response_complete()  # which may begin the next request, if that has come already
        if self.idle:
            self.idle_since = self.loop.time()
            self._expect_a_request()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._alarm("write", self.write_seconds)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._calm("write")

    def connection_lost(self, exc: Exception | None) -> None:
        self._calm("request")
        self._calm("write")
        super().connection_lost(exc)

    def _expect_a_request(self) -> None:
        self._alarm("request", self.request_seconds)

    def _alarm(self, name: str, seconds: float) -> None:
        """End the connection, with whatever was not sent, if something is still not done by then."""
        self._calm(name)
        self.alarms[name] = self.loop.call_later(seconds, self.transport.abort)

    def _calm(self, name: str) -> None:
        if name in self.alarms:
            self.alarms.pop(name).cancel()


def open_files() -> int:
    """Return how many files this process may have open."""
    try:
        import resource
    except ImportError:  # Windows has no such limit
        return 10 * MAX_CONNECTIONS
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 10 * MAX_CONNECTIONS if most == resource.RLIM_INFINITY else most


def make_server(app: Any, log_level: str = "warning", **changes: Any) -> uvicorn.Server:
    """Return uvicorn with these connections; `changes` are attributes of `Connection`.

    All that wait are accepted at once, before the first can be refused: so few may wait that files never run out.
    """
    free = max(open_files() - SPARE_FILES, 8)
    bounds = {"most": min(MAX_CONNECTIONS, free // 2), **changes}
    kind = type("Connection", (Connection,), bounds)
    backlog = max(4, min(128, free // 8))
    config = uvicorn.Config(
        app, http=kind, ws="none", log_level=log_level, backlog=backlog, timeout_graceful_shutdown=2
    )
    return uvicorn.Server(config)


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Its protocol is named, without which asyncio would leave Nagle's algorithm on."""
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        listener.bind(address)
        listener.listen(128)
    except OSError:
        listener.close()
        raise
    return listener
