"""The routes. Torch is imported by the thread that reads the models, so the page is up before it."""

from __future__ import annotations

import gzip
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import Annotated, Any

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.routing import Route

from letgo import __version__
from letgo.app import limits, schemas
from letgo.app.catalog import Catalog, parse, random_puzzle, random_puzzles
from letgo.app.guard import Guard
from letgo.app.limits import Busy
from letgo.app.metrics import MEDIA_TYPE, Measured, Metrics, Samples, exposition
from letgo.app.openapi import with_rules
from letgo.errors import LetgoError

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".json": "application/json",
}
VARY = {"Vary": "Accept-Encoding"}
RETRY_SECONDS = 2
DRAW_SECONDS = 2.0  # how long a race waits until its puzzles may be drawn
COUNT_SECONDS = 0.5  # for the search that counts a puzzle's solutions
PUZZLE_MAKERS, PUZZLES_WAITING = 1, 16  # a maze takes a second of a core to find: not many at once
Responses = dict[int | str, dict[str, Any]]
REFUSALS: Responses = {
    code: {"model": schemas.Error, "description": words}
    for code, words in {
        400: "The body cannot be read",
        403: "A foreign host name, or a request from another site",
        404: "No such model",
        408: "The body came too slowly",
        413: "The body is too large",
        415: "The body is not sent as JSON",
        422: "What is wrong with the request, in words",
        431: "Too many headers, or too long ones",
        503: "The models could not be read",
    }.items()
}
RETRY = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds"}}
BUSY: Responses = {429: {"model": schemas.Error, "description": "All places are taken", "headers": RETRY}}
EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": list(schemas.EVENTS)},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "x-events": {name: kind.model_json_schema() for name, kind in schemas.EVENTS.items()},  # what `data` holds
}
STREAM: Responses = {
    200: {"description": "Server-sent events, each of this form", "content": {"text/event-stream": {"schema": EVENT}}}
}
ANY: Responses = {code: REFUSALS[code] for code in (403, 431)}
ASKING: Responses = ANY | {code: REFUSALS[code] for code in (404, 422, 503)}


def create_app(
    models: Iterable[str] = (),
    device: str = "cpu",
    queue: int = limits.QUEUE,
    bound: str = "127.0.0.1",
    names: Iterable[str] = (),
) -> FastAPI:
    """Return the application; `models` are run folders beside the shipped models."""
    catalog = Catalog(list(models), device)
    held = Held(catalog, queue)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        held.start()
        yield
        await run_in_threadpool(held.close)

    app = FastAPI(
        title="letgo",
        version=__version__,
        summary="Solve puzzles with a diffusion model, and watch two samplers at it.",
        lifespan=lifespan,
        docs_url=None,  # both pages would fetch scripts from elsewhere; api.html is ours
        redoc_url=None,
        openapi_url=None,  # which answers in the loop; ours waits for torch
    )
    app.add_middleware(Guard, bound=bound, names=names)
    _say_errors_in_words(app)
    _add_questions(app, held)
    _add_sampling(app, held)
    _add_page(app)
    _add_schema(app)
    _add_metrics(app, held)
    app.state.held = held
    return app


def _add_metrics(app: FastAPI, held: Held) -> None:
    """Add the route, and what counts requests: outside all else, and only after every route is known."""

    async def answer(_: Request) -> Response:
        return Response(exposition(held.samples()), headers={"Content-Type": MEDIA_TYPE})

    app.add_route("/metrics", answer, methods=["GET"], include_in_schema=False)
    routes = {route.path for route in app.routes if isinstance(route, Route)}
    app.add_middleware(Measured, metrics=held.metrics, routes=routes)


def _add_schema(app: FastAPI) -> None:
    describe = app.openapi

    @cache
    def schema() -> dict[str, Any]:
        return with_rules(describe())

    def answer(_: Request) -> JSONResponse:
        return JSONResponse(schema())

    app.openapi = schema
    app.add_route("/openapi.json", answer, methods=["GET"], include_in_schema=False)


