#!/usr/bin/env python3
"""What a server does when ten times as much is asked as it can answer: what it still answers beside its peak, how long
those wait that it admits (bound: --max-queue-wait-us), and how soon the others are refused. One worker computes; the load
comes from this process. The peak is that of as many clients as make full batches, each asking again once it is answered. The peer's column has the bound."""

import asyncio
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

import numpy as np

import harness
from models import builder

CLIENTS = 128  # four batches
TIMES_PEAK = 10
WAIT_MS = 1000
BODY = b'{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[0.5]}]}'
REQUEST = (b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n\r\n" % len(BODY)) + BODY


def slow():
    """Some 0.6 GFLOP a row of one number."""
    b = builder.Builder("slow")
    x = b.input("x", ["batch", 1])
    y = b.node("Unsqueeze", x, b.ints(2, 3))
    y = b.node("Mul", y, b.constant(np.ones((1, 32, 64, 64), np.float32)))
    for _ in range(8):
        y = b.node("Relu", b.node("Conv", y, b.weight(32, 32, 3, 3), pads=[1, 1, 1, 1]))
    y = b.node("ReduceMean", y, axes=[2, 3], keepdims=0)
    b.output(y, "y", ["batch", 32])
    return b.model()


class Connection(asyncio.Protocol):
    """One request at a time; tells `done(connection, status)` of each answer."""

    def __init__(self, done):
        self.done = done
        self.buffer = b""

    def connection_made(self, transport):
        self.transport = transport

    def ask(self):
        self.transport.write(REQUEST)

    def data_received(self, data):
        self.buffer += data
        head_end = self.buffer.find(b"\r\n\r\n")
        if head_end < 0:
            return
        at = self.buffer.find(b"Content-Length: ") + 16
        length = int(self.buffer[at:self.buffer.find(b"\r\n", at)])
        if len(self.buffer) < head_end + 4 + length:
            return
        status = int(self.buffer[9:12])
        self.buffer = self.buffer[head_end + 4 + length:]
        self.done(self, status)


async def connect(port, count, done):
    loop = asyncio.get_running_loop()
    made = []
    for _ in range(count):
        made.append((await loop.create_connection(lambda: Connection(done), "127.0.0.1", port))[1])
    return made


async def closed_loop(port, seconds):
    """Answers a second, all of them 200."""
    answered, ends = 0, time.perf_counter() + seconds

    def done(connection, status):
        nonlocal answered
        if status != 200:
            raise SystemExit(f"HTTP {status} at the peak")
        answered += 1
        if time.perf_counter() < ends:
            connection.ask()

    connections = await connect(port, CLIENTS, done)
    for connection in connections:
        connection.ask()
    await asyncio.sleep(seconds)
    rate = answered / seconds
    await asyncio.sleep(2)
    for connection in connections:
        connection.transport.close()
    return rate


async def open_loop(port, rate, seconds):
    """(time of answer, status, latency) of each request, in seconds; requests are late only as far as this process is."""
    answers, idle, sent = [], [], {}

    def done(connection, status):
        now = time.perf_counter()
        answers.append((now, status, now - sent.pop(connection)))
        idle.append(connection)

    connections = await connect(port, 2 * int(rate / TIMES_PEAK * WAIT_MS / 1000) + CLIENTS, done)
    idle.extend(connections)
    start = due = time.perf_counter()
    while due < start + seconds:
        now = time.perf_counter()
        while due <= now:
            due += random.expovariate(rate)
            if not idle:
                raise SystemExit("no connection is idle: more wait than the server's bound allows")
            connection = idle.pop()
            sent[connection] = time.perf_counter()
            connection.ask()
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
    await asyncio.sleep(WAIT_MS / 1000 + 2)
    for connection in connections:
        connection.transport.close()
    return start, answers


def percentile(values, percent):
    return float(np.percentile(values, percent)) if len(values) else float("nan")


def main():
    args = harness.arguments("overload", seconds=dict(type=int, default=10, help="length of one round"),
                             rounds=dict(type=int, default=3))
    random.seed(1)
    harness.build_programs("chairlift")
    report = harness.Report("overload", args.output, [1])
    with tempfile.TemporaryDirectory() as temporary:
        model = pathlib.Path(temporary) / "slow.onnx"
        builder.save(slow(), model)
        port = harness.free_port()
        server = subprocess.Popen([harness.BUILD / "bin" / "chairlift", "serve", model, "--http-port", str(port),
                                   "--metrics-port", "-1", "--log-level", "warning", "--workers", "1",
                                   "--max-queue-wait-us", str(1000 * WAIT_MS), "--max-client-requests", "100000"])
        try:
            harness.wait_until_ready(port)
            asyncio.run(closed_loop(port, 3))  # what it costs is learnt
            shares, peaks, admitted, refused = [], [], [], []
            for _ in range(args.rounds):
                peak = asyncio.run(closed_loop(port, args.seconds))
                start, answers = asyncio.run(open_loop(port, TIMES_PEAK * peak, args.seconds))
                # Once the queue has filled, and until requests stop coming.
                counted = [a for a in answers if start + WAIT_MS / 1000 < a[0] < start + args.seconds]
                good = sum(status == 200 for _, status, _ in counted) / (args.seconds - WAIT_MS / 1000)
                peaks.append(peak)
                shares.append(100 * good / peak)
                admitted += [latency for _, status, latency in counted if status == 200]
                refused += [latency for _, status, latency in counted if status == 503]
        finally:
            server.terminate()
            server.wait(timeout=30)
    wait, late = percentile(admitted, 99), percentile(refused, 99)
    report.add("peak", statistics.median(peaks), "req/s")
    report.add(f"answered at {TIMES_PEAK}x the peak", statistics.median(shares), "%", 100.0,
               statistics.median(shares) / 100, aim=0.95)
    report.add("admitted, p50", 1e3 * percentile(admitted, 50), "ms")
    report.add("admitted, p99", 1e3 * wait, "ms", WAIT_MS, WAIT_MS / 1e3 / wait, aim=1.0)
    report.add("refused, p50", 1e3 * percentile(refused, 50), "ms")
    report.add("refused, p99", 1e3 * late, "ms", 10.0, 0.01 / late, aim=1.0)
    report.save()


if __name__ == "__main__":
    main()
