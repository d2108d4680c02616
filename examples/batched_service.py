#!/usr/bin/env python3
"""Repeats the experiment of "Service Batching from Scratch" (17 April 2020) with its service and with Chairlift.

A function squares 880 numbers. It sleeps 1 ms · ln(n + 1) for n numbers. The numbers are sent one after the other, and
then all at once.

    .venv/bin/python examples/batched_service.py            (after `make python`; takes about four minutes)
    .venv/bin/python examples/batched_service.py --elements 40

The document reports 90.9 s and 0.124 s, a factor of 734. Most of the 90.9 s is its timeout of 0.1 s: each single number
waits for it. The last row has no timeout.
"""

import argparse
import asyncio
import math
import multiprocessing
import pathlib
import time

import chairlift

MAX_BATCH_SIZE = 200
TIMEOUT_S = 0.1


def transform(x: list[float]) -> list[float]:
    time.sleep(0.001 * math.log(len(x) + 1))
    return [v * v for v in x]


class BatchedService:
    """The document's service, from its parts: an asyncio loop forms batches, and queues lead to a process and back."""

    def __init__(self, max_batch_size=MAX_BATCH_SIZE, timeout_seconds=TIMEOUT_S, max_queue_size=32):
        self.max_batch_size, self.timeout_seconds = max_batch_size, timeout_seconds
        self.batch, self.futures, self.timer = [], [], None
        self.batches, self.future_results = asyncio.Queue(max_queue_size), asyncio.Queue()
        context = multiprocessing.get_context("spawn")
        self.to_worker, self.from_worker = context.Queue(max_queue_size), context.Queue(max_queue_size)
        self.worker = context.Process(target=self.work, args=(self.to_worker, self.from_worker), daemon=True)

    @staticmethod
    def work(to_worker, from_worker):
        from_worker.put("ready")
        while True:
            from_worker.put(transform(to_worker.get()))

    def start(self):
        self.loop = asyncio.get_running_loop()
        self.worker.start()
        self.from_worker.get()
        self.tasks = [self.loop.create_task(self.run_preprocess()), self.loop.create_task(self.run_postprocess())]

    def stop(self):
        for task in self.tasks:
            task.cancel()
        self.worker.terminate()

    async def do_one(self, x):
        while len(self.batch) >= self.max_batch_size:
            await asyncio.sleep(self.timeout_seconds * 0.02)
        future = self.loop.create_future()
        self.batch.append(x)
        self.futures.append(future)
        if len(self.batch) == self.max_batch_size:
            self.submit_batch()
        elif len(self.batch) == 1:
            self.timer = self.loop.call_later(self.timeout_seconds, self.submit_batch)
        return await future

    def submit_batch(self):
        self.timer.cancel()
        if self.batches.full():
            self.timer = self.loop.call_later(self.timeout_seconds * 0.1, self.submit_batch)
            return
        self.batches.put_nowait((self.batch, self.futures))
        self.batch, self.futures = [], []

    async def run_preprocess(self):
        while True:
            x, futures = await self.batches.get()
            while self.to_worker.full():
                await asyncio.sleep(0.0015)
            self.to_worker.put(x)
            self.future_results.put_nowait(futures)

    async def run_postprocess(self):
        while True:
            while self.from_worker.empty():
                await asyncio.sleep(0.0018)
            results = self.from_worker.get()
            for future, result in zip(self.future_results.get_nowait(), results):
                future.set_result(result)


async def measure(do_one, elements):
    """Returns the seconds for all numbers one after the other, and at once."""
    data = [float(i) for i in range(elements)]
    start = time.perf_counter()
    one_by_one = [await do_one(x) for x in data]
    middle = time.perf_counter()
    at_once = await asyncio.gather(*(do_one(x) for x in data))
    end = time.perf_counter()
    assert one_by_one == list(at_once) == [x * x for x in data]
    return middle - start, end - middle


async def of_document(elements):
    service = BatchedService()
    service.start()
    try:
        return await measure(service.do_one, elements)
    finally:
        service.stop()


async def of_chairlift(elements, queue_delay_us):
    service = chairlift.load(f"{pathlib.Path(__file__).resolve()}:transform", max_batch_size=MAX_BATCH_SIZE,
                             queue_delay_us=queue_delay_us)

    async def do_one(x):
        return float((await service.infer([x]))[0])

    try:
        return await measure(do_one, elements)
    finally:
        service.close()


def runs(elements):
    """Returns the measurements to compare, by name."""
    return {
        "the document's service": lambda: of_document(elements),
        "Chairlift, same timeout": lambda: of_chairlift(elements, int(TIMEOUT_S * 1e6)),
        "Chairlift, no timeout": lambda: of_chairlift(elements, 0),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=880)
    elements = parser.parse_args().elements
    print(f"{elements} numbers               one by one   all at once   times faster")
    for name, run in runs(elements).items():
        sequential, batched = asyncio.run(run())
        print(f"{name:26}{sequential:10.3f} s{batched:12.4f} s{sequential / batched:12.0f}×", flush=True)


if __name__ == "__main__":
    main()
