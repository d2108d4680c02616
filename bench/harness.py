"""Paired measurements against peers in one run: medians, ratios, % of the machine's bound, JSON beside the table."""

import argparse
import datetime
import json
import math
import os
import pathlib
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "release"
TURN_PAUSE_SECONDS = 0.1
sys.path.insert(0, str(ROOT / "examples"))


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def cache_bytes(level):
    """Size of the first processor's data cache at `level`; 0: not known."""
    for index in pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        if int((index / "level").read_text()) == level and (index / "type").read_text().strip() != "Instruction":
            return int((index / "size").read_text().strip().removesuffix("K")) << 10
    return 0


def build_programs(*names):
    subprocess.run(["cmake", "--build", "--preset", "release", "--target", *names], cwd=ROOT, check=True,
                   stdout=subprocess.DEVNULL)
    cache = (BUILD / "CMakeCache.txt").read_text()
    if "CMAKE_BUILD_TYPE:STRING=Release" not in cache:
        raise SystemExit("benchmarks need the release build; `make build` makes it")


def measure_peak(threads):
    """{"1": {"gflops", "memory_gbs", "l3_gbs"}, ...}"""
    text = subprocess.run([BUILD / "bench" / "peak", str(threads)], capture_output=True, check=True, text=True).stdout
    return json.loads(text)["threads"]


class Report:
    """Rows as they are measured, on the terminal and in build/bench/<name>.json."""

    def __init__(self, name, output, threads):
        self.output = output
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True)
        self.head = {
            "name": name,
            "commit": commit.stdout.strip(),
            "cpu": cpu_name(),
            "threads": threads,
            "build": "release",
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        }
        self.rows = []
        self.factors = []
        print(f"{name}: commit {self.head['commit']}, {self.head['cpu']}, {os.cpu_count()} cores, release")
        print(f"{'row':38} {'ours':>10} {'spread':>7} {'unit':6} {'peer':>10} {'ratio':>7} {'bound':>6}  aim")

    def add(self, row, value, unit, peer=None, ratio=None, bound_percent=None, aim=None, spread_percent=None, **more):
        """`ratio` is above 1 where we are the better one; `aim` is the least ratio wanted."""
        met = None if aim is None or ratio is None else ratio >= aim
        self.rows.append({
            "row": row, "value": value, "unit": unit, "peer": peer, "ratio": ratio, "bound_percent": bound_percent,
            "aim": aim, "met": met, "spread_percent": spread_percent, **more,
        })
        cell = lambda x, form: "" if x is None else format(x, form)  # noqa: E731
        mark = "" if met is None else "met" if met else "MISSED"
        print(f"{row:38} {value:>10.4g} {cell(spread_percent, '.0f') + '%':>7} {unit:6} {cell(peer, '.4g'):>10} "
              f"{cell(ratio, '.2f'):>7} {cell(bound_percent, '.0f') + '%':>6}  {cell(aim, '.2f')} {mark}", flush=True)

    def refuse(self, row, why):
        """A row that is not measured, and the reason."""
        self.rows.append({"row": row, "refused": why})
        print(f"{row:38} {why}", flush=True)

    def add_factors(self, load, rows_a_task=None, **factors):
        """Adds the factors of a load's share of the machine's bound: kernel x padding x batch x busy."""
        share = math.prod(factors.values())
        self.factors.append({"load": load, **factors, "share": share, "rows_a_task": rows_a_task})
        product = " x ".join(f"{name.replace('_', ' ')} {factor:.2f}" for name, factor in factors.items())
        rows = "" if rows_a_task is None else f"; {rows_a_task:.0f} rows a task"
        print(f"    {load}: {product} = {share:.2f} of the bound{rows}", flush=True)

    def save(self):
        self.output.parent.mkdir(parents=True, exist_ok=True)
        more = {"factors": self.factors} if self.factors else {}
        self.output.write_text(json.dumps({**self.head, "rows": self.rows, **more}, indent=1) + "\n")
        print(f"written to {self.output}")


