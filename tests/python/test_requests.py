"""Asynchronous requests: futures, asyncio and streams. Timeouts and cancellation reach the engine."""

import array
import asyncio
import concurrent.futures
import time

import numpy as np
import pytest

import chairlift

ONE = np.ones((1, 2), np.float32)


def until(condition):
    """Waits until the condition is true."""
    while not condition():
        time.sleep(0.001)


def test_futures_answer(doubling):
    x = np.ones((1, 4), np.float32)
    futures = [doubling.submit(x * i) for i in range(100)]
    for i, future in enumerate(futures):
        assert future.result()[0, 0] == 2 * i
    assert all(future.done() and not future.cancelled() for future in futures)


def test_futures_fail_with_the_engine_s_message(doubling):
    future = doubling.submit(np.ones((1, 5), np.float32))
    assert isinstance(future.exception(), chairlift.InvalidArgument)
    with pytest.raises(chairlift.InvalidArgument, match="dimension 1"):
        future.result()


def test_futures_call_back_and_outlive_their_model(doubling_file):
    called = concurrent.futures.Future()
    chairlift.load(doubling_file).submit(np.ones((1, 4), np.float32)).add_done_callback(called.set_result)
    assert called.result().result().tolist() == [[2, 2, 2, 2]]


def test_a_cancelled_future_cancels_its_request(gate):
    running = gate.occupy()
    cancelled, waiting = gate.model.submit(ONE), gate.model.submit(ONE)
    assert cancelled.cancel() and cancelled.cancelled()
    until(lambda: gate.failures() == {"cancelled": 1})
    concurrent.futures.wait([cancelled])
    gate.open()
    for future in [*running, waiting]:
        assert future.result().tolist() == [[2, 2]]
        assert not future.cancel()


def test_what_raises_in_a_callback_spoils_nothing(doubling):
    def fail(_):
        raise RuntimeError("not ours")
    x = np.ones((1, 4), np.float32)
    doubling.submit(x).add_done_callback(fail)
    assert doubling.submit(x).result()[0, 0] == 2


def test_timeouts_end_a_request(gate):
    with pytest.raises(chairlift.DeadlineExceeded) as raised:
        gate.model(ONE, timeout=0.01)
    assert isinstance(raised.value, TimeoutError)
    with pytest.raises(TimeoutError):
        gate.model.submit(ONE, timeout=0.01).result()
    with pytest.raises(chairlift.DeadlineExceeded):
        gate.model.stream(ONE, timeout=0.01).result()
    with pytest.raises(chairlift.DeadlineExceeded):
        asyncio.run(gate.model.infer(ONE, timeout=0.01))
    assert gate.failures() == {"timeout": 4}


def test_arrays_are_borrowed_until_the_engine_has_dropped_them(gate):
    x = array.array("f", [1])
    future = gate.model.submit(x)
    with pytest.raises(BufferError):
        x.append(2)  # raises while its buffer is in use
    gate.open()
    assert future.result().tolist() == [2]

    def released():
        try:
            x.append(2)
        except BufferError:
            return False
        return True
    until(released)


def test_asyncio_answers_and_fails(doubling):
    async def ask():
        x = np.ones((1, 4), np.float32)
        answers = await asyncio.gather(*(doubling.infer(x=x * i) for i in range(50)))
        assert [answer[0, 0] for answer in answers] == [2 * i for i in range(50)]
        with pytest.raises(chairlift.InvalidArgument):
            await doubling.infer(x[:, :3])
    asyncio.run(ask())


def test_cancelling_a_task_cancels_its_request(gate):
    async def ask():
        running = gate.occupy()
        task = asyncio.create_task(gate.model.infer(ONE))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        while gate.failures() != {"cancelled": 1}:
            await asyncio.sleep(0.001)
        gate.open()
        for future in running:
            assert (await asyncio.wrap_future(future)).tolist() == [[2, 2]]
    asyncio.run(ask())


def test_a_loop_may_end_before_its_requests(gate):
    async def ask():
        asyncio.ensure_future(gate.model.infer(ONE))
        await asyncio.sleep(0)
    asyncio.run(ask())  # which cancels what was begun
    gate.open()
    assert gate.model(ONE).tolist() == [[2, 2]]


def test_a_stream_gives_the_steps_and_then_the_whole(tagger):
    x = np.random.default_rng(0).standard_normal((2, 40, 2), np.float32)
    whole = tagger(x)
    stream = tagger.stream(x)
    steps = np.zeros_like(whole)
    count = 0
    for part in stream:
        assert list(part.outputs) == ["y"]
        y = part.outputs["y"]
        steps[part.row, part.first:part.first + len(y)] = y
        count += len(y)
    assert count == 80
    np.testing.assert_allclose(steps, whole, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(stream.result(), whole, rtol=1e-5, atol=1e-6)
    assert list(stream) == []


def test_a_model_without_parts_streams_its_answer_alone(doubling):
    stream = doubling.stream(np.ones((1, 4), np.float32))
    assert list(stream) == []
    assert stream.result()[0, 0] == 2


def test_a_failed_stream_raises(doubling):
    with pytest.raises(chairlift.InvalidArgument, match="dimension 1"):
        next(doubling.stream(np.ones((1, 5), np.float32)))


def test_a_stream_that_is_left_cancels_its_request(gate):
    running = gate.occupy()
    with gate.model.stream(ONE):
        pass
    until(lambda: gate.failures() == {"cancelled": 1})
    dropped = gate.model.stream(ONE)
    del dropped
    until(lambda: gate.failures() == {"cancelled": 2})
    gate.open()
    assert [future.result().tolist() for future in running] == [[[2, 2]]] * 2


def test_a_generator_makes_no_more_than_is_read(tmp_path):
    (tmp_path / "endless.py").write_text(
        "import pathlib\nimport numpy as np\n"
        "def predict(x):\n"
        "    steps = 0\n"
        "    while True:\n"
        "        steps += 1\n"
        f"        pathlib.Path({str(tmp_path / 'part')!r}).write_text(str(steps))\n"
        f"        pathlib.Path({str(tmp_path / 'part')!r}).rename({str(tmp_path / 'steps')!r})\n"  # never half written
        "        yield np.full((len(x), 25_000), steps, np.float32)\n")
    model = chairlift.load(f"{tmp_path}/endless.py:predict")
    with model.stream(np.zeros((1, 1), np.float32)) as stream:
        first = next(stream)
        deadline = time.monotonic() + 60
        while (steps := int((tmp_path / "steps").read_text())) <= 10 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)
        assert 10 < steps <= int((tmp_path / "steps").read_text()) < 30
        assert first.first == 0 and [next(stream).first for _ in range(50)] == list(range(1, 51))
    model.close()
