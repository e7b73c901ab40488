"""Under load: a share of the time for everybody, nothing that grows, and connections that end."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from servers import health, serving, until
from test_limits import LONG, PUZZLE, open_stream, post, refused

import letgo
from letgo.app.jobs import Lane, RaceJob, SolveJob, TrajectoryJob
from letgo.app.limits import BACKLOG
from letgo.app.scheduler import Batch, Scheduler, shares

pytestmark = pytest.mark.slow
HOST = "http://127.0.0.1"


@pytest.fixture(scope="module")
def client():
    from letgo.app.server import create_app

    with TestClient(create_app(), base_url=HOST) as client:
        yield client


@pytest.fixture(scope="module")
def solver():
    from letgo.solver import load

    return load("sudoku-mini")


def seat(*served: float, client: str = "a", batches: int = 1) -> Batch:
    """A batch of jobs of which only the claim to time matters."""
    lanes = []
    for seconds in served:
        job = object.__new__(RaceJob)
        job.client, job.served, job.batches, job.finished, job.cancelled = client, seconds, batches, False, False
        lanes.append(Lane(job, 0, 0))
    batch = object.__new__(Batch)
    batch.lanes, batch.mine = lanes, {lane.job for lane in lanes}
    return batch


def test_newcomers_have_three_quarters_of_the_time_however_many_others_there_are():
    for races in (1, 8, 60):
        due = shares([seat(0.0), *(seat(9.0) for _ in range(races))])
        assert due == pytest.approx([0.75, *[0.25 / races] * races])
    assert shares([seat(9.0)]) == [1.0]
    assert shares([seat(0.0), seat(0.0)]) == [0.5, 0.5]


def test_clients_share_evenly_and_a_client_favours_what_has_run_least():
    greedy = [seat(9.0, client="greedy") for _ in range(7)]
    assert shares([seat(9.0, client="modest"), *greedy])[0] == pytest.approx(0.5)
    half = seat(9.0, batches=2)
    assert shares([half, half, seat(9.0)]) == pytest.approx([0.25, 0.25, 0.5])
    assert shares([seat(0.2), seat(9.0)]) == pytest.approx([5 / 6, 1 / 6])
    assert shares([seat(9.0, 9.0), seat(9.0)]) == pytest.approx([2 / 3, 1 / 3])  # a shared batch has all its jobs' time


def turns(scheduler, enough) -> Iterator[None]:
    """The worker's loop in this thread, until `enough` or until every batch waits for a reader."""
    while not enough() and any(not batch.waits for batch in scheduler.batches) | any(j.pending for j in scheduler.jobs):
        batch = scheduler._next()
        if not scheduler._advance(batch):
            scheduler._retire(batch)
        yield


def listened(job) -> list:
    """What the job says; someone reads it at once."""
    told: list = []

    def emit(name, data):
        told.append((name, data))
        job.emitted += 1
        job.taken += 1

    job.emit = emit
    return told


def test_a_light_solve_ends_long_before_the_races_that_were_there_first(solver):
    problem, scheduler = solver.task.parse(PUZZLE["puzzle"]), Scheduler(64)
    samplers = [solver.sampler(rule, 1000) for rule in ("ddpm", "tweedie")]
    races = [RaceJob([solver] * 2, problem, samplers, seed, 64) for seed in range(8)]
    for race in races:
        listened(race)
        scheduler.submit(race)
        race.served = 5.0  # they have run for a while
    for _, _ in zip(range(60), turns(scheduler, lambda: False), strict=False):
        pass
    light = SolveJob(solver, problem, solver.sampler("ddpm", 30), 1, 0)
    told, before = listened(light), sum(race.walked for race in races)
    scheduler.submit(light)
    for _ in turns(scheduler, lambda: light.finished):
        pass
    assert told[0][0] == "answer"
    lanes = sum(race.walked for race in races) - before
    assert lanes < 8 * 500  # of 1000 steps for each batch; a turn in which this machine stalls may cost some
    assert any(batch.walk.done.max() > 1 for batch in scheduler.batches)


