"""What the server has done so far, counted, in the text format that Prometheus reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable, Mapping

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]  # by the name of a series and its labels

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
BOARDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
FAMILIES = {  # name: type and meaning
    "letgo_requests_total": ("counter", "Requests by route and by the status of their answer."),
    "letgo_request_seconds": ("histogram", "From a request to the end of its answer, by route."),
    "letgo_queue_requests": ("gauge", "Requests that run or wait."),
    "letgo_queue_limit": ("gauge", "Requests that may run or wait."),
    "letgo_running_boards": ("gauge", "Boards that are being sampled."),
    "letgo_batch_boards": ("histogram", "Boards of a batch that still need it, at each of its steps."),
    "letgo_network_calls_total": ("counter", "Calls of a network, each for a whole batch."),
    "letgo_boards_solved_total": ("counter", "Valid boards that were handed out."),
    "letgo_replica_answers_total": ("counter", "Answers of `letgo serve` by the process that gave them."),
    "letgo_retries_total": ("counter", "Requests that were asked again, since a replica died over them."),
}
GONE = "gone"  # the status of a request whose client left before there was one


class Metrics:
    """They are counters and histograms, which threads may share."""

    def __init__(self) -> None:
        plain = (
            "letgo_network_calls_total",
            "letgo_boards_solved_total",
        )  # those without labels are there from the start
        self.lock, self.samples = threading.Lock(), Samples({(name, ()): 0.0 for name in plain})

    def add(self, name: str, amount: float = 1.0, **labels: str) -> None:
        with self.lock:
            self._add(name, amount, labels)

    def observe(self, name: str, value: float, bounds: Iterable[float], **labels: str) -> None:
        """Enter a value in a histogram, whose buckets count all values up to their bound."""
        with self.lock:
            for bound in bounds:
                self._add(f"{name}_bucket", float(value <= bound), {**labels, "le": f"{bound:g}"})
            self._add(f"{name}_bucket", 1.0, {**labels, "le": "+Inf"})
            self._add(f"{name}_sum", value, labels)
            self._add(f"{name}_count", 1.0, labels)

    def _add(self, name: str, amount: float, labels: Mapping[str, str]) -> None:
        key = name, tuple(labels.items())
        self.samples[key] = self.samples.get(key, 0.0) + amount

    def read(self) -> Samples:
        with self.lock:
            return dict(self.samples)


def total(parts: Iterable[Samples]) -> Samples:
    """Add up what several servers counted."""
    whole = Samples()
    for part in parts:
        for key, value in part.items():
            whole[key] = whole.get(key, 0.0) + value
    return whole


def exposition(samples: Samples) -> str:
    """Write family by family, its series together, as the format wants them."""
    lines = []
    for family, (kind, meaning) in FAMILIES.items():
        names = {f"{family}_{part}" for part in ("bucket", "sum", "count")} if kind == "histogram" else {family}
        series = [(name, labels, value) for (name, labels), value in samples.items() if name in names]
        if series:
            lines += [f"# HELP {family} {meaning}", f"# TYPE {family} {kind}"]
        for name, labels, value in series:
            text = ",".join(f'{key}="{_escaped(word)}"' for key, word in labels)
            lines.append(f"{name}{'{' + text + '}' if text else ''} {value:.17g}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


class Measured:
    """It counts every request, also those that are refused at the door. Plain ASGI, so that streams stay streams."""

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: Collection[str]):
        self.app, self.metrics, self.routes = app, metrics, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), GONE
        route = scope["path"] if scope["path"] in self.routes else "other"  # so that nobody can make up new ones

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = str(message["status"])
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        finally:
            self.metrics.add("letgo_requests_total", route=route, status=status)
            self.metrics.observe("letgo_request_seconds", time.perf_counter() - started, SECONDS, route=route)
