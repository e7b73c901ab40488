"""Requests and answers of the API. Names are those of the command line."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from letgo.app import limits


def text(longest: int, description: str) -> Any:
    return Field(min_length=1, max_length=longest, description=description)


def amount(most: float, description: str) -> Any:
    return Field(ge=0, le=most, allow_inf_nan=False, description=description)


RuleName = Annotated[str, text(40, "One of the model's `rules`")]
TaskName = Annotated[str, text(100, "The task of a model from /api/models")]
ModelName = Annotated[str, text(200, "A name from /api/models; by default the task's own model")]
Puzzle = Annotated[str, text(limits.MAX_PUZZLE, "One line, as `letgo solve` reads it; '.' for a blank")]
Seed = Annotated[int, Field(ge=0, le=limits.MAX_SEED, description="Seed of the noise")]
Steps = Annotated[int, Field(ge=1, le=limits.MAX_STEPS, description="Sampler steps; by default the model's own")]
Picture = Annotated[str, Field(json_schema_extra={"contentEncoding": "base64", "contentMediaType": "image/png"})]
EXAMPLE = ".1..3......2..3."


def example(**fields: Any) -> ConfigDict:
    """Return a schema that shows a request of these fields, for the 4x4 puzzle."""
    return ConfigDict(json_schema_extra={"examples": [{"model": "sudoku-mini", "puzzle": EXAMPLE, **fields}]})


class Strict(BaseModel):
    """It is JSON of exactly these fields and types: '5' is no number, and a misspelt name is refused."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Settings(Strict):
    """These are a rule's settings; em and em-decay take what was tuned with the model where none are given."""

    sigma: Annotated[float, amount(limits.MAX_SIGMA, "Noise scale of em and em-decay")] | None = None
    tau_start: Annotated[float, amount(1.0, "Progress 1 - t at which em-decay begins to fall")] | None = None
    sigma_ahead: Annotated[float, amount(100.0, "Steps by which em-decay's sigma runs ahead of t")] | None = None
    variance: Annotated[float, amount(16.0, "Factor on the rule's variance (Figure 11)")] = 1.0
    ahead: Annotated[float, amount(100.0, "Steps by which the time that the network is told runs ahead of t")] = 0.0
    t_max: Annotated[float, amount(1.0, "Time that the first proposal of tweedie, resample is noised to")] | None = None
    t_min: Annotated[float, amount(1.0, "The same of the last but one; times fall evenly to it")] | None = None
    soft_until: Annotated[float, amount(1.0, "t*: soft pinning while t >= t*; by default always hard")] | None = None
    order_noise: Annotated[float, amount(16.0, "Chance in the order of cells, not in their symbols")] | None = None
    temperature: Annotated[float, amount(16.0, "Of the symbols that are drawn; 0 takes the likeliest")] | None = None


class RuleSettings(Settings):
    """This is an update rule with its settings."""

    rule: RuleName
    model: ModelName | None = Field(default=None, description="Another model of the same boards, for this side alone")


class PuzzleRequest(Strict):
    """It says which puzzle, for which model."""

    task: TaskName | None = Field(default=None, description="Default: the model's task, or sudoku")
    model: ModelName | None = None
    puzzle: Puzzle


class CheckRequest(PuzzleRequest):
    """It asks about a puzzle."""

    report: bool = Field(default=False, description="Answer 200 with `detail` where the puzzle is none, not 422")


class SolveRequest(Settings, PuzzleRequest):
    """It solves as `letgo solve --json` does: stop at the first valid proposal, try again where there is none."""

    model_config = example(steps=20, tries=2)
    rule: RuleName | None = Field(default=None, description="Default: tweedie, or confidence where it is masked")
    steps: Steps | None = None
    tries: int = Field(default=10, ge=1, le=limits.MAX_TRIES)
    seed: Seed = 0


