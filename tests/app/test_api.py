"""The API: the same answers as the library, whatever runs beside them, and errors in words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

HOST = "http://127.0.0.1"
HARD = "........3..1..56...9..4..7......9.5.7.......8.5.4.2....8..2..9...35..1..6........"  # known as Fata Morgana
PUZZLES = [".1..3......2..3.", "1...............", "..3....12......4", "4..1.....2..3..."]


@pytest.fixture(scope="module")
def client():
    from letgo.app.server import create_app

    with TestClient(create_app(), base_url=HOST) as client:
        yield client


def events(text: str) -> list[tuple[str, dict]]:
    blocks = [block.split("\n") for block in text.strip().split("\n\n") if block.startswith("event:")]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in blocks]


def solve(client: TestClient, **body) -> dict:
    response = client.post("/api/solve", json={"model": "sudoku-mini", **body})
    assert response.status_code == 200, response.text
    return response.json()


def timeless(answer: dict) -> dict:
    return {key: value for key, value in answer.items() if key != "seconds"}


def test_solve_answers_what_the_library_answers(client):
    import letgo

    solver = letgo.load("sudoku-mini")
    for puzzle in PUZZLES:
        [expected] = solver.solve([puzzle], rule="ddpm", steps=12, tries=3, seed=5)
        got = solve(client, puzzle=puzzle, rule="ddpm", steps=12, tries=3, seed=5)
        assert list(got) == ["puzzle", "solved", "board", "tries", "calls", "seconds"]
        assert timeless(got) == timeless(expected.as_dict())


def test_tries_are_as_long_as_in_the_library_where_nobody_says(client, monkeypatch):
    """Several tries of a model that knows its doubt are short ones; a single one is whole."""
    import letgo
    from letgo.solver import Solver

    solver = letgo.load("sudoku-mini")
    monkeypatch.setattr(Solver, "short_try", 5)
    for tries, most in ((2, 10), (1, 50)):
        [expected] = solver.solve([PUZZLES[1]], rule="ddpm", tries=tries, seed=3)
        got = solve(client, puzzle=PUZZLES[1], rule="ddpm", tries=tries, seed=3)
        assert timeless(got) == timeless(expected.as_dict())
        assert got["calls"] <= most


@pytest.mark.slow
def test_answers_do_not_depend_on_who_else_asks(client):
    asked = [
        {"puzzle": puzzle, "rule": rule, "steps": 7, "tries": 2, "seed": seed}
        for puzzle in PUZZLES
        for rule in ("ddpm", "tweedie", "heun")
        for seed in (0, 1)
    ]
    alone = [timeless(solve(client, **body)) for body in asked]
    with ThreadPoolExecutor(len(asked)) as pool:
        together = [timeless(answer) for answer in pool.map(lambda body: solve(client, **body), asked)]
    assert together == alone


def test_requests_that_wait_together_share_a_batch():
    from letgo.app.jobs import SolveJob
    from letgo.app.scheduler import Scheduler
    from letgo.solver import load

    solver = load("sudoku-mini")
    sampler = solver.sampler("tweedie", 10)
    jobs = [SolveJob(solver, solver.task.parse(p), sampler, 1, seed) for p in PUZZLES for seed in (0, 1)]
    scheduler = Scheduler(64)
    for job in jobs:
        scheduler.submit(job)
    scheduler._form_batches()
    assert [len(batch.lanes) for batch in scheduler.batches] == [8]  # eight requests, one batch of the fixed width


def test_an_unsolved_puzzle_gets_no_board(client):
    answer = solve(client, puzzle=".1..3......2..3.", rule="ddpm", steps=1, tries=1)
    assert (answer["solved"], answer["board"]) == (False, None)


def test_a_task_stands_for_its_model(client):
    answer = client.post("/api/solve", json={"task": "sudoku", "model": "sudoku-mini", "puzzle": PUZZLES[0]})
    assert answer.status_code == 200
    wrong = client.post("/api/solve", json={"task": "maze", "model": "sudoku-mini", "puzzle": PUZZLES[0]})
    assert wrong.status_code == 422
    assert "was trained for sudoku, not for maze" in wrong.json()["detail"]


def trajectory(client: TestClient, **body) -> list[tuple[str, dict]]:
    response = client.post("/api/trajectory", json={"model": "sudoku-mini", "puzzle": PUZZLES[0], **body})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"].startswith("text/event-stream")
    return events(response.text)


def test_a_trajectory_shows_both_rules_step_by_step(client):
    told = trajectory(client, rules=["ddpm", {"rule": "tweedie", "variance": 0.9}], steps=7, seed=3)
    assert told[0][0] == "start"
    assert told[0][1]["rules"] == [
        {"rule": "ddpm", "settings": {}},
        {"rule": "tweedie", "settings": {"variance": 0.9}},
    ]
    for side in (0, 1):
        frames = [data for name, data in told if name == "frame" and data["side"] == side]
        assert [frame["step"] for frame in frames] == [1, 2, 3, 4, 5, 6, 7]
        assert frames[-1]["t"] == 0
        assert all(len(frame[key]) == 16 for frame in frames for key in ("x", "xc", "p", "pc"))
        assert all(frame["valid"] == (frame["pbad"] == []) for frame in frames)
    assert told[-1] == ("done", {})


def test_proposals_are_noised_between_the_times_that_are_asked_for(client):
    told = trajectory(client, rules=["tweedie", {"rule": "resample", "t_max": 0.6, "t_min": 0.2}], steps=4, seed=3)
    assert told[0][1]["rules"][1] == {"rule": "resample", "settings": {"t_max": 0.6, "t_min": 0.2}}
    times = [[data["t"] for name, data in told if name == "frame" and data["side"] == side] for side in (0, 1)]
    assert times == [pytest.approx([0.75, 0.5, 0.25, 0]), pytest.approx([0.6, 0.4, 0.2, 0])]
    asked = {"model": "sudoku-mini", "puzzle": PUZZLES[0], "rule": "tweedie", "t_max": 0.2, "t_min": 0.5}
    refused = client.post("/api/solve", json=asked)
    assert (refused.status_code, "t_max must be more than t_min" in refused.json()["detail"]) == (422, True)


def test_frames_hold_what_the_library_computes(client):
    """The batch width differs from the library's trajectory of one board, so early steps are compared."""
    import letgo

    solver = letgo.load("sudoku-mini")
    problem = solver.task.parse(PUZZLES[0])
    clues = solver.clues(problem)
    frames = [data for name, data in trajectory(client, rules=["ddpm"], steps=5, seed=1) if name == "frame"]
    for frame, snapshot in zip(frames, solver.trajectory(PUZZLES[0], "ddpm", 5, 1), strict=True):
        state, proposal = solver.codec.decode(snapshot.x), solver.codec.decode(clues.pin(snapshot.x0_hat))
        assert frame["x"] == "".join(str(s) for s in state[0].tolist())
        assert frame["p"] == "".join(str(s) for s in proposal[0].tolist())
        broken = solver.task.violations(state, problem)[0].nonzero().flatten().tolist()
        assert frame["xbad"] == broken