def _add_page(app: FastAPI) -> None:
    """Add one route per file of the static folder, listed now: no path of a request is ever looked up on the disk."""

    def serve(path: Path) -> None:
        async def file(request: Request) -> Response:
            if "gzip" not in request.headers.get("accept-encoding", ""):
                return FileResponse(path, media_type=MEDIA_TYPES[path.suffix], headers=VARY)
            headers = VARY | {"Content-Encoding": "gzip"}
            return Response(
                _packed(path, path.stat().st_mtime_ns), media_type=MEDIA_TYPES[path.suffix], headers=headers
            )

        for route in (f"/{path.name}", *(["/"] if path.name == "index.html" else [])):
            app.add_route(route, file, methods=["GET"], include_in_schema=False)
        if path.name == "api.html":
            app.add_route("/docs", file, methods=["GET"], include_in_schema=False)

    for path in STATIC.iterdir():
        if path.suffix in MEDIA_TYPES:
            serve(path)


@lru_cache(maxsize=64)
def _packed(path: Path, _: int) -> bytes:
    """Return a file of the page in a third of its bytes; it is read again when the time of its last change is new."""
    return gzip.compress(path.read_bytes(), mtime=0)


class Held:
    """It holds what the routes share: the models, and the scheduler once torch is there."""

    def __init__(self, catalog: Catalog, queue: int):
        self.catalog, self.queue = catalog, queue
        self.drawing, self.metrics = threading.BoundedSemaphore(1), Metrics()
        self.scheduler: Any = None  # a letgo.app.scheduler.Scheduler; naming the type would import torch

    def start(self) -> None:
        threading.Thread(target=self._load, name="letgo-load", daemon=True).start()

    def _load(self) -> None:
        try:
            from letgo.app.scheduler import Scheduler

            self.scheduler = Scheduler(self.queue, self.metrics)
            self.scheduler.start()
            self.catalog.load()
        except Exception as error:  # torch itself may be broken
            self.catalog.fail(error)

    def puzzles(self, solver: Any, regime: str | None, count: int, seed: int) -> Any:
        """Draw the puzzles of a race: only one race at a time has its puzzles drawn."""
        if not self.drawing.acquire(timeout=DRAW_SECONDS):
            raise Busy("the puzzles of another race are being drawn; try again in a few seconds")
        try:
            return random_puzzles(solver.task, regime, count, seed)
        finally:
            self.drawing.release()

    def samples(self) -> Samples:
        """Return all that was counted, and how it stands just now."""
        scheduler = self.scheduler
        now = {
            "letgo_queue_requests": scheduler.in_flight() if scheduler else 0,
            "letgo_queue_limit": self.queue,
            "letgo_running_boards": scheduler.running_boards() if scheduler else 0,
        }
        return {**self.metrics.read(), **{(name, ()): float(value) for name, value in now.items()}}

    def hang_up(self) -> None:
        if self.scheduler is not None:
            self.scheduler.hang_up()

    def close(self) -> None:
        self.catalog.ready.wait()
        if self.scheduler is not None:
            self.scheduler.close()


def _sampler(solver: Any, rule: str | None, steps: int | None, settings: schemas.Settings) -> Any:
    return solver.sampler(rule, steps, **{name: getattr(settings, name) for name in schemas.Settings.model_fields})


def _add_questions(app: FastAPI, held: Held) -> None:
    catalog, making, asked = held.catalog, CapacityLimiter(PUZZLE_MAKERS), Counter[str]()
    counting = threading.BoundedSemaphore(PUZZLE_MAKERS)

    @app.get("/api/health", responses=ANY)
    async def health() -> schemas.Health:  # not in a thread: it answers even when all threads wait
        """Say whether the server is ready, how busy it is, and what it accepts."""
        scheduler = held.scheduler
        status = "loading" if not catalog.ready.is_set() else "failed" if catalog.failure else "ok"
        return schemas.Health(
            status=status,
            version=__version__,
            detail=catalog.failure,
            failed=catalog.failed,
            in_flight=scheduler.in_flight() if scheduler else 0,
            running_boards=scheduler.running_boards() if scheduler else 0,
            finished=scheduler.finished if scheduler else 0,
            limits=schemas.Limits(queue=held.queue),
        )

    @app.get("/api/models", responses=ANY | {503: REFUSALS[503]})
    def list_models() -> schemas.Models:
        """List every model that can be asked, with what a page needs to draw its boards."""
        catalog.wait()
        return schemas.Models(models=list(catalog.cards.values()), default=catalog.default, failed=catalog.failed)

    @app.get("/api/puzzle", responses=ASKING | BUSY)
    async def puzzle(  # those who wait hold no thread
        model: schemas.ModelName | None = None,
        task: schemas.TaskName | None = None,
        regime: Annotated[str | None, Query(max_length=20, description="A clue count or a named regime")] = None,
        seed: schemas.Seed = 0,
    ) -> schemas.Parsed:
        """Draw a random puzzle: the first test instance of that seed."""

        def make() -> schemas.Parsed:
            name, solver = catalog.pick(task, model)
            return _parsed(name, solver, random_puzzle(solver.task, regime, seed))

        if asked["puzzles"] >= PUZZLES_WAITING:
            raise Busy("too many puzzles are being made at once; try again in a few seconds")
        asked["puzzles"] += 1
        try:
            return await to_thread.run_sync(make, limiter=making)
        finally:
            asked["puzzles"] -= 1

    @app.post("/api/check", responses=REFUSALS)
    def check(request: schemas.CheckRequest) -> schemas.Parsed:
        """Say whether a puzzle is one, how the model reads it, and whether a Sudoku has no, one or many solutions."""
        name, solver = catalog.pick(request.task, request.model)
        try:
            return _parsed(name, solver, request.puzzle, counting)
        except LetgoError as error:
            if not request.report:
                raise
            return schemas.Parsed(model=name, puzzle=request.puzzle, clues=0, cells=0, detail=str(error))