class SureRequest(SolveRequest):
    """It solves as `letgo solve --no-verify --tries` does, until the network is sure. No rule is looked at."""

    model_config = example(steps=5, tries=3, sure=-2.0)
    tries: int = Field(default=24, ge=1, le=limits.MAX_TRIES)
    sure: float | None = Field(
        default=None,
        ge=limits.LEAST_BELIEF,
        le=0,
        allow_inf_nan=False,
        description="The self-likelihood above which a board counts as settled; by default the model's own mark",
    )


class TrajectoryRequest(PuzzleRequest):
    """It takes one puzzle and noise through one or two rules, to the end, whatever the rules of the task say."""

    model_config = example(rules=["ddpm", "tweedie"], steps=10)
    rules: Annotated[list[RuleName | RuleSettings], Field(min_length=1, max_length=2)] | None = Field(
        default=None, description="Default: the model's `default_rules`"
    )
    steps: Steps | None = None
    seed: Seed = 0
    probabilities: bool = Field(default=False, description="Frames hold the proposal's probabilities of every symbol")


class RaceRequest(TrajectoryRequest):
    """It asks for the same from several seeds: seed, seed + 1 and so on."""

    model_config = example(steps=5, count=4)
    count: int = Field(default=32, ge=1, le=limits.MAX_SEEDS)
    vary: Literal["seeds", "puzzles"] = Field(
        default="seeds", description="The same puzzle from many seeds, or as many random puzzles from one"
    )
    regime: str | None = Field(default=None, max_length=20, description="Of random puzzles: a clue count or a name")


class Answer(BaseModel):
    """This is the record of `letgo solve --json`."""

    puzzle: str
    solved: bool
    board: str | None
    tries: int
    calls: int
    seconds: float


class Parsed(BaseModel):
    """This is a puzzle as the model will see it."""

    model: str
    puzzle: str
    clues: int
    cells: int
    detail: str | None = Field(default=None, description="Why it is no puzzle, where a `report` was asked for")
    solutions: int | None = Field(
        default=None, description="0, 1, or 2 for several; null where no exact search ended in time"
    )
    solution: str | None = Field(default=None, description="The solution, where there is exactly one")
    picture: Picture | None = Field(default=None, description="Where cells are images: those of the clues")


class Regime(BaseModel):
    """It says where random puzzles come from, and the clue counts that can be asked for, if any."""

    named: list[str]
    fewest: int | None
    most: int | None
    usual: int | None


class Example(BaseModel):
    puzzle: str
    seed: int


class ModelCard(BaseModel):
    """It says of one model what a page must know to draw its boards."""

    name: str
    task: str
    title: str
    summary: str
    source: Literal["shipped", "local"]
    kind: Literal["grid", "queens", "graph", "maze"]
    cells: int = Field(description="Cells of a board; a graph's are those of the size it was trained with")
    side: int = Field(description="Cells in a row; for a graph the nodes it was trained with")
    rows: int = Field(description="Rows of the drawn board")
    columns: int = Field(description="Columns of the drawn board")
    box: int = Field(description="Side of a Sudoku box, 0 where there are none")
    letters: str | list[str] = Field(description="How the symbols 0, 1, ... are written in a puzzle")
    separator: str = Field(description="What stands between the cells of a puzzle; mostly nothing")
    blank: str = Field(default=".", description="What stands for an open cell in a puzzle")
    context: bool = Field(default=False, description="The text of a puzzle is told beside the board, as a graph is")
    masked: bool = Field(default=False, description="In a state a cell has its symbol, or is masked and has none")
    image: int = Field(default=0, description="Pixels of a cell's image, high and wide; 0 where cells are no images")
    steps: int = Field(description="Default number of sampler steps")
    rules: dict[str, list[str]] = Field(description="The rules that fit the model, and the settings that each takes")
    default_rules: list[str] = Field(description="ddpm and tweedie where both fit, else the first two rules")
    regime: Regime
    example: Example
    tuned: dict[str, dict[str, float]] = Field(description="Stored settings of em and em-decay")
    tuned_steps: dict[str, int] = Field(default={}, description="The number of steps that they were tuned for")
    sure: float | None = Field(
        default=None,
        description="The self-likelihood above which it is sure of a board; null where it has no such mark",
    )