def test_the_verdict_is_about_the_final_state(client):
    told = trajectory(client, steps=20)
    for side in (0, 1):
        *_, last = (data for name, data in told if name == "frame" and data["side"] == side)
        [verdict] = [data for name, data in told if name == "verdict" and data["side"] == side]
        assert verdict["valid"] == (last["xbad"] == [])
        assert verdict["violations"] == len(last["xbad"])
        first = [data["step"] for name, data in told if name == "frame" and data["side"] == side and data["valid"]]
        assert verdict["first_valid"] == (first[0] if first else None)


def test_the_same_request_gives_the_same_frames(client):
    def boards() -> list[dict]:
        return [data for name, data in trajectory(client, steps=15, seed=9) if name == "frame"]

    key = lambda frame: (frame["side"], frame["step"])  # noqa: E731  (the sides may interleave in another order)
    assert sorted(boards(), key=key) == sorted(boards(), key=key)


def test_a_race_counts_final_boards_with_wilsons_interval(client):
    from letgo.estimates import rate

    body = {"model": "sudoku-mini", "puzzle": PUZZLES[0], "steps": 15, "count": 6, "seed": 2}
    told = events(client.post("/api/race", json=body).text)
    results = [data for name, data in told if name == "result"]
    assert sorted((r["side"], r["seed"]) for r in results) == [(side, seed) for side in (0, 1) for seed in range(2, 8)]
    for side in (0, 1):
        mine = [r for r in results if r["side"] == side]
        for n, result in enumerate(mine, 1):
            wins = sum(r["valid"] for r in mine[:n])
            assert (result["wins"], result["n"]) == (wins, n)
            assert (result["low"], result["high"]) == pytest.approx(rate(wins, n).interval95)
    one = trajectory(client, steps=15, seed=4)
    for side in (0, 1):
        [verdict] = [data for name, data in one if name == "verdict" and data["side"] == side]
        [raced] = [r for r in results if r["side"] == side and r["seed"] == 4]
        assert verdict["valid"] == raced["valid"]
    assert told[-1] == ("done", {})


