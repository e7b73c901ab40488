"""The page's API by many processes: replicas of Ray Serve that each run the app, and a front that asks them.

An answer is a pure function of its request. So when a replica dies, the front asks another, and nobody notices.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from letgo.app.events import while_connected
from letgo.app.guard import HEADERS, TAKES_BODIES, Guard
from letgo.app.metrics import MEDIA_TYPE, Measured, Metrics, Samples, exposition, total
from letgo.estimates import rate

TRIES = 8  # replicas that one request may lose
PAUSE_SECONDS = 0.2  # before another is asked, and twice as long each time: a dead one is noticed by then
TOLD = "letgo.metrics"  # the type of the last message but one of an answer: what its replica has counted
PLAIN = (
    "type",
    "http_version",
    "method",
    "scheme",
    "path",
    "raw_path",
    "query_string",
    "root_path",
    "headers",
    "client",
)
OWN = ("letgo_request", "letgo_queue", "letgo_running")  # the front counts these itself, or cannot


class Replica:
    """A Replica is one process of Ray Serve, with models and a scheduler of its own: the app without its socket."""

    def __init__(self, models: list[str], device: str, queue: int, bound: str, names: list[str], own_task: str | None):
        if own_task is not None:
            from letgo import tasks

            tasks.load(own_task)
        from letgo.app.server import create_app

        self.app, self.name = create_app(models, device, queue, bound, names), f"{socket.gethostname()}-{os.getpid()}"
        self.held = self.app.state.held
        self.held.start()
        self.held.catalog.wait()  # it takes requests when its models are there

    async def answer(self, scope: dict[str, Any], body: bytes) -> AsyncIterator[Message]:
        """Yield the messages of the app's answer as they come; who stops listening frees the places of its boards."""
        messages: asyncio.Queue[Message | None] = asyncio.Queue()
        bodies: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            return bodies.pop() if bodies else await asyncio.Future()  # a client that leaves is noticed at the front

        async def run() -> None:
            try:
                await self.app(scope, receive, messages.put)
            finally:
                messages.put_nowait(None)

        task = asyncio.ensure_future(run())
        try:
            while (message := await messages.get()) is not None:
                if message["type"] == "http.response.body" and not message.get("more_body"):
                    yield {"type": TOLD, "replica": self.name, "samples": self.samples()}
                yield message
            await task
        finally:
            task.cancel()

    def samples(self) -> Samples:
        return {key: value for key, value in self.held.samples().items() if not key[0].startswith(OWN)}


class Resumed:
    """It gives a client every event once, although the second replica begins from the start."""

    def __init__(self) -> None:
        self.sent: set[tuple[Any, ...]] = set()
        self.wins: dict[int, list[bool]] = {}
        self.again, self.walked = False, -1

    def pass_on(self, block: bytes) -> bytes | None:
        """Return the event as the client should get it; None if it has it already."""
        head, _, data = block.decode().partition("\ndata: ")
        name = head.removeprefix("event: ")
        if not data:
            return block  # a comment that keeps the connection
        event = json.loads(data)
        if name == "progress":
            fresh, self.walked = event["done"] > self.walked, max(self.walked, event["done"])
            return block if fresh else None
        key = (name, *(event.get(part) for part in ("side", "step", "seed", "number")))
        if name == "start":
            key = ("start",)
        if key in self.sent:
            return None
        self.sent.add(key)
        if name != "result":
            return block
        wins = self.wins.setdefault(event["side"], [])
        wins.append(event["valid"])
        if not self.again:
            return block
        event |= {"wins": sum(wins), **rate(sum(wins), len(wins)).as_dict()}  # others may have come in another order
        return f"event: result\ndata: {json.dumps(event, separators=(',', ':'))}\n\n".encode()


