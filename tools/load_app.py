"""Many clients at once against `letgo app`: every answer must come, be right, and be the one a lone client gets.

    python tools/load_app.py --clients 32 --seconds 60 --model sudoku-mini --races 0,2,4,8
    python tools/load_app.py --serve 2 --kill 10     two replicas of `letgo serve --ray`, one killed after 10 s

Starts a server of its own on this machine and stops it again. One request in eight is a streamed trajectory; then a
light question is asked beside long races, and a kept connection asks for little many times.
Exit 1 if there was an error, a lost or a wrong answer, a place not given back, or memory that grew.
"""

import argparse
import http.client
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--clients", type=int, default=32)
parser.add_argument("--seconds", type=float, default=60)
parser.add_argument("--model", default="sudoku-mini", help="a shipped model, or a run folder")
parser.add_argument("--steps", type=int, help="default: the model's own")
parser.add_argument("--races", default="", help="also time a light solve beside so many long races, e.g. 0,2,4,8")
parser.add_argument("--serve", type=int, metavar="N", help="`letgo serve --ray` with N replicas instead of `letgo app`")
parser.add_argument("--kill", type=float, metavar="S", help="kill a replica by SIGKILL after so many seconds")
parser.add_argument("--growth", type=float, default=50, help="MiB by which the server may grow after its warm-up")
options = parser.parse_args()
PUZZLE = "53..7....6..195....98....6.8...6...34..8.3..17...2...6.6....28....419..5....8..79"


class Client:
    """One connection, kept open as a browser keeps it."""

    def __init__(self, port: int, timeout: float = 300):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    def ask(self, method: str, path: str, body: dict | None = None) -> tuple[int, str]:
        content = None if body is None else json.dumps(body)
        self.connection.request(method, path, content, {"Content-Type": "application/json"})
        response = self.connection.getresponse()
        return response.status, response.read().decode()


def resident(pid: int) -> float:
    """MiB of memory, where the system tells."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024  # type: ignore[index]
    except FileNotFoundError:
        return 0.0


def used(pid: int) -> float:
    """Seconds of CPU that a process has had; unlike answers' times they do not hang on what else the machine does."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return sum(map(int, stat.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    except FileNotFoundError:
        return 0.0


def wrong(request: dict, path: str, text: str) -> str | None:
    """What is wrong with an answer, if anything."""
    if path == "/api/trajectory":
        complete = text.count("event: verdict") == 2 and text.endswith("event: done\ndata: {}\n\n")
        return None if complete else "a stream that ended early"
    answer = json.loads(text)
    if answer["puzzle"] != request["puzzle"]:
        return "an answer to another puzzle"
    if answer["solved"] and any(c not in (".", b) for c, b in zip(request["puzzle"], answer["board"], strict=True)):
        return "a board that changes a clue"
    return None


def visit(port: int, number: int, puzzles: list[str], until: float, log: list, failures: list) -> None:
    client, chance = Client(port), random.Random(number)
    while time.monotonic() < until:
        body = {"model": options.model, "puzzle": chance.choice(puzzles), "seed": chance.randrange(1000)}
        path = "/api/trajectory" if chance.random() < 1 / 8 else "/api/solve"
        if options.steps:
            body["steps"] = options.steps
        started = time.perf_counter()
        try:
            status, text = client.ask("POST", path, body)
            fault = f"status {status}: {text[:200]}" if status != 200 else wrong(body, path, text)
        except (OSError, http.client.HTTPException) as error:
            client, fault, text = Client(port), f"{type(error).__name__}: {error}", ""
        log.append((path, time.perf_counter() - started, body, text))
        if fault:
            failures.append(fault)


def kill_a_replica(port: int, said: list[str]) -> None:
    """The first process that /metrics names is killed, while everybody asks."""
    time.sleep(options.kill)
    text = Client(port).ask("GET", "/metrics")[1]
    name = re.search(r'letgo_replica_answers_total\{replica="([^"]+)"\}', text)[1]  # type: ignore[index]
    os.kill(int(name.rpartition("-")[2]), signal.SIGKILL)
    said.append(f"replica {name} was killed after {options.kill:g} s")


def percentiles(seconds: list[float]) -> str:
    ordered = sorted(seconds) or [0.0]
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return f"p50 {statistics.median(ordered):.3f} s   p95 {p95:.3f} s   longest {ordered[-1]:.3f} s"


