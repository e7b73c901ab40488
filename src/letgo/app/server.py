"""The routes. Torch is imported by the thread that reads the models, so the page is up before it."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, JSONResponse, Response
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from letgo import __version__
from letgo.app import limits, schemas
from letgo.app.catalog import Catalog, parse, random_puzzle
from letgo.app.guard import Guard
from letgo.app.limits import Busy
from letgo.errors import LetgoError

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
RETRY_SECONDS = 2
PUZZLE_MAKERS, PUZZLE_SECONDS = 2, 10.0  # a maze takes a second of a core to find: not many at once
Responses = dict[int | str, dict[str, Any]]
REFUSALS: Responses = {
    code: {"model": schemas.Error, "description": words}
    for code, words in {
        400: "The body cannot be read",
        403: "A foreign host name, or a post from another site",
        404: "No such model",
        408: "The body came too slowly",
        413: "The body is too large",
        415: "The body is not sent as JSON",
        422: "What is wrong with the request, in words",
        503: "The models could not be read",
    }.items()
}
RETRY = {"Retry-After": {"schema": {"type": "string"}, "description": "Seconds"}}
BUSY: Responses = {429: {"model": schemas.Error, "description": "All places are taken", "headers": RETRY}}
EVENT = {
    "type": "object",
    "required": ["event", "data"],
    "properties": {
        "event": {"enum": ["start", "frame", "verdict", "progress", "result", "done", "error"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}
STREAM: Responses = {
    200: {"description": "Server-sent events, each of this form", "content": {"text/event-stream": {"schema": EVENT}}}
}
ASKING: Responses = {code: REFUSALS[code] for code in (403, 404, 422, 503)}


def create_app(
    models: Iterable[str] = (),
    device: str = "cpu",
    queue: int = limits.QUEUE,
    bound: str = "127.0.0.1",
    names: Iterable[str] = (),
) -> FastAPI:
    """The application; `models` are run folders beside the shipped models."""
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
        docs_url=None,  # both pages would fetch scripts from elsewhere
        redoc_url=None,
    )
    app.add_middleware(Guard, bound=bound, names=names)
    _say_errors_in_words(app)
    _add_questions(app, held)
    _add_sampling(app, held)
    _add_page(app)
    app.state.held = held
    return app


def _add_page(app: FastAPI) -> None:
    """One route per file of the static folder, listed now: no path of a request is ever looked up on the disk."""

    def serve(path: Path) -> None:
        async def file(_: Request) -> FileResponse:
            return FileResponse(path, media_type=MEDIA_TYPES[path.suffix])

        for route in (f"/{path.name}", *(["/"] if path.name == "index.html" else [])):
            app.add_route(route, file, methods=["GET"], include_in_schema=False)

    for path in STATIC.iterdir():
        if path.suffix in MEDIA_TYPES:
            serve(path)


class Held:
    """What the routes share: the models, and the scheduler once torch is there."""

    def __init__(self, catalog: Catalog, queue: int):
        self.catalog, self.queue = catalog, queue
        self.scheduler: Any = None  # a letgo.app.scheduler.Scheduler; naming the type would import torch

    def start(self) -> None:
        threading.Thread(target=self._load, name="letgo-load", daemon=True).start()

    def _load(self) -> None:
        try:
            from letgo.app.scheduler import Scheduler

            self.scheduler = Scheduler(self.queue)
            self.scheduler.start()
            self.catalog.load()
        except Exception as error:  # torch itself may be broken
            self.catalog.fail(error)

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
    catalog, making = held.catalog, threading.BoundedSemaphore(PUZZLE_MAKERS)

    @app.get("/api/health", responses={403: REFUSALS[403]})
    async def health() -> schemas.Health:  # not in a thread: it answers even when all threads wait
        """Whether the server is ready, how busy it is, and what it accepts."""
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

    @app.get("/api/models", responses={403: REFUSALS[403], 503: REFUSALS[503]})
    def list_models() -> schemas.Models:
        """Every model that can be asked, with what a page needs to draw its boards."""
        catalog.wait()
        return schemas.Models(models=list(catalog.cards.values()), default=catalog.default, failed=catalog.failed)

    @app.get("/api/puzzle", responses=ASKING | BUSY)
    def puzzle(
        model: schemas.ModelName | None = None,
        task: schemas.TaskName | None = None,
        regime: Annotated[str | None, Query(max_length=20, description="A clue count or a named regime")] = None,
        seed: schemas.Seed = 0,
    ) -> schemas.Parsed:
        """A random puzzle: the first test instance of that seed."""
        name, solver = catalog.pick(task, model)
        most = limits.MAX_CELLS
        large = regime is not None and regime.isdecimal() and int(regime) ** 2 > most
        if large and catalog.cards[name].kind == "graph":
            raise LetgoError(f"a graph of {regime} nodes has too many cells; this server takes at most {most}")
        if not making.acquire(timeout=PUZZLE_SECONDS):
            raise Busy("too many puzzles are being made at once; try again in a few seconds")
        try:
            return _parsed(name, solver, random_puzzle(solver.task, regime, seed))
        finally:
            making.release()

    @app.post("/api/check", responses=REFUSALS)
    def check(request: schemas.PuzzleRequest) -> schemas.Parsed:
        """Whether a puzzle is one, and how the model reads it."""
        name, solver = catalog.pick(request.task, request.model)
        return _parsed(name, solver, request.puzzle)


def _parsed(name: str, solver: Any, puzzle: str) -> schemas.Parsed:
    problem = parse(solver, puzzle)
    text = solver.task.format_clues(problem)[0]
    return schemas.Parsed(model=name, puzzle=text, clues=int(problem.given.sum()), cells=problem.solution.shape[1])


def _add_sampling(app: FastAPI, held: Held) -> None:
    """The three routes that run the network."""

    @app.post("/api/solve", responses=REFUSALS | BUSY)
    async def solve(request: schemas.SolveRequest, http: Request) -> schemas.Answer:
        """Solve one puzzle: the record of `letgo solve --json`."""

        def prepare() -> Any:
            from letgo.app.jobs import SolveJob

            _, solver = held.catalog.pick(request.task, request.model)
            sampler, problem = _sampler(solver, request.rule, request.steps, request), parse(solver, request.puzzle)
            return SolveJob(solver, problem, sampler, request.tries, request.seed)

        job = await run_in_threadpool(prepare)
        from letgo.app.events import answer

        event = await answer(held.scheduler, job, http.receive)
        if event is None:
            raise HTTPException(400, "the client has gone")
        name, data = event
        if name == "error":
            raise HTTPException(503, data["detail"])
        return schemas.Answer(**data)

    @app.post("/api/trajectory", responses=REFUSALS | BUSY | STREAM, response_class=Response)
    async def trajectory(request: schemas.TrajectoryRequest) -> Response:
        """Stream every step of one puzzle under one or two rules: `start`, `frame` ..., `verdict` ..., `done`."""
        return await _stream(held, "TrajectoryJob", request)

    @app.post("/api/race", responses=REFUSALS | BUSY | STREAM, response_class=Response)
    async def race(request: schemas.RaceRequest) -> Response:
        """Stream how often each rule ends in a valid board: `start`, `progress` and `result` ..., `done`."""
        return await _stream(held, "RaceJob", request, count=request.count)


async def _stream(held: Held, kind: str, request: schemas.TrajectoryRequest, **more: int) -> Response:
    """The events of a job of `letgo.app.jobs`; the first repeats everything that decides the run."""

    def prepare() -> tuple[Any, dict[str, Any]]:
        from letgo.app import jobs

        name, solver = held.catalog.pick(request.task, request.model)
        problem = parse(solver, request.puzzle)
        rules = request.rules or held.catalog.cards[name].default_rules
        wanted = [schemas.RuleSettings(rule=rule) if isinstance(rule, str) else rule for rule in rules]
        samplers = [_sampler(solver, rule.rule, request.steps, rule) for rule in wanted]
        opening = {
            "model": name,
            "task": solver.config.task,
            "puzzle": solver.task.format_clues(problem)[0],
            "rules": [{"rule": sampler.rule, "settings": sampler.settings} for sampler in samplers],
            "steps": samplers[0].steps,
            "seed": request.seed,
            "version": __version__,
            **more,
        }
        return getattr(jobs, kind)(solver, problem, samplers, request.seed, **more), opening

    job, opening = await run_in_threadpool(prepare)
    from letgo.app.events import EventStream

    return EventStream(held.scheduler, job, opening)


def _say_errors_in_words(app: FastAPI) -> None:
    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = {_place(e): _sentence(e) for e in reversed(error.errors())}  # one complaint per place
        return _refusal(422, "; ".join(list(first.values())[::-1][:3]))

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
    """One pydantic complaint, e.g. 'steps: input should be less than or equal to 1000, got 5000'."""
    message = error["msg"]
    if not message.startswith("JSON"):
        message = message[:1].lower() + message[1:]
    value = error.get("input")
    value = value[:60] if isinstance(value, str) else value
    return f"{_place(error)}: {message}" + (f", got {value!r}" if isinstance(value, (str, int, float)) else "")