class Front:
    """It asks replicas by a handle of Ray Serve, and sends on their answers: streams at once, all else when whole."""

    def __init__(self, handle: Any, queue: int):
        errors, full = import_module("ray.exceptions"), import_module("ray.serve.exceptions")
        self.ask, self.queue = handle.options(stream=True).answer, queue
        self.lost, self.faults, self.full = errors.RayError, errors.RayTaskError, full.BackPressureError
        self.metrics, self.counted = Metrics(), dict[str, Samples]()
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await _live(receive, send)
        if scope["path"] == "/metrics" and scope["method"] == "GET":
            text = exposition(self.samples())
            return await Response(text, headers={"Content-Type": MEDIA_TYPE})(scope, receive, send)
        sampling = scope["path"] in TAKES_BODIES and scope["method"] == "POST"
        if sampling and self.in_flight >= self.queue:
            return await _busy(scope, receive, send, self.queue)
        body = (await receive()).get("body", b"") if sampling else b""  # the guard has read it to its end
        plain = {name: scope[name] for name in PLAIN if name in scope} | {
            "client": scope.get("client"),
            "extensions": {},
        }
        self.in_flight += sampling
        try:
            with suppress(OSError):  # the client left while something was being sent
                await while_connected(self._relay(plain, body, scope, receive, send), receive)
        finally:
            self.in_flight -= sampling

    def samples(self) -> Samples:
        """Return what the front has counted, and what each replica, also one that is gone, said last."""
        now = {("letgo_queue_requests", ()): float(self.in_flight), ("letgo_queue_limit", ()): float(self.queue)}
        return {**total([self.metrics.read(), *self.counted.values()]), **now}

    async def _relay(self, plain: dict[str, Any], body: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        events, begun = Resumed(), False
        for attempt in range(TRIES):
            whole: list[Message] = []
            response = self.ask.remote(plain, body)
            try:
                async for message in response:
                    if message["type"] == TOLD:
                        self._note(message)
                    elif message["type"] == "http.response.start" and _is_stream(message):
                        if not begun:
                            await send(message)
                        begun = True
                    elif begun:
                        await _send_event(message, events, send)
                    else:
                        whole.append(message)
                for message in whole:
                    await send(message)
                return
            except self.full:
                return await _busy(scope, receive, send, self.queue)
            except self.faults:
                raise
            except self.lost:
                self.metrics.add("letgo_retries_total")
                events.again = True
                await asyncio.sleep(PAUSE_SECONDS * 2**attempt)
            finally:
                with suppress(Exception):
                    response.cancel()  # nothing, where it has ended
        await JSONResponse({"detail": "the replicas died over this request; try again"}, 503)(scope, receive, send)

    def _note(self, message: Message) -> None:
        self.counted[message["replica"]] = message["samples"]
        self.metrics.add("letgo_replica_answers_total", replica=message["replica"])


async def _send_event(message: Message, events: Resumed, send: Send) -> None:
    body = message.get("body", b"")
    passed = events.pass_on(body) if body else body
    if passed is not None:
        await send({**message, "body": passed})


def _is_stream(message: Message) -> bool:
    return any(name == b"content-type" and value.startswith(b"text/event-stream") for name, value in message["headers"])


async def _busy(scope: Scope, receive: Receive, send: Send, places: int) -> None:
    words = f"all {places} places are taken; try again in a few seconds"
    await JSONResponse({"detail": words}, 429, {"Retry-After": "2", **HEADERS})(scope, receive, send)


async def _live(receive: Receive, send: Send) -> None:
    while (message := await receive())["type"] != "lifespan.shutdown":
        await send({"type": f"{message['type']}.complete"})
    await send({"type": "lifespan.shutdown.complete"})


def front(handle: Any, queue: int, bound: str, names: Iterable[str], routes: set[str]) -> ASGIApp:
    """Return the door of the local app, and the replicas behind it."""
    inner = Front(handle, queue)
    return Measured(Guard(inner, bound, names), inner.metrics, routes | {"/metrics"})