def beside_races(port: int, races: int) -> str:
    """How long a light solve takes while so many races of 64 seeds and 1000 steps go on; five times, 30 s at most."""
    body = {"model": "sudoku", "puzzle": PUZZLE}
    content = json.dumps({**body, "count": 64, "steps": 1000})
    head = "POST /api/race HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: "
    streams = [socket.create_connection(("127.0.0.1", port)) for _ in range(races)]
    for stream in streams:
        stream.sendall(f"{head}{len(content)}\r\n\r\n{content}".encode())
    time.sleep(3)
    times: list[float] = []
    try:
        for seed in range(5):
            started = time.perf_counter()
            Client(port, 30).ask("POST", "/api/solve", {**body, "seed": seed})
            times.append(time.perf_counter() - started)
    except TimeoutError:
        return f"{percentiles(times)}, then none within 30 s"
    finally:
        for stream in streams:
            stream.close()
        time.sleep(1)
    return percentiles(times)


def kept(port: int) -> str:
    """How long a small answer takes on a connection that is kept."""
    client, times = Client(port), []
    for _ in range(200):
        started = time.perf_counter()
        client.ask("GET", "/api/health")
        times.append(1000 * (time.perf_counter() - started))
    return f"p50 {statistics.median(times):.2f} ms   longest {max(times):.2f} ms"


def measure(port: int, pid: int) -> int:
    client = Client(port)
    query = f"/api/puzzle?model={options.model}&seed="
    puzzles = [json.loads(client.ask("GET", query + str(seed))[1])["puzzle"] for seed in range(20)]
    for puzzle in puzzles[:8]:
        client.ask("POST", "/api/solve", {"model": options.model, "puzzle": puzzle})
    log: list = []
    failures: list[str] = []
    before, cpu, load, until = resident(pid), used(pid), os.getloadavg()[0], time.monotonic() + options.seconds
    started = time.perf_counter()
    said: list[str] = []
    with ThreadPoolExecutor(options.clients + 1) as threads:
        if options.kill:
            threads.submit(kill_a_replica, port, said)
        for number in range(options.clients):
            threads.submit(visit, port, number, puzzles, until, log, failures)
    elapsed, after, cpu = time.perf_counter() - started, resident(pid), used(pid) - cpu

    def settled(answer: str) -> dict:
        return {k: v for k, v in json.loads(answer).items() if k != "seconds"}

    client = Client(port)  # the first connection has been idle for too long
    solved = [entry for entry in log if entry[0] == "/api/solve" and entry[3]]
    again = random.Random(0).sample(solved, min(20, len(solved)))
    changed = sum(settled(client.ask("POST", path, body)[1]) != settled(text) for path, _, body, text in again)
    health = json.loads(client.ask("GET", "/api/health")[1])
    print(f"{options.clients} clients, {elapsed:.0f} s, model {options.model}, load average before {load:.1f}")
    for path in ("/api/solve", "/api/trajectory"):
        times = [seconds for where, seconds, _, _ in log if where == path]
        print(f"{path:16} {len(times):5} answers  {len(times) / elapsed:6.1f}/s   {percentiles(times)}")
    print(f"the server's CPU: {1000 * cpu / max(len(log), 1):.1f} ms an answer, {100 * cpu / elapsed:.0f}% of a core")
    print(f"errors {len(failures)}, answers that a lone client gets differently {changed} of {len(again)}")
    if options.serve:
        counted = client.ask("GET", "/metrics")[1].splitlines()
        said += [line for line in counted if line.startswith(("letgo_replica_answers_total", "letgo_retries_total"))]
        print(*said, sep="\n")
    print(f"memory {before:.0f} MiB before, {after:.0f} MiB after; places still taken {health['in_flight']}")
    print(f"a kept connection: {kept(port)}")
    for races in [int(number) for number in options.races.split(",") if number]:
        print(f"a light solve beside {races} long races: {beside_races(port, races)}", flush=True)
    if options.races:
        print(f"memory {resident(pid):.0f} MiB at the end")
    for fault in failures[:5]:
        print(f"  {fault}", file=sys.stderr)
    if options.kill and not said[0].startswith("replica"):
        failures.append("no replica was killed")
    return int(bool(failures or changed or health["in_flight"] or after - before > options.growth))


def main() -> int:
    local = [] if "/" not in options.model else ["--model", options.model]
    verb = ["app"] if not options.serve else ["serve", "--ray", "--replicas", str(options.serve)]
    command = [sys.executable, "-m", "letgo", *verb, "--port", "0", *local]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            port = int(re.search(r":(\d+)/", server.stdout.readline())[1])  # type: ignore[union-attr,index]
            return measure(port, server.pid)
        finally:
            server.send_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