@pytest.mark.parametrize("pads", [False, True])
def test_whoever_comes_later_joins_a_batch_that_is_under_way_and_no_answer_changes(pads: bool):
    """On an engine that pads, as on a GPU, also one whose jobs are no newcomers any more."""
    from letgo.engines.graph import Graph
    from letgo.solver import load

    solver = load("sudoku-mini", precision="fp32")
    if pads:
        solver.engine = Graph(solver.network, solver.path, solver.device, "fp32", compiled=False)
    sampler, puzzles = solver.sampler("ddpm", 12), (PUZZLE["puzzle"], "." * 16, "1234............")

    def run(*numbers: int) -> tuple[list, list]:
        scheduler, told, seen = Scheduler(8), [], []
        for number in numbers:
            job = SolveJob(solver, solver.task.parse(puzzles[number]), sampler, 3, seed=2**40 * number - 1)
            told.append(listened(job))
            scheduler.submit(job)
            for _, _ in zip(range(2), turns(scheduler, lambda: False), strict=False):
                seen += [sorted(batch.walk.done.tolist()) for batch in scheduler.batches]
            job.served += 5.0 * pads
        for _ in turns(scheduler, lambda: False):
            pass
        assert all(job.batches == 0 for job in {lane.job for batch in scheduler.batches for lane in batch.lanes})
        assert not scheduler.batches
        assert not scheduler.jobs
        return [{**data, "seconds": 0} for [(name, data)] in told if name == "answer"], seen

    answers, seen = run(0, 1, 2)
    assert [1, 3] in seen, "the second board begins when the first has taken two steps, in the same batch"
    assert answers == [run(number)[0][0] for number in range(3)]
    assert any(answer["tries"] > 1 for answer in answers)


def test_a_client_that_does_not_read_holds_up_neither_memory_nor_its_neighbours(solver):
    sampler, problem = solver.sampler("ddpm", 2 * BACKLOG), solver.task.parse(PUZZLE["puzzle"])

    def run(*seeds: int, deaf: int | None = None) -> tuple[Scheduler, list, list]:
        scheduler, jobs = Scheduler(8), [TrajectoryJob([solver], problem, [sampler], seed) for seed in seeds]
        told = [listened(job) for job in jobs]
        for job in jobs:
            scheduler.submit(job)
        if deaf is not None:
            job = jobs[deaf]

            def emit(name, data, job=job, hear=told[deaf]):
                hear.append((name, data))
                job.emitted += 1

            job.emit = emit
        for _ in turns(scheduler, lambda: False):
            pass
        return scheduler, jobs, told

    def frames(told: list) -> list:
        return [data for name, data in told if name == "frame"]

    scheduler, jobs, told = run(3, 4, deaf=0)
    assert len(told[0]) == BACKLOG
    assert [name for name, _ in told[1]][-2:] == ["verdict", "done"]
    alone = run(3)[2][0], run(4)[2][0]
    assert frames(told[1]) == frames(alone[1])  # bit for bit, although the batch was cut on its way
    jobs[0].taken = jobs[0].emitted
    jobs[0].emit = lambda name, data: told[0].append((name, data))
    for _ in turns(scheduler, lambda: False):
        pass
    assert frames(told[0]) == frames(alone[0])
    assert not scheduler.batches
    assert all(job.batches == 0 for job in jobs)


def test_a_board_that_diverges_fails_alone_and_in_words(solver, capfd):
    sampler, scheduler = solver.sampler("em", 30, sigma=100.0), Scheduler(8)
    jobs = [SolveJob(solver, solver.task.parse(text), sampler, 1, 0) for text in ("." * 16, "1234341221434321")]
    told = [listened(job) for job in jobs]
    for job in jobs:
        scheduler.submit(job)
    scheduler._form_batches()
    assert [len(batch.lanes) for batch in scheduler.batches] == [2]
    for _ in turns(scheduler, lambda: False):
        pass
    assert told[1][0][0] == "answer"  # its board is all clues
    [(name, data)] = told[0]
    assert (name, jobs[0].status) == ("error", 422)
    assert data["detail"].startswith("the sampler diverged at step ")
    assert capfd.readouterr().err == ""