def until_sure(client: TestClient, **body) -> list[tuple[str, dict]]:
    response = client.post("/api/until-sure", json={"model": "sudoku-mini", "puzzle": PUZZLES[0], **body})
    assert response.status_code == 200, response.text
    return events(response.text)


@pytest.mark.parametrize(
    ("model", "puzzle", "options"),
    [
        ("sudoku-mini", PUZZLES[0], {"rule": "ddpm", "steps": 3, "tries": 4, "seed": 2, "sure": 0.0}),  # never sure
        ("sudoku-extreme-looped", HARD, {"tries": 12, "seed": 0}),
    ],
)
def test_until_sure_chooses_what_the_library_chooses(client, model, puzzle, options):
    import letgo

    told = until_sure(client, model=model, puzzle=puzzle, **options)
    [choice] = [data for name, data in told if name == "choice"]
    [expected] = letgo.load(model).solve([puzzle], verify=False, **{k: v for k, v in options.items() if k != "sure"})
    record = {key: value for key, value in choice.items() if key not in ("number", "sure")}
    assert timeless(record) == timeless(expected.as_dict())
    tries, steps, mark = [data for name, data in told if name == "try"], told[0][1]["steps"], told[0][1]["sure"]
    assert [one["number"] for one in tries] == [*range(1, expected.tries + 1)]
    assert [one["sure"] for one in tries] == [one["belief"] > mark for one in tries]
    assert not any(one["sure"] for one in tries[:-1])
    assert choice["sure"] == tries[-1]["sure"] == (mark < 0)
    assert choice["belief"] == max(one["belief"] for one in tries) == tries[choice["number"] - 1]["belief"]
    frames = [steps if model == "sudoku-mini" else one["calls"] for one in tries]  # of ddpm a try goes to its end
    names = [name for count in frames for name in [*["frame"] * count, "try"]]
    assert [name for name, _ in told] == ["start", *names, "choice", "done"]
    if model == "sudoku-extreme-looped":
        assert frames[:-1] == [steps] * (len(tries) - 1)
        assert frames[-1] < steps
        assert "".join(str(ord(symbol) - 47) for symbol in told[-4][1]["x"]) == expected.board
    for one in tries:
        assert sum(one["cells"]) == pytest.approx(one["belief"], abs=0.05)
        assert all(cell == 0 for cell, given in zip(one["cells"], puzzle, strict=True) if given != ".")


def test_until_sure_needs_a_mark(client):
    refused = client.post("/api/until-sure", json={"model": "sudoku-mini", "puzzle": PUZZLES[0]})
    assert (refused.status_code, "letgo tune RUN --belief" in refused.json()["detail"]) == (422, True)
    cards = {card["name"]: card["sure"] for card in client.get("/api/models").json()["models"]}
    assert cards["sudoku-mini"] is None
    assert -1 < cards["sudoku-extreme-looped"] < 0


def test_models_say_all_that_a_page_needs(client):
    listing = client.get("/api/models").json()
    [mini] = [model for model in listing["models"] if model["name"] == "sudoku-mini"]
    assert listing["default"] in [model["name"] for model in listing["models"]]
    assert (mini["kind"], mini["side"], mini["box"], mini["letters"], mini["source"]) == (
        "grid",
        4,
        2,
        "1234",
        "shipped",
    )
    for model in listing["models"]:
        answer = client.post("/api/check", json={"model": model["name"], "puzzle": model["example"]["puzzle"]})
        assert answer.status_code == 200, answer.text


