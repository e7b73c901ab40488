"""What long work says, by a clock of the test's own: when it is announced, estimated, and a silence filled."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from letgo.progress import EVERY, LATER, Progress, Voice, doing

pytestmark = pytest.mark.fast


class Stage:
    """A screen or a file for stderr, and the time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, terminal: bool = False):
        self.now, self.stream = 0.0, io.StringIO()
        monkeypatch.setattr(self.stream, "isatty", lambda: terminal)
        monkeypatch.setattr("letgo.progress.sys", SimpleNamespace(stderr=self.stream))
        monkeypatch.setattr("letgo.progress.time", SimpleNamespace(monotonic=lambda: self.now))

    @property
    def lines(self) -> list[str]:
        return self.stream.getvalue().splitlines()


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_an_announcement_waits_a_second_and_quick_work_needs_none(stage: Stage):
    voice = Voice()
    voice.announce("loading")
    voice.announce("training on cpu")
    stage.now = 0.9
    voice.beat()
    assert stage.lines == []
    stage.now = 1.0
    voice.beat()
    assert stage.lines == ["training on cpu"]


def test_what_is_said_comes_after_what_was_announced(stage: Stage):
    voice = Voice()
    voice.announce("training on cpu")
    voice.say("stopped")
    stage.now = 2.0
    voice.beat()
    assert stage.lines == ["training on cpu", "stopped"]


def test_a_second_of_measuring_gives_an_estimate_and_half_a_minute_another_line(stage: Stage):
    voice = Voice()
    voice.announce("training on cpu")
    show, looks = Progress("step", voice=voice), []

    def note() -> str:
        looks.append(stage.now)
        return f"  loss {len(looks)}"

    for tick in range(1000):  # ten steps a second, for a hundred seconds
        stage.now = tick / 10
        show(tick, 10_000, note)
        voice.beat()
    assert stage.lines[:2] == ["training on cpu", "step 10/10,000  loss 1  16m39s left"]
    assert stage.lines[2:] == [f"step {10 + 300 * i}/10,000  loss {i + 1}  {m}" for i, m in
                               enumerate(["16m09s left", "15m39s left", "15m09s left"], 1)]  # fmt: skip
    assert len(looks) == 4  # nobody looks at a loss that is not shown


def test_silence_is_filled_by_what_was_known_last(stage: Stage):
    voice = Voice()
    with voice:
        doing("reading boards.csv")
    for second in range(65):
        stage.now = float(second)
        voice.beat()
    assert stage.lines == [
        "reading boards.csv", "reading boards.csv, 33s so far", "reading boards.csv, 1m03s so far"
    ]  # fmt: skip
    show = Progress("step", voice=voice)
    show(0, 4, "  no loss yet")
    for second in range(65, 140):
        stage.now = float(second)
        voice.beat()
    assert stage.lines[3:] == ["step 0/4  no loss yet  1m35s so far", "step 0/4  no loss yet  2m07s so far"]
    assert EVERY + LATER <= 33


def test_the_work_itself_speaks_first_when_a_line_is_due(stage: Stage):
    """Whoever fills silences looks five times a second, a step may end any time: an old loss was said again."""
    voice = Voice()
    show = Progress("step", voice=voice)
    for tick in range(160):  # a step every half second
        stage.now = tick / 4
        voice.beat()
        if tick % 2:
            show(tick // 2, 1000, f"  loss {tick // 2}")
    assert [line.split("  ")[1] for line in stage.lines] == ["loss 2", "loss 62"]


def test_work_that_follows_the_steps_is_named_and_the_steps_are_not_counted_on(stage: Stage):
    """A run that is stopped at step 3 of a million does not go on to say how many days are left while it validates."""
    voice = Voice()
    show = Progress("step", voice=voice)
    show(1, 1_000_000)
    stage.now = 2.0
    show(3, 1_000_000)
    voice.say("stopped at step 3")
    voice.turn_to("validating")
    for second in range(2, 60):
        stage.now = float(second)
        voice.beat()
    assert stage.lines == ["step 3/1,000,000  12 days left", "stopped at step 3", "validating",
                           "validating, 33s so far"]  # fmt: skip


def test_work_that_counts_in_what_it_is_busy_with_is_one_work(stage: Stage):
    voice = Voice()
    for second in range(40):
        stage.now = float(second)
        voice.turn_to(f"training the decoder, step {second} of 900")
        voice.beat()
    assert stage.lines[-1] == "training the decoder, step 30 of 900, 30s so far"


def test_work_that_came_before_the_steps_is_not_named_after_them(stage: Stage):
    voice = Voice()
    show = Progress("step", voice=voice)
    voice.announce("training")
    voice.turn_to("drawing")
    stage.now = 2.0
    show(0, 2)
    stage.now = 4.0
    show(2, 2)
    for second in range(4, 40):
        stage.now = float(second)
        voice.beat()
    assert stage.lines == ["training", "training, 34s so far"]


def test_quiet_work_says_nothing(stage: Stage):
    voice = Voice(quiet=True)
    with voice:
        voice.announce("training")
        voice.say("stopped")
        for second in range(100):
            stage.now = float(second)
            Progress("step", voice=voice)(second, 100)
            voice.beat()
    assert stage.lines == []


def test_a_terminal_gets_one_line_that_rewrites_itself_and_ends(monkeypatch: pytest.MonkeyPatch):
    stage = Stage(monkeypatch, terminal=True)
    show = Progress("step")
    show(100, 400)
    stage.now = 2.0
    show(200, 400, "  loss 1")
    show.close()
    show.close()
    assert stage.stream.getvalue() == "\r\x1b[2Kstep 200/400  loss 1  4s left\n"
    show(400, 400)
    show.close()
    assert stage.stream.getvalue().endswith("step 400/400\n")