class WorkerFailed(SystemExit):
    """A program of a line protocol ended or gave a wrong answer; says why. A benchmark that does not catch it ends."""


class Told:
    """A program that runs its work n times for each line with n on its standard input."""

    def __init__(self, program, *arguments, **environment):
        self.program = program.name
        self.errors = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [program, *map(str, arguments)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors,
            text=True, bufsize=1, env=os.environ | environment)
        self.expect("ready")

    def read_line(self):
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait(timeout=30)
            self.errors.seek(0)
            raise WorkerFailed(self.errors.read().strip() or f"{self.program} ended with status {status}")
        return line

    def expect(self, word):
        line = self.read_line().strip()
        if line != word:
            raise WorkerFailed(f"{self.program} answered '{line}' where '{word}' should be")

    def run(self, times):
        """Seconds of each of `times` runs."""
        self.process.stdin.write(f"run {times}\n")
        return [int(ns) * 1e-9 for ns in self.read_line().split()]

    def dump(self, folder):
        self.process.stdin.write(f"dump {folder}\n")
        self.expect("ok")

    def close(self):
        self.process.stdin.close()
        if self.process.wait(timeout=30) == 0:  # otherwise it was raised
            self.errors.seek(0)
            sys.stderr.write(self.errors.read())


class Worker(Told):
    """bench/model_worker: one model in one engine."""

    def __init__(self, model, threads, inputs, build=BUILD, policy="none"):
        chosen = [] if policy == "none" else [f"--policy={policy}"]  # which earlier builds do not know
        super().__init__(build / "bench" / "model_worker", model, threads, *chosen,
                         *(f"{k}={v}" for k, v in inputs.items()))


def timed(call, times):
    out = []
    for _ in range(times):
        begin = time.perf_counter()
        call()
        out.append(time.perf_counter() - begin)
    return out


def interleave(ours, peer, seconds, rounds=9):
    """Medians of both and the median ratio peer/ours of `rounds` pairs, each about seconds/(2·rounds) a side.

    `ours(n)` and `peer(n)` return n times. The two never run at once, and take turns in going first. Between turns
    the threads of the one before stop spinning for work.
    """
    first = statistics.median(peer(2))
    times = max(1, min(2000, int(seconds / (2 * rounds) / max(first, 1e-6))))
    ours(max(1, times // 4))
    mine, theirs, ratios = [], [], []
    for r in range(rounds):
        pair = {}
        for side in ([ours, peer] if r % 2 == 0 else [peer, ours]):
            time.sleep(TURN_PAUSE_SECONDS)
            pair[side is ours] = statistics.median(side(times))
        mine.append(pair[True])
        theirs.append(pair[False])
        ratios.append(pair[False] / pair[True])
    spread = 100 * (max(mine) - min(mine)) / statistics.median(mine)
    return statistics.median(mine), statistics.median(theirs), statistics.median(ratios), spread


def in_turns(rounds, **sides):
    """{name: [what side() gave in each round]}, all sides once a round, in an order that turns."""
    out = {name: [] for name in sides}
    names = list(sides)
    for r in range(rounds):
        for name in names[r % len(names):] + names[:r % len(names)]:
            time.sleep(TURN_PAUSE_SECONDS)
            out[name].append(sides[name]())
    return out


def median_ratio(ours, theirs):
    return statistics.median(a / b for a, b in zip(ours, theirs))


def spread(values):
    return 100 * (max(values) - min(values)) / statistics.median(values)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port):
    for _ in range(600):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"nothing listens on port {port}")


def wait_until_ready(port):
    """Until the server there has loaded its models."""
    wait_for(port)
    for _ in range(1200):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise SystemExit(f"the server on port {port} is not ready after a minute")


def arguments(name, **more):
    parser = argparse.ArgumentParser(description=sys.modules["__main__"].__doc__)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "build" / "bench" / f"{name}.json")
    for flag, options in more.items():
        parser.add_argument("--" + flag.replace("_", "-"), **options)
    return parser.parse_args()
