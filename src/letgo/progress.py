"""What long work says on stderr: soon what it does, after a second how long it will take, then every half minute.

A `Voice` speaks for a whole command, a `Progress` counts one piece of its work.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType

HOLD = 1.0  # seconds until an announcement is made; work that is done by then, or refused, needs none
MEASURE = 1.0  # seconds of work that a first estimate is made from
EVERY, OFTEN, LIVE = 30.0, 5.0, 0.2  # between lines: usually, with --progress, on a terminal
LATER = 2.0  # seconds that a silence lasts beyond them: the work itself, which has newer figures, comes first
PATIENCE = 3.0  # seconds of one kind of work until it is named
RECENT = 120.0  # an estimate follows the speed of so many seconds

Note = str | Callable[[], str]  # a function is asked only when a line is written


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours / 24:,.0f} days"
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


_speaking: list[Voice] = []  # those that are entered, the last one speaks


def doing(text: str) -> None:
    """Tell whoever speaks for the command what the work is busy with from now on: it is named if it takes a while."""
    for voice in _speaking[-1:]:
        voice.turn_to(text)


class Voice:
    """It speaks for a command. While it is entered, a thread of its own fills silences, whatever the work is."""

    def __init__(self, quiet: bool = False, often: bool = False):
        self.quiet, self.often, self.terminal = quiet, often, sys.stderr.isatty()
        self.every = LIVE if self.terminal else OFTEN if often else EVERY
        self.begun = self.spoke = time.monotonic()
        self.held = ""  # an announcement that was not made yet
        self.doing, self.since = "", self.begun  # what a silence is filled with, and when it began
        self.work = ""  # what was announced, which pieces of work are done for
        self.turned: float | None = None  # when the work turned to that, as long as nobody was told
        self.current: Progress | None = None
        self.live = False  # whether a line on the terminal has not been ended yet
        self.lock, self.over = threading.RLock(), threading.Event()
        self.thread: threading.Thread | None = None

    def __enter__(self) -> Voice:
        _speaking.append(self)
        if not self.quiet:
            self.thread = threading.Thread(target=self._fill, name="letgo-voice", daemon=True)
            self.thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        _speaking.remove(self)
        self.over.set()
        if self.thread is not None:
            self.thread.join()
        self.end()

    def announce(self, text: str) -> None:
        """Say what the work is, unless it ends within a second; until then another announcement takes its place."""
        with self.lock:
            self.held = self.doing = self.work = text

    def turn_to(self, text: str) -> None:
        """Know what the work is busy with instead of what was counted before."""
        with self.lock:
            self.end()
            same = text.partition(",")[0] == self.doing.partition(",")[0]  # of a text that counts: "..., step 3 of 9"
            self.doing, self.turned, self.current = text, time.monotonic(), None
            self.since = self.since if same else self.turned

    def say(self, text: str) -> None:
        """Say a line now, after what was announced."""
        with self.lock:
            self.release()
            self._line(text)

    def end(self) -> None:
        """End the line that rewrites itself."""
        with self.lock:
            if self.live:
                self._write("\n")
                self.live = False

    def erase(self) -> None:
        """Take the line that rewrites itself away: another stream is about to write on the same screen."""
        with self.lock:
            if self.live:
                self._write("\r\x1b[2K")
                self.live = False

    def beat(self) -> None:
        """Say what is due by now, if anything."""
        with self.lock:
            now = time.monotonic()
            if self.held and now - self.begun >= HOLD:
                self.release()
            elif self.current is not None and not self.held:
                self.current.show_if_due(now, silent=True)
            elif self.turned is not None and not self.held and now - self.turned >= PATIENCE:
                self.turned = None
                self._line(self.doing)
            elif self.doing and not self.held and now - self.spoke >= EVERY:
                self._line(f"{self.doing}, {clock(now - self.since)} so far")

    def show(self, text: str) -> None:
        """Show a state of affairs: on a terminal in place of the last one."""
        if self.terminal:
            self._write(f"\r\x1b[2K{text}")
            self.live, self.spoke = True, time.monotonic()
        else:
            self._line(text)

    def release(self) -> None:
        """Make the announcement, if it was not made."""
        held, self.held = self.held, ""
        if held:
            self._line(held)

    def _line(self, text: str) -> None:
        self.end()
        self._write(f"{text}\n")
        self.spoke = time.monotonic()

    def _write(self, text: str) -> None:
        if not self.quiet:
            sys.stderr.write(text)
            sys.stderr.flush()

    def _fill(self) -> None:
        while not self.over.wait(LIVE):
            try:
                self.beat()
            except (OSError, ValueError):  # nobody reads it any more
                return


class Progress:
    """It says how far one piece of work is. Called with what is done and of how many; a part of one may be done."""

    def __init__(self, label: str, often: bool = False, quiet: bool = False, voice: Voice | None = None):
        self.label, self.voice = label, voice or Voice(quiet, often)
        self.marks: list[tuple[float, float | int]] = []  # when how much was done, in the lines of the last two minutes
        self.done, self.total, self.note = 0.0, 0, ""
        self.estimated = self.shown = False
        self.asked: Note = ""

    def __call__(self, done: float | int, total: int, note: Note = "") -> None:
        voice = self.voice
        if voice.quiet:
            return
        with voice.lock:
            now, voice.current = time.monotonic(), self
            voice.doing, voice.turned, voice.since = voice.work, None, voice.begun  # what came before it is over
            if not self.marks:
                self.marks = [(now, done)]  # what was done before this call took no time that we saw
            self.done, self.total, self.asked = done, total, note
            self.note = note if isinstance(note, str) else self.note
            if done < total:
                self.show_if_due(now)
                return
            self.note = note if isinstance(note, str) else note()
            if self.shown or voice.terminal or voice.often:
                self._show(now)
            self.close()

    def show_if_due(self, now: float, silent: bool = False) -> None:
        """Show it if the last line is old, or if it can be said for the first time how long it will take.

        In a silence the last note is shown again: nobody but the work itself may look at what it works with.
        """
        since, done = self.marks[0] if self.marks else (now, self.done)
        first = not silent and not self.estimated and self.done > done and now - since >= MEASURE
        if first or now - self.voice.spoke >= self.voice.every + (LATER if silent else 0.0):
            if not silent:
                self.note = self.asked if isinstance(self.asked, str) else self.asked()
            self._show(now)

    def rate(self) -> float | None:
        """Return how much is done in a second, by the last two minutes; None before anything was."""
        now = time.monotonic()
        since, done = self.marks[0] if self.marks else (now, self.done)
        return (self.done - done) / (now - since) if self.done > done and now > since else None

    def left(self) -> float | None:
        """Return the seconds that are left, by that rate."""
        rate = self.rate()
        return None if rate is None else (self.total - self.done) / rate

    def speed(self, what: str) -> str:
        """Return the rate in words, the slow one by its inverse."""
        rate = self.rate()
        if rate is None:
            return ""
        return f"  {rate:,.{int(rate < 10)}f} {what}/s" if rate >= 1 else f"  {1 / rate:.1f} s each"

    def _show(self, now: float) -> None:
        self.voice.release()
        left, last = self.left(), self.done >= self.total
        time_left = "" if last else f"  {clock(left)} left" if left is not None else ""
        if left is None and not last and now - self.voice.begun >= MEASURE:
            time_left = f"  {clock(now - self.voice.begun)} so far"
        self.voice.show(f"{self.label} {int(self.done):,}/{self.total:,}{self.note}{time_left}")
        self.shown, self.estimated = True, self.estimated or left is not None
        self.marks = [mark for mark in self.marks if now - mark[0] < RECENT] or self.marks[-1:]
        if self.marks[-1][1] < self.done:
            self.marks.append((now, self.done))

    def close(self) -> None:
        """End its line; what comes next is timed anew."""
        self.voice.end()
        self.voice.current, self.marks, self.estimated, self.shown = None, [], False, False
