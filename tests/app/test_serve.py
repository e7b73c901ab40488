"""The API by several processes: the local app's answers, each once, although replicas die."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import threading
import types
import urllib.request
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fastapi.testclient import TestClient

pytestmark = pytest.mark.slow
PUZZLE = ".1..3......2..3."


class RayError(Exception): ...


class RayTaskError(RayError): ...


class BackPressureError(Exception): ...


class Handle:
    """A handle of Ray Serve to one replica in this process, which dies after so many messages of an answer."""

    def __init__(self, replica: Any, *deaths: int | type[Exception]):
        self.replica, self.deaths, self.asked = replica, [*deaths], 0
        self.answer = self
        self.cancelled = 0

    def options(self, stream: bool) -> Handle:
        assert stream
        return self

    def remote(self, scope: dict[str, Any], body: bytes) -> Response:
        self.asked += 1
        return Response(self, scope, body, self.deaths.pop(0) if self.deaths else 10**9)


class Response:
    def __init__(self, handle: Handle, scope: dict[str, Any], body: bytes, death: int | type[Exception]):
        self.handle, self.death, self.messages = handle, death, handle.replica.answer(scope, body)

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        if not isinstance(self.death, int):
            raise self.death
        number = 0
        async for message in self.messages:
            if number == self.death:
                await self.messages.aclose()
                raise RayError
            number += 1
            yield message

    def cancel(self) -> None:
        self.handle.cancelled += 1


@pytest.fixture(scope="module")
def replica() -> Any:
    from letgo.app.replicas import Replica

    return Replica([], "cpu", 64, "127.0.0.1", [], None)


@pytest.fixture
def ask(replica: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, Any]]:
    """Ask a front whose replica dies as told; returns the answer, and the front's metrics."""
    names = {"ray": {}, "ray.exceptions": {"RayError": RayError, "RayTaskError": RayTaskError}, "ray.serve": {}}
    names["ray.serve.exceptions"] = {"BackPressureError": BackPressureError}
    for name, values in names.items():
        monkeypatch.setitem(sys.modules, name, types.SimpleNamespace(**values))
    from letgo.app import replicas

    monkeypatch.setattr(replicas, "PAUSE_SECONDS", 0.0)

    def ask(*deaths: Any, route: str = "/api/solve", queue: int = 8, **body: Any) -> tuple[Any, Any]:
        app = replicas.front(Handle(replica, *deaths), queue, "127.0.0.1", [], {"/api/solve"})
        with TestClient(app, base_url="http://127.0.0.1") as client:
            answer = client.post(route, json={"model": "sudoku-mini", "puzzle": PUZZLE, "steps": 6, **body})
            return answer, client.get("/metrics").text

    return ask


def events(text: str) -> list[tuple[str, dict[str, Any]]]:
    blocks = [block.split("\n") for block in text.strip().split("\n\n") if block.startswith("event:")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


def timeless(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != "seconds"}


def test_a_replica_that_dies_costs_no_answer(ask: Callable[..., Any]):
    whole, metrics = ask()
    assert whole.status_code == 200
    assert "letgo_retries_total" not in metrics
    assert re.search(r'letgo_replica_answers_total\{replica="[^"]+-\d+"\} 1\n', metrics)
    again, metrics = ask(0, 1)
    assert timeless(again.json()) == timeless(whole.json())
    assert "letgo_retries_total 2\n" in metrics
    assert 'letgo_requests_total{route="/api/solve",status="200"} 1\n' in metrics
    refused, _ = ask(puzzle="nonsense")
    assert (refused.status_code, refused.json()["detail"][:8]) == (422, "expected")


def test_a_stream_goes_on_where_its_replica_died(ask: Callable[..., Any]):
    whole, _ = ask(route="/api/trajectory")
    again, metrics = ask(4, 9, route="/api/trajectory")
    assert "letgo_retries_total 2\n" in metrics

    def sides(text: str) -> list[list[tuple[str, dict[str, Any]]]]:
        found = [(name, timeless(data)) for name, data in events(text)]
        return [[event for event in found if event[1].get("side") == side] for side in (0, 1, None)]

    assert sides(again.text) == sides(whole.text)  # each event once, in the order of its side
    assert again.text.endswith("event: done\ndata: {}\n\n")


def test_a_race_counts_right_although_results_come_again_in_another_order():
    from letgo.app.replicas import Resumed

    def result(seed: int, valid: bool, wins: int, n: int) -> bytes:
        data = {"side": 0, "seed": seed, "valid": valid, "wins": wins, "value": wins / n, "low": 0, "high": 1, "n": n}
        return f"event: result\ndata: {json.dumps(data)}\n\n".encode()

    relay = Resumed()
    first = [relay.pass_on(block) for block in (result(0, True, 1, 1), result(1, False, 1, 2))]
    relay.again = True
    second = [relay.pass_on(block) for block in (result(1, False, 0, 1), result(2, True, 1, 2), result(0, True, 2, 3))]
    assert all(first)
    assert (second[0], second[2]) == (None, None)
    assert second[1] is not None
    [(_, last)] = events(second[1].decode())
    assert (last["seed"], last["wins"], last["n"]) == (2, 2, 3)
    assert last["value"] == pytest.approx(2 / 3)
    assert relay.pass_on(b'event: progress\ndata: {"done":5,"total":9}\n\n')
    assert relay.pass_on(b'event: progress\ndata: {"done":3,"total":9}\n\n') is None  # it never goes back
    assert relay.pass_on(b": still here\n\n")


def test_too_many_requests_are_sent_away_and_a_hopeless_one_is_given_up(ask: Callable[..., Any]):
    for busy, _ in (ask(BackPressureError), ask(queue=0)):
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "2")
    lost, _ = ask(*[0] * 99)
    assert lost.status_code == 503
    with pytest.raises(RayTaskError):  # a bug is no death
        ask(RayTaskError)


