"""What the server refuses, and that a client that leaves takes its work with it."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from servers import health, serving, until

LONG = {"model": "sudoku-mini", "puzzle": "................", "rules": ["ddpm", "tweedie"], "steps": 1000}
PUZZLE = {"model": "sudoku-mini", "puzzle": ".1..3......2..3."}


@pytest.fixture(scope="module")
def client(folders):
    from letgo.app.server import create_app

    with TestClient(create_app([str(folders["connectivity"])]), base_url="http://127.0.0.1:8077") as client:
        yield client


def refused(response, status: int, words: str) -> None:
    assert response.status_code == status, response.text
    assert words in response.json()["detail"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"steps": 1001}, "steps: input should be less than or equal to 1000, got 1001"),
        ({"steps": 0}, "steps: input should be greater than or equal to 1"),
        ({"steps": "12"}, "steps: input should be a valid integer"),
        ({"tries": 33}, "tries: input should be less than or equal to 32"),
        ({"seed": -1}, "seed: input should be greater than or equal to 0"),
        ({"seed": 2**32}, "seed: input should be less than or equal to 4294967295"),
        ({"puzzle": "." * 4097}, "puzzle: string should have at most 4096 characters"),
        ({"rule": "tweedy"}, "unknown rule 'tweedy'; did you mean tweedie?"),
        ({"rule": "confidence"}, "does not fit a model with CosinePath and OneHot; choose one of tweedie, ddpm"),
        ({"rule": ""}, "rule: string should have at least 1 character"),
        ({"sigma": 1e9, "rule": "em"}, "sigma: input should be less than or equal to 100"),
        ({"sigma": 0.5}, "takes no sigma"),
        ({"stepz": 5}, "stepz: extra inputs are not permitted"),
        ({"model": "../../etc"}, "no model '../../etc' here"),
    ],
)
def test_limits_are_said_in_words(client, body, words):
    response = client.post("/api/solve", json={**PUZZLE, **body})
    refused(response, 404 if "model" in body else 422, words)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ({"rule": "ddpm", "variance": -2}, "rules.0.variance: input should be greater than or equal to 0, got -2"),
        ({"variance": 1}, "rules.0.rule: field required"),
        ("", "rules.0: string should have at least 1 character, got ''"),
    ],
)
def test_of_a_rule_that_may_be_a_name_only_what_is_wrong_is_said(client, rule, words):
    response = client.post("/api/trajectory", json={**PUZZLE, "rules": [rule]})
    assert (response.status_code, response.json()["detail"]) == (422, words)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"sure": 0.5}, "sure: input should be less than or equal to 0"),
        ({"sure": -1e7}, "sure: input should be greater than or equal to -1000000"),
        ({"sure": -1.0, "tries": 33}, "tries: input should be less than or equal to 32"),
        ({"sure": -1.0, "model": "sudoku-bits"}, "self-likelihood needs one-hot symbols"),
    ],
)
def test_a_mark_is_a_self_likelihood(client, body, words):
    refused(client.post("/api/until-sure", json={**PUZZLE, **body}), 422, words)


def test_nan_and_infinity_are_no_numbers(client):
    for value in ("NaN", "Infinity", "1e999"):
        text = json.dumps({**PUZZLE, "rule": "em"})[:-1] + f', "sigma": {value}}}'
        response = client.post("/api/solve", content=text, headers={"Content-Type": "application/json"})
        refused(response, 422, "sigma")


def test_a_race_has_a_greatest_number_of_seeds(client):
    refused(client.post("/api/race", json={**PUZZLE, "count": 65}), 422, "count: input should be less than")


def test_a_graph_can_be_too_large(client, folders):
    name = str(folders["connectivity"])
    graph = "/".join(["0" * 33] * 33)
    refused(client.post("/api/check", json={"model": name, "puzzle": graph}), 422, "1089 cells; this server takes")
    refused(client.get("/api/puzzle", params={"model": name, "regime": "1000000"}), 422, "too many cells")


def test_half_a_surrogate_pair_is_refused(client):
    body = b'{"model": "sudoku-mini", "puzzle": "\\ud800..............."}'
    response = client.post("/api/solve", content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 422


def test_bodies_must_be_json_and_small(client):
    refused(client.post("/api/solve", content="{}", headers={"Content-Type": "text/plain"}), 415, "as JSON")
    refused(client.post("/api/solve", json={"puzzle": "." * 70_000}), 413, "takes at most 65536")
    chunks = (b"x" * 1000 for _ in range(70))  # no length is declared
    response = client.post("/api/solve", content=chunks, headers={"Content-Type": "application/json"})
    refused(response, 413, "longer than the 65536 bytes")
    refused(client.post("/api/solve", content="{", headers={"Content-Type": "application/json"}), 422, "JSON")


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8077", "127.0.0.1.evil.example", "10.0.0.1", ""])
def test_foreign_host_names_are_refused(client, host):
    refused(client.get("/api/health", headers={"Host": host}), 403, "does not answer to the host name")
    assert client.get("/", headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:8077", "LOCALHOST", "[::1]:8077", "127.0.0.1"])
def test_this_machines_names_are_welcome(client, host):
    assert client.get("/api/health", headers={"Host": host}).status_code == 200


def test_a_server_for_all_addresses_answers_to_addresses_and_to_the_names_it_was_given():
    from letgo.app.server import create_app

    client = TestClient(create_app(bound="0.0.0.0", names=["box.local"]))
    assert client.get("/api/health", headers={"Host": "192.168.1.5:8077"}).status_code == 200
    assert client.get("/api/health", headers={"Host": "box.local"}).status_code == 200
    assert client.get("/api/health", headers={"Host": "evil.example"}).status_code == 403


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_posts_from_other_sites_are_refused(client, headers):
    refused(client.post("/api/check", json=PUZZLE, headers=headers), 403, "only its own page")


def test_posts_from_its_own_page_are_taken(client):
    headers = {"Origin": "http://127.0.0.1:8077", "Sec-Fetch-Site": "same-origin"}
    assert client.post("/api/check", json=PUZZLE, headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/../server.py", "/%2e%2e/server.py", "/..%2fserver.py", "//etc/passwd", "/redoc"])
def test_nothing_outside_the_static_folder_is_served(client, path):
    assert client.get(path).status_code == 404


def test_a_wrong_method_is_named_and_the_right_one_told(client):
    response = client.get("/api/solve")
    assert (response.status_code, response.headers["allow"]) == (405, "POST")


def test_the_page_asks_nobody_else_for_anything(client):
    import letgo.app.server as server

    for path in server.STATIC.iterdir():
        links = set(re.findall(r"https?://[^\s\"'`)]+", path.read_text()))
        assert links <= {"http://www.w3.org/2000/svg"}, path.name
    policy = client.get("/").headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_beyond_the_queue_the_answer_is_429_with_a_time_to_come_back():
    with serving(queue=2) as address:
        holding = [open_stream(address) for _ in range(2)]
        assert health(address)["in_flight"] == 2
        for route in ("solve", "trajectory", "race", "until-sure"):
            with pytest.raises(urllib.error.HTTPError) as error:
                post(address, route, {**PUZZLE, **({"sure": -1.0} if route == "until-sure" else {})})
            assert error.value.code == 429
            assert int(error.value.headers["Retry-After"]) > 0
            assert "all 2 places are taken" in json.load(error.value)["detail"]
        for stream in holding:
            stream.close()
        until(lambda: health(address)["in_flight"] == 0)
        assert post(address, "solve", PUZZLE)["puzzle"] == PUZZLE["puzzle"]


@pytest.mark.journey
def test_up_to_the_queue_everyone_is_served():
    from concurrent.futures import ThreadPoolExecutor

    with serving(queue=16) as address, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda seed: post(address, "solve", {**PUZZLE, "seed": seed}), range(64)))
        assert len(answers) == 64
        assert health(address)["finished"] == 64


@pytest.mark.slow
@pytest.mark.parametrize("route", ["trajectory", "race", "until-sure", "solve"])
def test_a_client_that_goes_away_frees_its_place(route):
    """Each request would run for minutes; none is finished when its place is free again."""
    endless = {**LONG, "steps": 1000, "count": 64} if route == "race" else LONG
    if route == "until-sure":
        endless = {**PUZZLE, "steps": 1000, "tries": 32, "sure": 0.0}  # no board is above 0
    if route == "solve":
        unsolvable = "123........4...."  # the first row needs a 4 where its column has one
        endless = {**PUZZLE, "puzzle": unsolvable, "steps": 1000, "tries": 32}
    with serving() as address:
        stream = open_stream(address, route, endless)
        until(lambda: health(address)["running_boards"] > 0)
        stream.close()
        until(lambda: health(address)["in_flight"] == 0)
        until(lambda: health(address)["running_boards"] == 0)
        assert health(address)["finished"] == 0
        assert post(address, "solve", PUZZLE)["puzzle"] == PUZZLE["puzzle"]


def test_a_failing_batch_says_so_and_stops_nobody_else(client, monkeypatch, capfd):
    from letgo.app.scheduler import Batch

    def burst(self):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Batch, "advance", burst)
    response = client.post("/api/solve", json=PUZZLE)
    refused(response, 503, "the sampler failed (RuntimeError: out of memory)")
    monkeypatch.undo()
    assert client.post("/api/solve", json=PUZZLE).status_code == 200
    assert "out of memory" in capfd.readouterr().err


def test_a_server_that_cannot_import_torch_says_so_and_ends(monkeypatch):
    from letgo.app.catalog import Catalog
    from letgo.app.server import Held
    from letgo.errors import LetgoError

    monkeypatch.setitem(sys.modules, "letgo.app.scheduler", None)
    held = Held(Catalog([]), 4)
    held.start()
    with pytest.raises(LetgoError, match=r"the models could not be read: .*letgo\.app\.scheduler"):
        held.catalog.wait()
    held.close()


@pytest.mark.journey
def test_the_command_serves_the_page_and_ends_with_ctrl_c():
    command = [sys.executable, "-m", "letgo", "app", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        address = re.search(r"http://127\.0\.0\.1:\d+/", line)
        assert address, line
        with urllib.request.urlopen(address[0], timeout=60) as page:
            assert b"<h1>letgo</h1>" in page.read()
        stream = open_stream(address[0].rstrip("/"))  # waits for the models
        process.send_signal(signal.SIGINT)
        told = b"".join(iter(lambda: stream.recv(65536), b""))
        _, errors = process.communicate(timeout=60)
        stream.close()
    assert (process.returncode, errors) == (0, "")
    assert b"the server is stopping" in told


def test_the_command_refuses_a_taken_port_and_a_missing_folder(capsys, tmp_path):
    from letgo.cli import main

    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["app", "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another with --port" in capsys.readouterr().err
    assert main(["app", "--model", str(tmp_path / "nothing")]) == 2
    assert "unknown model or run folder" in capsys.readouterr().err
    assert main(["app", "--device", "abacus"]) == 2
    assert "unknown device 'abacus'" in capsys.readouterr().err
    assert main(["app", "--port", "99999"]) == 2
    assert "port 99999" in capsys.readouterr().err


def test_only_safetensors_are_read(tmp_path: Path):
    """A folder with weights in any other form is refused before the server starts."""
    import torch

    from letgo.cli import main
    from letgo.presets import PRESETS
    from letgo.runs import write_json

    config = PRESETS["sudoku-mini"]
    write_json(tmp_path / "config.json", config.as_dict())
    torch.save(config.build_model().state_dict(), tmp_path / "model.pt")
    assert main(["app", "--model", str(tmp_path)]) == 2
    torch.save(config.build_model().state_dict(), tmp_path / "model.safetensors")
    assert main(["app", "--model", str(tmp_path)]) == 2


def post(address: str, route: str, body: dict) -> dict:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{address}/api/{route}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return json.load(response)


def open_stream(address: str, route: str = "trajectory", body: dict | None = None) -> socket.socket:
    """A client that asks and, for a stream, reads the beginning; closing the socket is its sudden death."""
    port, content = int(address.rsplit(":", 1)[1]), json.dumps(body or LONG)
    stream = socket.create_connection(("127.0.0.1", port))
    head = f"POST /api/{route} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    stream.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n{content}".encode())
    if route != "solve":
        assert b"200 OK" in stream.recv(4096)
    return stream