def test_a_stream_that_diverges_at_its_last_step_says_nothing_more(solver):
    job = TrajectoryJob([solver] * 2, solver.task.parse(PUZZLE["puzzle"]), [solver.sampler("ddpm", 1)] * 2, 0)
    told, batch = listened(job), Batch([*job.pending])
    step = batch.slots.step

    def astray():
        x0_hat = step()
        batch.slots.walk.x[0] = float("inf")
        return x0_hat

    batch.slots.step = astray
    assert not batch.advance()
    assert [name for name, _ in told] == ["error"]
    assert job.over


def test_a_stream_that_diverges_says_so(client, capfd):
    told = client.post("/api/trajectory", json={**PUZZLE, "rules": [{"rule": "em", "sigma": 100.0}], "steps": 30}).text
    refused(client.post("/api/solve", json={**PUZZLE, "rule": "em", "sigma": 100.0, "steps": 30}), 422, "diverged")
    assert "event: error" in told
    assert "the sampler diverged at step " in told
    assert capfd.readouterr().err == ""


# Connections


@pytest.fixture
def connect():
    """Connections that send a little; all are closed afterwards."""
    opened: list[socket.socket] = []

    def connect(address: str, text: bytes = b"") -> socket.socket:
        opened.append(socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1])), timeout=20))
        opened[-1].sendall(text)
        return opened[-1]

    yield connect
    for stream in opened:
        stream.close()


def ended(stream: socket.socket) -> bool:
    """Whether the server closes or resets the connection."""
    try:
        return stream.recv(4096) == b""
    except ConnectionResetError:
        return True


HALF = b"GET /api/health HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.mark.journey
def test_silent_and_half_sent_connections_are_cut_and_answers_are_not_delayed(connect):
    from letgo.app.connections import Connection

    delays = []

    def connection_made(self, transport):
        Connection.connection_made(self, transport)
        delays.append(transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))

    with serving(connection={"request_seconds": 0.2, "connection_made": connection_made}) as address:
        for text in (b"", b"G", HALF):
            assert ended(connect(address, text))
        kept = connect(address, HALF + b"\r\n")
        assert b"200 OK" in kept.recv(4096)
        kept.sendall(HALF)  # the second request is never finished
        until(lambda: ended(kept))
        stream = open_stream(address)  # a request that is being answered has all the time it needs
        until(lambda: len(stream.recv(65536)) > 0 and health(address)["running_boards"] > 0)
        stream.close()
    assert delays
    assert all(delays)


@pytest.mark.journey
def test_beyond_the_most_connections_the_idle_ones_go_and_then_newcomers(connect):
    with serving(connection={"most": 3}) as address:
        idle = [connect(address) for _ in range(6)]
        assert health(address)["status"] == "ok"
        assert all(ended(stream) for stream in idle[:3])
        busy = [open_stream(address) for _ in range(3)]
        late = connect(address, HALF + b"\r\n")
        answer = late.recv(4096)
        assert answer.startswith(b"HTTP/1.1 503")
        assert "too many connections" in json.loads(answer.partition(b"\r\n\r\n")[2])["detail"]
        for stream in busy:
            stream.close()
        until(lambda: b"200 OK" in connect(address, HALF + b"\r\n").recv(4096))
        until(lambda: health(address)["in_flight"] == 0)


@pytest.mark.journey
def test_a_stream_that_nobody_reads_ends_and_frees_its_place():
    from letgo.app.connections import Connection

    def connection_made(self, transport):
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        Connection.connection_made(self, transport)

    with serving(connection={"write_seconds": 0.3, "connection_made": connection_made}) as address:
        stream = open_stream(address, body={**LONG, "steps": 1000})
        until(lambda: health(address)["in_flight"] == 0)
        assert health(address)["finished"] == 0  # it was cut, not sent
        assert post(address, "solve", PUZZLE)["puzzle"] == PUZZLE["puzzle"]
        stream.close()


def test_few_files_mean_few_connections(monkeypatch):
    from letgo.app import connections

    for files, most, backlog in ((64, 16, 4), (1024, 496, 124), (10**6, 512, 128)):
        monkeypatch.setattr(connections, "open_files", lambda files=files: files)
        config = connections.make_server(None).config
        assert (config.http.most, config.backlog) == (most, backlog)
        assert most + 3 * backlog + connections.SPARE_FILES <= files


# The door


