"""Train and measure side by side on one card, within one time limit: `letgo` commands in lanes.

    python tools/lanes.py plan.txt --max-seconds 1700 --out runs/lanes

A plan names lanes and their commands, which run one after another:

    [train]
    letgo train latin --seeds 1,2 --out runs/latin --steps 200000 --max-seconds {left-300}
    letgo train queens --seeds 1,2 --out runs/queens --steps 250000 --max-seconds {left-60}
    [measure]
    after train 1
    20 letgo evaluate runs/latin/s1 --rule tweedie --regime gen --count 2000 --seed 1 --out runs/latin-s1.json

`after train 1` waits for the first command of that lane to end. A number before a command is the seconds that it needs:
with fewer left it is skipped. {left} stands for the seconds that are left. A lane is one process, so that kernels are
built once; what it says goes to OUT/LANE.out, and OUT/log.txt has a line for every command that ended. Commands that
resume make the plan resume: give it again.
"""

import argparse
import re
import shlex
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

LEFT = re.compile(r"\{left(?:-(\d+))?\}")
AFTER = re.compile(r"after (\w+) (\d+)")
COMMAND = re.compile(r"(?:(\d+) )?letgo (.+)")
LANE = re.compile(r"\[(\w+)\]")


@dataclass(frozen=True)
class Step:
    """A command, or waiting for one of another lane."""

    command: str = ""
    need: int = 0
    lane: str = ""
    number: int = 0


def read(text: str) -> dict[str, list[Step]]:
    """The steps of every lane; ValueError with the line where a plan is wrong."""
    lanes: dict[str, list[Step]] = {}
    mine: list[Step] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if found := LANE.fullmatch(line):
            mine = lanes.setdefault(found[1], [])
        elif mine is None:
            raise ValueError(f"line {number}: a [lane] comes first")
        elif found := AFTER.fullmatch(line):
            mine.append(Step(lane=found[1], number=int(found[2])))
        elif found := COMMAND.fullmatch(line):
            mine.append(Step(found[2], int(found[1] or 0)))
        else:
            raise ValueError(f"line {number}: expected '[SECONDS] letgo ...', 'after LANE N' or '[LANE]': {line}")
    for name, steps in lanes.items():
        for step in steps:
            if step.lane and not 1 <= step.number <= sum(not other.lane for other in lanes.get(step.lane, [])):
                raise ValueError(f"lane {name} waits for {step.lane} {step.number}, which there is not")
    return lanes


def run(steps: list[Step], name: str, out: Path, end: float) -> int:
    """The commands of one lane, in this process; 1 if one of them failed."""
    from letgo.cli import main as letgo

    done = failed = 0
    for step in steps:
        while step.lane and not (out / f"{step.lane}.{step.number}").exists():
            time.sleep(0.2)
        if step.lane:
            continue
        done += 1
        left, started = end - time.time(), time.time()
        text = LEFT.sub(lambda found: str(max(0, int(end - time.time()) - int(found[1] or 0))), step.command)
        words = shlex.split(text)
        sys.argv = ["letgo", *words]  # what a run names as its command
        if left <= step.need:
            status = f"skipped, {left:.0f} s left of {step.need}"
        else:
            try:
                code = letgo(words)
                status = f"exit {code}"
            except BaseException as error:  # the other commands of the lane must go on
                code, status = 1, f"failed: {error!r}"
            failed |= code != 0
        with (out / "log.txt").open("a") as log:
            log.write(f"{name} {done}: {status}, {time.time() - started:.0f} s: letgo {text}\n")
        (out / f"{name}.{done}").touch()
    return int(failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("--max-seconds", type=float, default=float("inf"))
    parser.add_argument("--out", type=Path, default=Path("runs/lanes"))
    parser.add_argument("--lane", help=argparse.SUPPRESS)  # a process of its own
    parser.add_argument("--end", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    try:
        lanes = read(options.plan.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        parser.error(f"{options.plan}: {error}")
    if options.lane is not None:
        return run(lanes[options.lane], options.lane, options.out, options.end)
    options.out.mkdir(parents=True, exist_ok=True)
    ended = {name: [options.out / f"{name}.{i + 1}" for i in range(len(steps))] for name, steps in lanes.items()}
    for marker in (marker for markers in ended.values() for marker in markers):
        marker.unlink(missing_ok=True)  # of an earlier call
    end = min(time.time() + options.max_seconds, sys.float_info.max)
    words = [sys.executable, __file__, str(options.plan), "--out", str(options.out), "--end", repr(end), "--lane"]
    running, status = {}, 0
    for name in lanes:
        with (options.out / f"{name}.out").open("a") as said:
            running[name] = subprocess.Popen([*words, name], stdout=said, stderr=said)
    while running:
        time.sleep(0.2)
        for name in [name for name, process in running.items() if process.poll() is not None]:
            status = max(status, int(running.pop(name).returncode != 0))
            for marker in ended[name]:  # a lane that was killed keeps nobody waiting
                marker.touch()
    return status


if __name__ == "__main__":
    raise SystemExit(main())
