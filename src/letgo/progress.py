"""Progress with a time to go, on stderr and only where somebody watches."""

from __future__ import annotations

import sys
import time


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02}m" if hours else f"{minutes}m{rest:02}s" if minutes else f"{rest}s"


class Progress:
    """One line that rewrites itself; where stderr is a file, a line every few seconds."""

    def __init__(self, label: str, forced: bool = False, quiet: bool = False):
        self.label = label
        self.terminal = sys.stderr.isatty()
        self.on = not quiet and (forced or self.terminal)
        self.started = self.shown = time.monotonic()
        self.first_done: int | None = None
        self.unfinished = False  # a line that no newline has ended yet

    def __call__(self, done: int, total: int, note: str = "") -> None:
        if not self.on:
            return
        now = time.monotonic()
        if self.first_done is None:
            self.first_done, self.started = done, now  # what was done before this call took no time that we saw
        last = done >= total
        if not last and now - self.shown < (0.2 if self.terminal else 5.0):
            return
        self.shown = now
        gained = done - self.first_done
        left = (total - done) * (now - self.started) / gained if gained > 0 else None
        eta = "" if last or left is None else f"  {clock(left)} left"
        text = f"{self.label} {done:,}/{total:,}{note}{eta}"
        sys.stderr.write(f"\r\x1b[2K{text}" if self.terminal else f"{text}\n")
        self.unfinished = self.terminal and not last
        if last and self.terminal:
            sys.stderr.write("\n")
        sys.stderr.flush()

    def close(self) -> None:
        if self.unfinished:
            sys.stderr.write("\n")
            self.unfinished = False
        self.first_done = None  # what comes next is timed anew
