"""From the worker's thread to a client: server-sent events, or one answer, and the news that a client has gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from letgo.app.jobs import Job
from letgo.app.limits import BACKLOG
from letgo.app.scheduler import Scheduler

T = TypeVar("T")
Event = tuple[str, dict[str, Any]]
HEARTBEAT_SECONDS = 10.0  # a comment line while nothing happens, so that no proxy gives up
LAST = ("done", "error", "answer")  # after one of these a job says no more


class Events:
    """Events are what a job has said and nobody has sent yet. The job stands still while that is too much."""

    def __init__(self, scheduler: Scheduler, job: Job):
        self.scheduler, self.job, self.loop = scheduler, job, asyncio.get_running_loop()
        self.waiting: asyncio.Queue[Event] = asyncio.Queue()

    def emit(self, name: str, data: dict[str, Any]) -> None:
        if not self.loop.is_closed():
            self.job.emitted += 1
            self.loop.call_soon_threadsafe(self.waiting.put_nowait, (name, data))

    async def get(self) -> Event:
        event = await self.waiting.get()
        self.job.taken += 1
        if self.job.emitted - self.job.taken == BACKLOG - 1:
            self.scheduler.wake()
        return event


@asynccontextmanager
async def submitted(scheduler: Scheduler, job: Job) -> AsyncIterator[Events]:
    """Yield the job's events; however this ends, the job's place is free afterwards."""
    events = Events(scheduler, job)
    job.emit = events.emit
    scheduler.submit(job)
    try:
        yield events
    finally:
        scheduler.cancel(job)


async def gone(receive: Receive) -> None:
    """Return when the client has closed the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def while_connected(work: Coroutine[Any, Any, T], receive: Receive) -> T | None:
    """Return the result of the work, or None if the client leaves first."""
    task, left = asyncio.ensure_future(work), asyncio.ensure_future(gone(receive))
    try:
        await asyncio.wait({task, left}, return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        task.cancel()
        left.cancel()


async def answer(scheduler: Scheduler, job: Job, receive: Receive) -> Event | None:
    """Return the job's one answer; None if nobody waits for it any more."""
    async with submitted(scheduler, job) as events:
        return await while_connected(events.get(), receive)


class EventStream(Response):
    """An EventStream sends a job's events as text/event-stream, until it is done or the client has gone."""

    media_type = "text/event-stream"

    def __init__(self, scheduler: Scheduler, job: Job, opening: dict[str, Any]):
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.scheduler, self.job, self.opening = scheduler, job, opening

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with submitted(self.scheduler, self.job) as events:
            with suppress(OSError):  # the client left while something was being sent
                await while_connected(self._stream(events, send), receive)

    async def _stream(self, events: Events, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        name, data = "start", self.opening
        while True:
            text = f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n" if name else ": still here\n\n"
            await send({"type": "http.response.body", "body": text.encode(), "more_body": True})
            if name in LAST:
                break
            try:
                name, data = await asyncio.wait_for(events.get(), HEARTBEAT_SECONDS)
            except TimeoutError:
                name, data = "", {}
        await send({"type": "http.response.body", "body": b"", "more_body": False})