def test_a_masked_model_plays_the_rules_that_fit_it(folders):
    from letgo.app.server import create_app

    name, puzzle = str(folders["sudoku-d3pm"]), "1.............2."
    with TestClient(create_app([name]), base_url=HOST) as client:
        [card] = [card for card in client.get("/api/models").json()["models"] if card["name"] == name]
        ordered = ["order_noise", "temperature", "soft_until"]
        assert card["rules"] == {
            "ancestral": ["soft_until"], "confidence": ordered, "remask": ordered, "remdm": ["soft_until"]
        }  # fmt: skip
        assert card["default_rules"] == ["ancestral", "confidence"]
        frames = [data for kind, data in trajectory(client, model=name, puzzle=puzzle) if kind == "frame"]
        for side in (0, 1):
            masked = [frame["x"].count("?") for frame in frames if frame["side"] == side]
            assert masked == sorted(masked, reverse=True)  # what is open stays open
            assert 0 < masked[0] < 15
            assert masked[-1] == 0
        assert all(frame["x"][0] == "0" and frame["xc"][0] == "z" for frame in frames)  # the clues
        for board, bad in ((frame["x"], frame["xbad"]) for frame in frames):  # no cell clashes with a masked one
            units = [(("row", i // 4), ("column", i % 4), ("box", i // 8, i % 4 // 2)) for i in range(16)]
            held = [(unit, board[i]) for i in range(16) for unit in units[i]]
            wrong = [i for i in range(16) if board[i] == "?" or any(held.count((u, board[i])) > 1 for u in units[i])]
            assert bad == wrong
        asked = {"rule": "remask", "order_noise": 0.5}
        told = trajectory(client, model=name, puzzle=puzzle, rules=[asked, "remdm"], steps=40)
        assert told[0][1]["rules"] == [
            {"rule": "remask", "settings": {"order_noise": 0.5}},
            {"rule": "remdm", "settings": {}},
        ]
        for side in (0, 1):  # both hide open cells again
            masked = [data["x"].count("?") for kind, data in told if kind == "frame" and data["side"] == side]
            assert masked != sorted(masked, reverse=True)
            assert masked[-1] == 0
        answer = client.post("/api/solve", json={"model": name, "puzzle": puzzle, "tries": 1})
        assert answer.status_code == 200
        refused = client.post("/api/trajectory", json={"model": name, "puzzle": puzzle, "rules": ["ddpm"]})
        assert refused.status_code == 422
        assert "choose one of confidence, ancestral, remask, remdm" in refused.json()["detail"]


def test_a_random_puzzle_has_the_clues_asked_for_and_is_its_seeds(client):
    first, again, other = (
        client.get("/api/puzzle", params={"model": "sudoku-mini", "regime": "7", "seed": seed}).json()
        for seed in (1, 1, 2)
    )
    assert first["clues"] == 7
    assert first == again != other
    refused = client.get("/api/puzzle", params={"model": "sudoku-mini", "regime": "99"})
    assert refused.status_code == 422
    assert "unknown regime '99'" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("puzzle", "words"),
    [
        ("123", "expected 16 cells, got 3"),
        ("11..............", "clues clash"),
        ("z...............", "write clues as 1-4"),
    ],
)
@pytest.mark.parametrize("route", ["solve", "trajectory", "race", "check"])
def test_bad_puzzles_are_refused_in_words(client, route, puzzle, words):
    response = client.post(f"/api/{route}", json={"model": "sudoku-mini", "puzzle": puzzle})
    assert response.status_code == 422
    assert words in response.json()["detail"]


def test_a_rule_without_its_settings_is_refused_in_words():
    from letgo.app.catalog import Catalog
    from letgo.errors import LetgoError

    catalog = Catalog([])
    catalog.load()
    _, solver = catalog.pick(None, "sudoku-mini")
    solver.folder = None  # nothing is stored with it
    with pytest.raises(LetgoError, match="needs --sigma"):
        solver.sampler("em")


def test_the_page_is_up_before_torch():
    code = "import sys, letgo.app.server; letgo.app.server.create_app(); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_health_counts_nothing_when_idle(client):
    health = client.get("/api/health").json()
    assert (health["status"], health["in_flight"], health["running_boards"]) == ("ok", 0, 0)
    assert health["limits"]["queue"] == 64


def test_every_event_is_of_its_type(client):
    from letgo.app.schemas import EVENTS

    puzzle = {"model": "sudoku-mini", "puzzle": PUZZLES[0], "steps": 6}
    streams = [
        client.post("/api/trajectory", json={**puzzle, "probabilities": True}),
        client.post("/api/race", json={**puzzle, "count": 2}),
        client.post("/api/race", json={**puzzle, "count": 2, "vary": "puzzles", "regime": "5"}),
        client.post("/api/until-sure", json={**puzzle, "tries": 2, "sure": 0.0}),
    ]
    told = [event for stream in streams for event in events(stream.text)]
    for name, data in told:
        assert EVENTS[name].model_validate(data).model_dump(exclude_unset=True) == data | {
            key: [tuple(pair) for pair in data[key]] for key in ("clashes",) if key in data
        }
    assert {name for name, _ in told} >= {"start", "frame", "verdict", "result", "try", "choice", "done"}
    frame = next(data for name, data in told if name == "frame")
    assert [max(cell) for cell in frame["probabilities"]] == pytest.approx(
        [int(c, 36) / 35 for c in frame["pc"]], abs=0.03
    )
    raced = [data for name, data in told if name == "result" and "puzzle" in data]
    assert sorted((r["side"], r["number"]) for r in raced) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert len({r["puzzle"] for r in raced}) == 2
    assert all(16 - r["puzzle"].count(".") == 5 for r in raced)
    schema = client.get("/openapi.json").json()["paths"]["/api/race"]["post"]["responses"]["200"]
    assert list(schema["content"]["text/event-stream"]["schema"]["x-events"]) == list(EVENTS)


def test_two_models_play_side_by_side(client, folders):
    from letgo.app.server import create_app

    other = str(folders["sudoku-d3pm"])
    with TestClient(create_app([other]), base_url=HOST) as client:
        rules = ["tweedie", {"rule": "confidence", "model": other}]
        told = trajectory(client, rules=rules, steps=9, seed=2)
        assert told[0][1]["models"] == ["sudoku-mini", other]
        alone = trajectory(client, model=other, rules=["confidence"], steps=9, seed=2)
        frames = [
            [data["x"] for name, data in run if name == "frame" and data["side"] == side]
            for run, side in ((told, 1), (alone, 0))
        ]
        assert frames[0] == frames[1]
        body = {"model": "sudoku-mini", "puzzle": PUZZLES[0], "rules": ["ddpm", {"rule": "ddpm", "model": "queens"}]}
        refused = client.post("/api/trajectory", json=body)
        assert (refused.status_code, "has other boards" in refused.json()["detail"]) == (422, True)


def test_a_check_counts_solutions_and_may_report_instead_of_refusing(client):
    def ask(puzzle: str) -> dict:
        return client.post("/api/check", json={"model": "sudoku-mini", "puzzle": puzzle, "report": True}).json()

    none, many, clash = ask("12.....3........"), ask("1..............."), ask("11..............")
    assert (none["solutions"], none["solution"]) == (0, None)
    assert (many["solutions"], many["solution"]) == (2, None)
    one = ask("1234341221434...")
    assert (one["solutions"], one["solution"]) == (1, "1234341221434321")
    assert "clues clash" in clash["detail"]
    assert client.get("/docs").status_code == 200


def test_a_verdict_names_cells_that_clash_and_what_is_left_to_them(client):
    told = trajectory(client, rules=["ddpm"], steps=2, seed=1)
    [verdict] = [data for name, data in told if name == "verdict"]
    last = [data for name, data in told if name == "frame"][-1]
    assert verdict["clashes"]
    for a, b in verdict["clashes"]:
        same = a // 4 == b // 4 or a % 4 == b % 4 or (a // 8, a % 4 // 2) == (b // 8, b % 4 // 2)
        assert same
        assert last["x"][a] == last["x"][b]
    for cell in verdict["broken"]:
        i = cell["cell"]
        peers = [
            j
            for j in range(16)
            if j != i and (j // 4 == i // 4 or j % 4 == i % 4 or (j // 8, j % 4 // 2) == (i // 8, i % 4 // 2))
        ]
        assert cell["left"] == [s for s in range(4) if str(s) not in {last["x"][j] for j in peers}]


SERIES = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="[^"\\\n]*"(?:,(?!\}))?)*)\})? ([0-9.e+-]+|\+Inf)')


def scraped(client: TestClient) -> dict[str, float]:
    """Every series of /metrics; each line must be of the format, each family declared once and before its series."""
    response = client.get("/metrics")
    assert response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert response.text.endswith("\n")
    found, family, kind = {}, "", ""
    for line in response.text.splitlines():
        if declared := re.fullmatch(r"# (HELP|TYPE) ([a-z_]+) (.+)", line):
            family, kind = declared[2], declared[3]
            continue
        match = SERIES.fullmatch(line)
        assert match, line
        parts = [f"{family}_{part}" for part in ("bucket", "sum", "count")] if kind == "histogram" else [family]
        assert match[1] in parts, line
        key = f"{match[1]}{{{match[2]}}}" if match[2] else match[1]
        assert key not in found, line
        found[key] = float(match[3])
    return found


def test_metrics_count_requests_steps_calls_and_boards(client):
    before = scraped(client)
    answer = solve(client, puzzle=PUZZLES[0], rule="tweedie", steps=20, seed=1)
    client.post("/api/solve", json={"model": "nobody", "puzzle": "."})
    client.get("/made/up")
    client.get("/api/health", headers={"Host": "elsewhere"})
    after = scraped(client)

    def grown(key: str) -> float:
        return after.get(key, 0.0) - before.get(key, 0.0)

    assert answer["solved"]
    assert grown('letgo_requests_total{route="/api/solve",status="200"}') == 1
    assert grown('letgo_requests_total{route="/api/solve",status="404"}') == 1
    assert grown('letgo_requests_total{route="other",status="404"}') == 1
    assert grown('letgo_requests_total{route="/api/health",status="403"}') == 1  # refused at the door
    assert grown('letgo_request_seconds_count{route="/api/solve"}') == 2
    assert grown('letgo_request_seconds_bucket{route="/api/solve",le="+Inf"}') == 2
    assert grown("letgo_network_calls_total") == grown("letgo_batch_boards_count") == answer["calls"]
    assert grown("letgo_batch_boards_sum") == grown('letgo_batch_boards_bucket{le="1"}') == answer["calls"]  # alone
    assert grown("letgo_boards_solved_total") == 1
    assert (after["letgo_queue_requests"], after["letgo_running_boards"], after["letgo_queue_limit"]) == (0, 0, 64)
    buckets = [
        value for key, value in after.items() if key.startswith('letgo_request_seconds_bucket{route="/api/solve"')
    ]
    assert buckets == sorted(buckets)
    assert client.get("/metrics", headers={"Origin": "http://elsewhere"}).status_code == 403
    assert client.get("/metrics", headers={"Host": "elsewhere"}).status_code == 403


def test_a_board_that_is_settled_leaves_its_batch_to_the_others():
    import letgo
    from letgo.app.jobs import SolveJob
    from letgo.app.scheduler import Scheduler

    solver = letgo.load("sudoku-mini", "cpu")
    sampler, problems = solver.sampler("tweedie", 30), [solver.parse([puzzle]) for puzzle in PUZZLES]
    jobs = [SolveJob(solver, problem, sampler, 1, 0) for problem in problems]
    answers: dict[int, dict] = {}
    scheduler, sizes = Scheduler(8), []
    for number, job in enumerate(jobs):
        job.emit = lambda name, data, number=number: answers.update({number: data})
        scheduler.submit(job)
    while len(answers) < len(jobs):
        batch = scheduler._next()
        assert batch is not None
        sizes.append(len(batch.lanes))
        if not scheduler._advance(batch):
            scheduler._retire(batch)
    calls = sorted(answer["calls"] for answer in answers.values())
    assert calls[0] < calls[-1]  # else nothing could leave
    assert sizes == [sum(own > step for own in calls) for step in range(calls[-1])]
    for problem, answer in zip(problems, (answers[number] for number in range(len(jobs))), strict=True):
        [alone] = solver.solve(problem, rule="tweedie", steps=30)
        assert timeless(answer) == timeless(alone.as_dict())