def _parsed(name: str, solver: Any, puzzle: str, counting: threading.Semaphore | None = None) -> schemas.Parsed:
    """Return what the model reads; with `counting`, which lets few in at once, also how many solutions there are."""
    from letgo.app.pictures import picture_of_clues

    problem, task, found = parse(solver, puzzle), solver.task, None
    if counting is not None and counting.acquire(timeout=COUNT_SECONDS):
        try:
            found = task.solutions(problem, 2, COUNT_SECONDS)
        finally:
            counting.release()
    return schemas.Parsed(
        model=name,
        puzzle=task.format_clues(problem)[0],
        clues=int(problem.given.sum()),
        cells=problem.solution.shape[1],
        solutions=None if found is None else len(found),
        solution=task.format(found, problem)[0] if found is not None and len(found) == 1 else None,
        picture=picture_of_clues(solver, problem),
    )


def _add_sampling(app: FastAPI, held: Held) -> None:
    """Add the four routes that run the network."""

    @app.post("/api/solve", responses=REFUSALS | BUSY)
    async def solve(request: schemas.SolveRequest, http: Request) -> schemas.Answer:
        """Solve one puzzle: the record of `letgo solve --json`."""

        def prepare() -> Any:
            from letgo.app.jobs import SolveJob

            _, solver = held.catalog.pick(request.task, request.model)
            steps = solver.steps_of_tries(request.steps, request.tries)
            sampler, problem = _sampler(solver, request.rule, steps, request), parse(solver, request.puzzle)
            return SolveJob(solver, problem, sampler, request.tries, request.seed)

        job = await run_in_threadpool(prepare)
        job.client = _client(http)
        from letgo.app.events import answer

        event = await answer(held.scheduler, job, http.receive)
        if event is None:
            raise HTTPException(400, "the client has gone")
        name, data = event
        if name == "error":
            raise HTTPException(job.status, data["detail"])
        return schemas.Answer(**data)

    @app.post("/api/trajectory", responses=REFUSALS | BUSY | STREAM, response_class=Response)
    async def trajectory(request: schemas.TrajectoryRequest, http: Request) -> Response:
        """Stream every step of one puzzle under one or two rules: `start`, `frame` ..., `verdict` ..., `done`."""
        return await _stream(held, http, "TrajectoryJob", request, probabilities=request.probabilities)

    @app.post("/api/race", responses=REFUSALS | BUSY | STREAM, response_class=Response)
    async def race(request: schemas.RaceRequest, http: Request) -> Response:
        """Stream how often each rule ends in a valid board: `start`, `progress` and `result` ..., `done`."""
        return await _stream(held, http, "RaceJob", request, count=request.count, vary=request.vary)

    @app.post("/api/until-sure", responses=REFUSALS | BUSY | STREAM, response_class=Response)
    async def until_sure(request: schemas.SureRequest, http: Request) -> Response:
        """Stream tries until the network is sure of its board: `start`, (`frame` ..., `try`) ..., `choice`, `done`."""

        def prepare() -> tuple[Any, dict[str, Any]]:
            from letgo.app.jobs import SureJob
            from letgo.evaluation import doubt_of

            name, solver = held.catalog.pick(request.task, request.model)
            sampler = _sampler(solver, request.rule, request.steps or solver.short_try, request)
            doubt, problem = doubt_of(solver, sampler, request.sure), parse(solver, request.puzzle)
            opening = _opening(name, solver, problem, [sampler], [name], request.seed)
            job = SureJob(solver, problem, sampler, request.tries, request.seed, doubt)
            return job, opening | {"tries": request.tries, "sure": round(doubt.sure, 4)}

        return await _events(held, http, prepare)