@pytest.mark.parametrize(
    "host",
    ["[::1]evil.com", "[::1]:80:80", "[::1", "::1", "127.0.0.1:80a", "localhost evil.com", "localhost@evil.com", "[]"],
)
def test_a_host_that_only_begins_well_is_refused(client, host):
    refused(client.get("/api/health", headers={"Host": host}), 403, "does not answer to the host name")


def test_several_hosts_or_origins_are_refused(client):
    twice = [("Origin", HOST), ("Origin", "http://evil.com")]
    refused(client.get("/api/health", headers=twice), 403, "only its own page")
    refused(client.get("/api/health", headers=[("Origin", HOST), ("Origin", HOST)]), 403, "only its own page")
    refused(client.get("/api/health", headers=[("Host", "127.0.0.1"), ("Host", "127.0.0.1")]), 403, "host name")
    refused(client.get("/api/health", headers={"Origin": "ftp://127.0.0.1"}), 403, "only its own page")


def test_heads_are_bounded(client):
    many = [(f"x-{i}", "1") for i in range(10_000)]
    refused(client.get("/api/health", headers=many), 431, "100 headers")
    refused(client.get("/api/health", headers={"x": "1" * 20_000}), 431, "16384 bytes")
    refused(client.get("/api/puzzle", params={"model": "m" * 20_000}), 431, "16384 bytes")


def test_other_sites_get_no_puzzles(client):
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://evil.com"}):
        refused(client.get("/api/puzzle", params={"model": "sudoku-mini"}, headers=headers), 403, "only its own page")
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200  # a link may lead to the page


def test_many_who_wait_for_a_maze_keep_nobody_else_waiting(client, monkeypatch):
    from letgo.app import server

    begun, done = threading.Semaphore(0), threading.Event()

    def slow(*_):
        begun.release()
        assert done.wait(60)
        return PUZZLE["puzzle"]

    monkeypatch.setattr(server, "random_puzzle", slow)
    with ThreadPoolExecutor(80) as pool:
        asked = [pool.submit(client.get, "/api/puzzle", params={"model": "sudoku-mini"}) for _ in range(80)]
        begun.acquire()
        until(lambda: sum(one.done() for one in asked) == 80 - server.PUZZLES_WAITING)
        assert client.post("/api/check", json=PUZZLE).status_code == 200
        done.set()
        codes = [one.result().status_code for one in asked]
    assert sorted(codes) == [200] * server.PUZZLES_WAITING + [429] * (80 - server.PUZZLES_WAITING)


def test_one_bad_card_is_named_and_the_rest_served(tmp_path):
    from letgo.app.catalog import Catalog
    from letgo.runs import shipped

    folders = []
    for name, text in (("card.json", "[]"), ("card.json", "{"), ("tune-em.json", "[]")):
        folder = tmp_path / f"model{len(folders)}"
        shutil.copytree(Path(letgo.__file__).parent / "shipped" / "sudoku-mini", folder)
        (folder / name).write_text(text)
        folders.append((str(folder), str(folder / name)))
    catalog = Catalog([folder for folder, _ in folders])
    catalog.load()
    assert catalog.failure is None
    assert catalog.failed.keys() == {folder for folder, _ in folders}
    assert all(file in catalog.failed[folder] for folder, file in folders)
    assert [*catalog.cards] == shipped()


def test_the_command_names_a_bad_model_and_goes_on_with_the_rest(tmp_path, capsys):
    """A name that leads nowhere is a slip of the pen, and if no model that was asked for is left, none is offered."""
    from letgo.cli.app import check_models
    from letgo.errors import LetgoError

    bad = tmp_path / "bad"
    shutil.copytree(Path(letgo.__file__).parent / "shipped" / "sudoku-mini", bad)
    (bad / "card.json").write_text("[]")
    check_models(["sudoku-mini", str(bad)])
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"letgo: {bad / 'card.json'} ")
    assert said.endswith("; the other models are served")
    check_models([])
    assert capsys.readouterr().err == ""
    with pytest.raises(LetgoError, match=r"card\.json"):
        check_models([str(bad)])
    with pytest.raises(LetgoError, match="unknown model or run folder"):
        check_models(["sudoku-mini", str(tmp_path / "nothing")])