def test_who_stops_listening_frees_the_place(replica: Any):
    async def leave() -> None:
        body = {"model": "sudoku-mini", "puzzle": PUZZLE, "steps": 1000}
        scope = {
            "type": "http", "method": "POST", "path": "/api/trajectory", "query_string": b"", "root_path": "",
            "headers": [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")], "raw_path": b"",
        }  # fmt: skip
        messages = replica.answer(scope, json.dumps(body).encode())
        async for message in messages:
            if message.get("body"):
                break
        assert replica.held.scheduler.in_flight() == 1
        await messages.aclose()
        for _ in range(500):
            if not replica.held.scheduler.in_flight():
                return
            await asyncio.sleep(0.01)
        raise AssertionError("its place is still taken")

    asyncio.run(leave())


def test_serve_says_what_it_needs(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    from letgo.cli import main

    assert main(["serve"]) == 2
    assert "give --ray" in capsys.readouterr().err
    assert main(["serve", "--ray", "--replicas", "4:1"]) == 2
    assert "expected N or LEAST:MOST" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["serve", "--ray", "--port", "0", "--quiet"]) == 2
    assert "pip install 'letgo[ray]'" in capsys.readouterr().err


@pytest.mark.ray
def test_on_ray_serve_a_replica_is_really_killed_under_load_and_no_request_is_lost():
    import letgo

    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(sys.path),
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
    }
    command = [sys.executable, "-m", "letgo", "serve", "--ray", "--replicas", "2", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            match = re.search(r"http://\S+/", server.stdout.readline())
            assert match
            address = match[0]
            [expected] = letgo.load("sudoku-mini", "cpu").solve([PUZZLE], steps=50, tries=10, seed=3)
            killed = threading.Event()

            def solve(number: int) -> dict[str, Any]:
                if number == 40:
                    name = re.search(r'answers_total\{replica="[^"]+-(\d+)"\}', fetched(f"{address}metrics"))
                    assert name
                    os.kill(int(name[1]), signal.SIGKILL)
                    killed.set()
                return json.loads(fetched(f"{address}api/solve", {"puzzle": PUZZLE, "seed": 3}))

            with ThreadPoolExecutor(8) as threads:
                answers = [*threads.map(solve, range(120))]
            assert killed.is_set()
            assert all(timeless(answer) == timeless(expected.as_dict()) for answer in answers)
            check_metrics(fetched(f"{address}metrics"))
        finally:
            server.send_signal(signal.SIGINT)
    assert server.returncode == 0


def fetched(url: str, body: dict[str, Any] | None = None) -> str:
    content = None if body is None else json.dumps({"model": "sudoku-mini", "steps": 50, "tries": 10, **body}).encode()
    request = urllib.request.Request(url, content, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=120) as response:
        return response.read().decode()


def check_metrics(text: str) -> None:
    """By a parser that is not ours."""
    from prometheus_client.parser import text_string_to_metric_families

    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families["letgo_request_seconds"].type == "histogram"
    [solves] = [s for s in families["letgo_requests"].samples if s.labels["route"] == "/api/solve"]
    assert (solves.labels["status"], solves.value) == ("200", 120)
    assert families["letgo_network_calls"].samples[0].value > 0