class Models(BaseModel):
    models: list[ModelCard]
    default: str | None
    failed: dict[str, str] = Field(description="Models that could not be read, and why")


class Limits(BaseModel):
    steps: int = limits.MAX_STEPS
    tries: int = limits.MAX_TRIES
    seeds: int = limits.MAX_SEEDS
    puzzle_characters: int = limits.MAX_PUZZLE
    cells: int = limits.MAX_CELLS
    body_bytes: int = limits.MAX_BODY
    queue: int


class Health(BaseModel):
    """The status is `loading` while torch and the models are read; `in_flight` counts requests that run or wait."""

    status: Literal["ok", "loading", "failed"]
    version: str
    detail: str | None = Field(default=None, description="Why loading failed")
    failed: dict[str, str] = Field(description="Models that could not be read, and why")
    in_flight: int
    running_boards: int
    finished: int
    limits: Limits


class Event(BaseModel):
    """It is what the `data` of a server-sent event holds."""

    model_config = ConfigDict(extra="forbid")


class Start(Event):
    """It tells everything that decides the run; `models` and `rules` have an entry for each side."""

    model: str
    task: str
    puzzle: str
    rules: list[dict[str, Any]]
    models: list[str]
    steps: int
    seed: int
    version: str
    probabilities: bool = False
    count: int | None = Field(default=None, description="Seeds or puzzles of a race")
    vary: str | None = None
    tries: int | None = Field(default=None, description="At most so many until the network is sure")
    sure: float | None = Field(default=None, description="The mark: the self-likelihood above which it is")


class Frame(Event):
    """It is one step of one side: x the state, p the proposal; one character per cell, `0` to `z`."""

    side: int
    step: int
    t: float
    x: str
    xc: str = Field(description="Certainty, `0` to `z` is 0 to 1")
    xbad: list[int] = Field(description="Cells that break a rule")
    p: str
    pc: str
    pbad: list[int]
    valid: bool = Field(description="Whether the proposal breaks no rule")
    probabilities: list[list[float]] | None = Field(default=None, description="Of every symbol, cell by cell")
    xi: Picture | None = Field(default=None, description="Where cells are images: the state, white ink on black")
    pi: Picture | None = Field(default=None, description="The same of the proposal")


class Verdict(Event):
    """It says how one side ended."""

    side: int
    valid: bool
    violations: int
    first_valid: int | None
    steps: int
    calls: int
    seconds: float
    clashes: list[tuple[int, int]] = Field(description="Pairs of cells that break a rule together")
    broken: list[dict[str, Any]] = Field(description="Open broken cells: `cell`, `certainty`, and the symbols `left`")


class Progress(Event):
    done: int
    total: int


class Result(Event):
    """It is one board of a race, and how often its side has won by now, with Wilson's interval."""

    side: int
    seed: int
    valid: bool
    wins: int
    value: float
    low: float
    high: float
    n: int
    number: int | None = Field(default=None, description="Of many puzzles: which one")
    puzzle: str | None = None


class Try(Event):
    """It is one try that has ended; the frames before it are its steps."""

    number: int = Field(description="Counted from 1")
    belief: float = Field(description="The self-likelihood of its board, 0 at most")
    mark: float
    sure: bool = Field(description="Whether it lies above the mark")
    cells: list[float] = Field(description="What each cell has in it: the log-probability of its symbol, 0 at clues")
    calls: int = Field(description="Network calls of this try, those for its self-likelihood counted")


class Choice(Event):
    """It is the record of `letgo solve --no-verify --tries --json`, and which try it is."""

    puzzle: str
    solved: bool = Field(description="Whether the board breaks no rule: looked at only now")
    board: str | None
    tries: int
    calls: int
    seconds: float
    belief: float
    number: int = Field(description="The try that is believed most")
    sure: bool


class Done(Event):
    """Nothing more will come."""


class Error(BaseModel):
    """It says what was wrong and what to do next, in words."""

    detail: str


EVENTS: dict[str, type[BaseModel]] = {
    kind.__name__.lower(): kind for kind in (Start, Frame, Verdict, Progress, Result, Try, Choice, Done, Error)
}