def _client(http: Request) -> str:
    """Say whose share of the time a request takes: one address is one client."""
    return http.client.host if http.client else ""


async def _stream(held: Held, http: Request, kind: str, request: schemas.TrajectoryRequest, **more: Any) -> Response:
    """Stream the events of a job of `letgo.app.jobs`; the first repeats everything that decides the run."""

    def prepare() -> tuple[Any, dict[str, Any]]:
        from letgo.app import jobs

        name, solver = held.catalog.pick(request.task, request.model)
        problem = parse(solver, request.puzzle)
        rules = request.rules or held.catalog.cards[name].default_rules
        wanted = [schemas.RuleSettings(rule=rule) if isinstance(rule, str) else rule for rule in rules]
        sides = [held.catalog.beside(name, rule.model) for rule in wanted]
        steps = solver.steps(request.steps)
        samplers = [_sampler(own, rule.rule, steps, rule) for (_, own), rule in zip(sides, wanted, strict=True)]
        opening = _opening(name, solver, problem, samplers, [own for own, _ in sides], request.seed) | more
        solvers = [own for _, own in sides]
        if isinstance(request, schemas.RaceRequest) and request.vary == "puzzles":
            problem = held.puzzles(solver, request.regime, request.count, request.seed)
        return getattr(jobs, kind)(solvers, problem, samplers, request.seed, **more), opening

    return await _events(held, http, prepare)


def _opening(name: str, solver: Any, problem: Any, samplers: list[Any], models: list[str], seed: int) -> dict[str, Any]:
    """Return what every stream begins with."""
    return {
        "model": name,
        "task": solver.config.task,
        "puzzle": solver.task.format_clues(problem)[0],
        "rules": [{"rule": sampler.rule, "settings": sampler.settings} for sampler in samplers],
        "models": models,
        "steps": samplers[0].steps,
        "seed": seed,
        "version": __version__,
    }


async def _events(held: Held, http: Request, prepare: Callable[[], tuple[Any, dict[str, Any]]]) -> Response:
    """Stream the job that `prepare` makes in a thread, after its opening."""
    job, opening = await run_in_threadpool(prepare)
    job.client = _client(http)
    from letgo.app.events import EventStream

    return EventStream(held.scheduler, job, opening)


def _say_errors_in_words(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = {_place(e): _sentence(e) for e in reversed(error.errors())}  # one complaint per place
        inner = [words for place, words in first.items() if not any(other.startswith(f"{place}.") for other in first)]
        return _refusal(422, "; ".join(inner[::-1][:3]))

    @app.exception_handler(LetgoError)
    async def refused(_: Request, error: LetgoError) -> JSONResponse:
        headers = {"Retry-After": str(RETRY_SECONDS)} if isinstance(error, Busy) else None
        return _refusal(getattr(error, "status", 422), str(error), headers)

    @app.exception_handler(HTTPException)
    async def plain(_: Request, error: HTTPException) -> JSONResponse:
        return _refusal(error.status_code, str(error.detail), error.headers)


def _refusal(status: int, words: str, headers: Any = None) -> JSONResponse:
    sendable = words.encode("utf-8", "backslashreplace").decode()  # half a surrogate pair cannot be sent back
    return JSONResponse({"detail": sendable}, status, headers)


def _place(error: Any) -> str:
    parts = [str(part) for part in error["loc"][1:]]
    return ".".join(part for part in parts if part not in ("RuleSettings", "constrained-str")) or "the request"


def _sentence(error: Any) -> str:
    """Turn a complaint of pydantic into words: 'steps: input should be less than or equal to 1000, got 5000'."""
    message = error["msg"]
    if not message.startswith("JSON"):
        message = message[:1].lower() + message[1:]
    value = error.get("input")
    value = value[:60] if isinstance(value, str) else value
    return f"{_place(error)}: {message}" + (f", got {value!r}" if isinstance(value, (str, int, float)) else "")
