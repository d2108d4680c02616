"""The worker process of a Python model: `python3 _worker.py SOCKET PARENT FILE NAME PARTS ARGUMENT`.

Needs only numpy, not the package around it. src/engine/programs/process/messages.md describes the messages. The server
checks every message. Batches and results are in shared memory that the server creates. A message has the offset of each
tensor in it.
"""

import array
import asyncio
import collections
import contextlib
import ctypes
import importlib.util
import json
import mmap
import os
import resource
import signal
import socket
import struct
import sys
import time
import traceback

RUN, ROOM, STOP, ANSWER, CALL_FAILED, CANCEL = 1, 2, 3, 4, 5, 6  # messages from the server
READY, LOAD_FAILED, RESULT, NEEDS_ROOM, FAILED, PART, CALL = 1, 2, 3, 4, 5, 6, 7  # messages to the server

MAX_MESSAGE = 65536
MAX_TEXT = 16384
ERROR_MARK = "\x02"  # begins a line that the server logs as an error
MAX_CALLS = 64  # calls that the server answers at a time
ALIGN = 64  # bytes, of tensors in shared memory
HEADER = struct.Struct("=IIQ")  # kind, count, sequence
RUN_HEAD = struct.Struct("=IIQQ")  # slot, rows, room of the new input and output regions; 0: as before
ROOM_HEAD = struct.Struct("=Q")
CALL_HEAD = struct.Struct("=Qq")  # sequence of the batch, timeout in microseconds; the model's name follows
NAME = struct.Struct("=I")  # length in bytes; the name follows
DEADLINE_EXCEEDED = 4
TENSOR = struct.Struct("=IIQ")  # dtype, rank, offset; the dimensions follow
DIMS = [struct.Struct(f"={rank}q") for rank in range(33)]
CODES = ["", "float32", "float64", "float16", "", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32",
         "uint64", "bool", "bytes"]
PR_SET_PDEATHSIG = 1
IMPORTING = "CHAIRLIFT_IMPORTING"  # environment variable: the files that the worker's ancestors are importing
WATCH = 100e-6  # s: polls this long for the next message before sleeping, if the last one came that soon


class Cancelled(Exception):
    """No client waits for the batch any more."""


def fit(text):
    """Shortens a long text from the beginning: the last lines of a traceback say most."""
    data = text.encode("utf-8", "replace")
    if len(data) <= MAX_TEXT:
        return data
    return b"... " + data[len(data) - MAX_TEXT:].decode("utf-8", "ignore").encode()  # drops an incomplete character


def die_with(parent):
    """Ends this process when the server ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


def as_texts(value):
    """Returns the text inputs of a call as an array, or None if the value is not text."""
    if isinstance(value, numpy.ndarray):
        return value if value.dtype.kind in "USO" else None
    first = value
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    return numpy.array(value, object) if isinstance(first, (str, bytes)) else None


def packed_texts(name, texts):
    """Returns the offsets of the texts, then their bytes, as uint8."""
    encoded = []
    for text in texts.ravel().tolist():
        if not isinstance(text, (str, bytes)):
            raise TypeError(f"input '{name}' has a {type(text).__name__} among its items; text must be str or bytes")
        encoded.append(text.encode("utf-8", "replace") if isinstance(text, str) else text)
    ends = numpy.cumsum([0] + [len(text) for text in encoded], dtype=numpy.int64)
    return numpy.frombuffer(ends.tobytes() + b"".join(encoded), numpy.uint8)


def texts_in(memory, offset, shape):
    """Reads an array of bytes objects: first their offsets, then their bytes."""
    texts = numpy.empty(shape, object)
    ends = numpy.ndarray(texts.size + 1, numpy.int64, memory, offset).tolist()
    begin = offset + 8 * len(ends)
    for i, (first, end) in enumerate(zip(ends, ends[1:])):
        texts.flat[i] = memory[begin + first:begin + end]
    return texts


class Connection:
    """Messages to and from the server, and the shared memory."""

    def __init__(self, descriptor):
        self.socket = socket.socket(fileno=descriptor)
        self.waiting = collections.deque()  # messages that came while another one was expected
        self.slots = {}  # slot number: [input, output] memory
        self.process = os.getpid()
        self.batch = 0, 0  # slot and number of the current batch
        self.cancelled = set()  # numbers of batches
        self.left = collections.defaultdict(set)  # by number: rows whose results are not needed
        self.task = None  # of an async function, while it runs
        self.calls = {}  # that wait, by number: their futures
        self.last_call = 0
        self.call_end = 0  # offset in the output region; inputs of calls are before it
        self.watches = False

    def send(self, kind, count, sequence, payload=b""):
        if os.getpid() != self.process:  # a child that the function forked must not send
            os._exit(0)
        self.socket.send(HEADER.pack(kind, count, sequence) + payload)

    def receive(self):
        """Returns (kind, count, sequence, message, descriptors). An empty kind: the server closed the connection."""
        begin = time.monotonic()
        received = None
        while received is None and self.watches and time.monotonic() - begin < WATCH:
            received = self.receive_now()
            if received is None:
                os.sched_yield()
        received = received or self.parsed(*self.socket.recvmsg(MAX_MESSAGE, 64))
        self.watches = time.monotonic() - begin < WATCH
        return received

    def receive_now(self):
        """Like receive(). Returns None if no message has arrived."""
        try:
            return self.parsed(*self.socket.recvmsg(MAX_MESSAGE, 64, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return None

    @staticmethod
    def parsed(message, ancillary, *_):
        if not message:
            return 0, 0, 0, message, ()
        descriptors = array.array("i")
        for _, _, data in ancillary:
            descriptors.frombytes(data[:len(data) - len(data) % descriptors.itemsize])
        return *HEADER.unpack_from(message), message, descriptors

    def next(self):
        while True:
            got = self.waiting.popleft() if self.waiting else self.receive()
            if not self.is_taken(got):
                return got

    def is_cancelled(self, row=None):
        """Returns whether no request waits any more for the current batch, or for row `row` of it."""
        closed = self.waiting and not self.waiting[-1][0]
        while not closed and (got := self.receive_now()) is not None:
            if not self.is_taken(got):
                self.waiting.append(got)
                closed = not got[0]
        return self.batch[1] in self.cancelled or (row is not None and row in self.left.get(self.batch[1], ()))

    def is_taken(self, got):
        """Whether it is a message that need not be kept for later: one of cancellation, or an answer."""
        kind, count, sequence, message, _ = got
        if kind != CANCEL:
            return self.is_answer(got)
        if count:
            first, = NAME.unpack_from(message, HEADER.size)
            self.left[sequence].update(range(first, first + count))
            return True
        self.cancelled.add(sequence)
        if sequence == self.batch[1] and self.task is not None:
            self.task.cancel()
        return True

    def is_answer(self, got):
        """Gives the answer of a call to its future. Returns False for other messages."""
        kind, count, number, message, descriptors = got
        if kind not in (ANSWER, CALL_FAILED):
            return False
        future = self.calls.pop(number, None)
        if future is None or future.done():  # the caller has stopped waiting
            for descriptor in descriptors:
                os.close(descriptor)
        elif kind == ANSWER:
            future.set_result(self.outputs_of(count, message, descriptors[0]))
        else:
            text = message[HEADER.size:].decode("utf-8", "replace")
            future.set_exception(TimeoutError(text) if count == DEADLINE_EXCEEDED else RuntimeError(text))
        return True

    def heard(self):
        """Handles a message that arrives while an async function runs."""
        got = self.receive()
        if not self.is_taken(got):
            if not got[0]:
                os._exit(0)
            self.waiting.append(got)

    @staticmethod
    def outputs_of(count, message, descriptor):
        size, = ROOM_HEAD.unpack_from(message, HEADER.size)
        try:
            memory = mmap.mmap(descriptor, size)  # lives as long as the arrays in it
        finally:
            os.close(descriptor)
        place = HEADER.size + ROOM_HEAD.size
        outputs = {}
        for _ in range(count):
            length, = NAME.unpack_from(message, place)
            name = message[place + NAME.size:place + NAME.size + length].decode()
            place += NAME.size + length
            code, rank, offset = TENSOR.unpack_from(message, place)
            shape = DIMS[rank].unpack_from(message, place + TENSOR.size)
            place += TENSOR.size + 8 * rank
            if CODES[code] == "bytes":
                outputs[name] = texts_in(memory, offset, shape)
            else:
                outputs[name] = numpy.ndarray(shape, CODES[code], memory, offset)
        return outputs

    async def call(self, model, inputs, timeout):
        """Calls another model. Returns its outputs by name."""
        async with self.room:
            return await self.call_now(model, inputs, timeout)

    async def call_now(self, model, inputs, timeout):
        slot, sequence = self.batch
        arrays, heads = {}, {}
        for name, value in inputs.items():
            texts = as_texts(value)
            if texts is not None:
                arrays[name], heads[name] = packed_texts(name, texts), ("bytes", texts.shape)
                continue
            arrays[name] = array = numpy.ascontiguousarray(value)
            heads[name] = array.dtype.name, array.shape
            if array.dtype.name not in CODES:
                raise TypeError(f"input '{name}' of model '{model}' is of type {array.dtype}, which is not supported")
        size = sum((value.nbytes + ALIGN - 1) // ALIGN * ALIGN for value in arrays.values())
        memory = self.slots[slot]
        if self.call_end + size > len(memory[1]):
            self.call_end = 0  # the new memory is empty
            if not self.grow(slot, sequence, len(memory[1]) + size):
                raise ValueError(f"the inputs of model '{model}' have {size} bytes, more than a batch may have")
        encoded = model.encode()
        payload = CALL_HEAD.pack(sequence, int((timeout or 0) * 1e6)) + NAME.pack(len(encoded)) + encoded
        for name, value in arrays.items():
            numpy.copyto(numpy.ndarray(value.shape, value.dtype, memory[1], self.call_end), value)
            encoded = name.encode()
            dtype, shape = heads[name]
            payload += NAME.pack(len(encoded)) + encoded
            payload += TENSOR.pack(CODES.index(dtype), len(shape), self.call_end) + DIMS[len(shape)].pack(*shape)
            self.call_end += (value.nbytes + ALIGN - 1) // ALIGN * ALIGN
        self.last_call += 1
        future = self.calls[self.last_call] = asyncio.get_running_loop().create_future()
        self.send(CALL, len(arrays), self.last_call, payload)
        try:
            return await future
        finally:
            if not self.calls:
                self.call_end = 0

    def compute(self, coroutine):
        """Runs an async function and returns its result."""
        loop = asyncio.new_event_loop()
        loop.add_reader(self.socket, self.heard)
        self.room = asyncio.Semaphore(MAX_CALLS)
        self.task = loop.create_task(coroutine)
        try:
            return loop.run_until_complete(self.task)
        except asyncio.CancelledError:
            raise Cancelled("the batch was cancelled") from None
        finally:
            self.task = None
            for future in self.calls.values():
                future.cancel()
            self.calls.clear()
            self.call_end = 0
            loop.remove_reader(self.socket)
            loop.close()

    def map(self, slot, which, descriptor, size):
        try:
            self.slots.setdefault(slot, [None, None])[which] = mmap.mmap(descriptor, size)
        finally:
            os.close(descriptor)

    def grow(self, slot, sequence, size):
        """Asks for memory for a result of `size` bytes. Returns False if the server refuses.

        A stream may get its current memory again. The server has then read the contents.
        """
        self.send(NEEDS_ROOM, 0, sequence, ROOM_HEAD.pack(size))
        while True:
            got = self.receive()
            if got[0] == ROOM:
                room, = ROOM_HEAD.unpack_from(got[3], HEADER.size)
                if room and got[4]:
                    self.map(slot, 1, got[4][0], room)
                return room > 0
            if not got[0]:
                os._exit(0)
            if not self.is_taken(got):
                self.waiting.append(got)


@contextlib.contextmanager
def importing(path):
    """Marks in the environment that this file is being imported. Without it, a file that loads its own function would start
    workers without end."""
    path = os.path.realpath(path)
    before = os.environ.get(IMPORTING)
    files = json.loads(before) if before else []
    if path in files:
        raise RuntimeError(f"{path} loads a function of its own while a worker imports it, which would load it again: put the "
                           'call under `if __name__ == "__main__":`')
    os.environ[IMPORTING] = json.dumps([*files, path])
    try:
        yield
    finally:
        del os.environ[IMPORTING]
        if before:
            os.environ[IMPORTING] = before


def load(path, name):
    """Returns the object `name` of the file at `path`."""
    folder = os.path.dirname(os.path.abspath(path))
    sys.path[0] = folder  # replaces the folder of this file
    sys.argv = [path]
    spec = importlib.util.spec_from_file_location(os.path.splitext(os.path.basename(path))[0], path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    with importing(path):
        spec.loader.exec_module(module)
    found = module
    for part in name.split("."):
        if not hasattr(found, part):
            public = sorted(key for key, value in vars(module).items()
                            if callable(value) and getattr(value, "__module__", "") == spec.name)
            raise AttributeError(f"{path} has no '{name}'" + (f"; it has: {', '.join(public)}" if public else ""))
        found = getattr(found, part)
    return found, module


def user_traceback(error):
    """The traceback without frames of this file."""
    own = os.path.dirname(os.path.abspath(__file__))
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if os.path.dirname(frame.filename) != own and "importlib" not in frame.filename]
    return theirs


def full(error):
    lines = traceback.format_list(user_traceback(error)) + traceback.format_exception_only(type(error), error)
    return "".join(lines).rstrip("\n") + why_no_memory(error) + "\n"


def why_no_memory(error):
    """Names the setting that bounds the memory of this process, where the error may come of it."""
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    if not isinstance(error, MemoryError) or limit == resource.RLIM_INFINITY:
        return ""
    return f": max_memory_bytes of its model.yaml is {limit}"


def without_source(error):
    """Returns the traceback as full() does, but without source lines, because clients may see it."""
    frames = [f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}\n' for frame in user_traceback(error)]
    if isinstance(error, SyntaxError):
        where = f"{os.path.basename(error.filename or '')}, line {error.lineno}"
        return "".join(frames) + f"{type(error).__name__}: {error.msg} ({where})"
    return "".join(frames + traceback.format_exception_only(type(error), error)).rstrip("\n") + why_no_memory(error)


def describe(error):
    """Its type and message, and the last line of its traceback."""
    text = (f"{type(error).__name__}: {error}" if str(error) else type(error).__name__) + why_no_memory(error)
    frames = user_traceback(error)
    if frames:
        last = frames[-1]
        text += f" ({os.path.basename(last.filename)}, line {last.lineno}, in {last.name})"
    return text


def is_refusal(error):
    """Whether the function says that the request is wrong: chairlift.InvalidArgument."""
    return type(error).__name__ == "InvalidArgument" and type(error).__module__.partition(".")[0] == "chairlift"


def ready(connection, function):
    payload = b""
    for name, dtype, shape, lengths in function.inputs + function.outputs:
        encoded = name.encode()
        rank = -1 if shape is None else len(shape)
        payload += struct.pack("=IiII", CODES.index(dtype), rank, len(encoded), lengths)
        payload += struct.pack(f"={max(rank, 0)}q", *(shape or ())) + encoded
    connection.send(READY, len(function.inputs), len(function.outputs), payload)


def serve(connection, function):
    dtypes = [numpy.dtype(code) if code and code != "bytes" else None for code in CODES]
    codes = {dtype: code for code, dtype in enumerate(dtypes) if dtype is not None}
    quiet_until = 0
    ndarray = numpy.ndarray
    unpack_tensor, tensor_size = TENSOR.unpack_from, TENSOR.size
    while True:
        kind, count, sequence, message, descriptors = connection.next()
        if kind != RUN:
            return  # a stop message, or the server has closed
        slot, rows, input_room, output_room = RUN_HEAD.unpack_from(message, HEADER.size)
        passed = iter(descriptors)
        if input_room:
            connection.map(slot, 0, next(passed), input_room)
        if output_room:
            connection.map(slot, 1, next(passed), output_room)
        memory = connection.slots[slot]
        place = HEADER.size + RUN_HEAD.size
        inputs = []
        for _ in range(count):
            code, rank, offset = unpack_tensor(message, place)
            shape = DIMS[rank].unpack_from(message, place + tensor_size)
            place += tensor_size + 8 * rank
            inputs.append(ndarray(shape, dtypes[code], memory[0], offset))
        try:
            end = 0  # of the used part of the output region
            connection.batch = slot, sequence
            if connection.is_cancelled():
                raise Cancelled("the batch was cancelled before it was begun")
            outputs = function(inputs, rows)
            if function.streams:
                steps = outputs
                for outputs in steps:  # after the loop: the outputs of the last step
                    end = give(connection, slot, sequence, PART, outputs, end, codes)
                    if connection.is_cancelled():
                        steps.close()
                        raise Cancelled("the stream was cancelled")
                outputs = function.no_steps(outputs)
            give(connection, slot, sequence, RESULT, outputs, end, codes)
        except Cancelled as error:
            connection.send(FAILED, 0, sequence, str(error).encode())
        except Exception as error:  # SystemExit and the like end the worker
            refused = is_refusal(error)
            if not refused and time.monotonic() > quiet_until:  # a function that fails at every batch would fill the log
                quiet_until = time.monotonic() + 1
                sys.stderr.write("".join(ERROR_MARK + line for line in full(error).splitlines(True)))
            connection.send(FAILED, refused, sequence, fit(str(error) if refused else describe(error)))
        if connection.cancelled:  # keeps only cancellations of later batches
            connection.cancelled = {number for number in connection.cancelled if number > sequence}
        if connection.left:
            for number in [number for number in connection.left if number <= sequence]:
                del connection.left[number]


def give(connection, slot, sequence, kind, outputs, begin, codes):
    """Writes outputs to the slot's memory from offset `begin` on, and sends their offsets. Returns the end."""
    memory = connection.slots[slot]
    size = sum((output.nbytes + ALIGN - 1) // ALIGN * ALIGN for output in outputs)
    room = len(memory[1]) if memory[1] is not None else 0
    if begin + size > room:
        begin = 0  # the memory is then empty
        if not connection.grow(slot, sequence, size):
            raise ValueError(f"the result has {size} bytes, more than a batch may have (--memory-budget)")
    payload = []
    for output in outputs:
        if output.nbytes:
            numpy.copyto(numpy.ndarray(output.shape, output.dtype, memory[1], begin), output)
        payload.append(TENSOR.pack(codes[output.dtype], output.ndim, begin) + DIMS[output.ndim].pack(*output.shape))
        begin += (output.nbytes + ALIGN - 1) // ALIGN * ALIGN
    connection.send(kind, len(outputs), sequence, b"".join(payload))
    return begin


def main():
    descriptor, parent, (path, name, parts, argument) = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:7]
    die_with(parent)
    # The server ends its workers by closing their sockets after the requests in flight. A terminal or supervisor that
    # signals the whole process group must not end them earlier.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    connection = Connection(descriptor)
    os.register_at_fork(after_in_child=connection.socket.close)
    try:
        try:
            global numpy
            import numpy
        except ImportError as error:
            raise ImportError(f"{sys.executable} has no numpy ({error}): install it there, or name another "
                              "interpreter with `python_executable` or CHAIRLIFT_PYTHON") from error
        call = os.path.join(os.path.dirname(os.path.abspath(__file__)), "_worker_call.py")
        spec = importlib.util.spec_from_file_location("_chairlift_worker_call", call)
        worker_call = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = worker_call
        spec.loader.exec_module(worker_call)
        worker_call.offer_package()
        worker_call.CALLER, worker_call.COMPUTE = connection.call, connection.compute
        worker_call.IS_CANCELLED = connection.is_cancelled
        found, module = load(path, name)
        function = worker_call.Function(found, name, module, parts.split(","), argument)
    except Exception as error:
        brief = without_source(error).rstrip()
        if isinstance(error, ModuleNotFoundError):
            brief += (f"; install it for {sys.executable}, or name another interpreter with `python_executable` or "
                      "CHAIRLIFT_PYTHON")
        if brief != full(error).rstrip():  # what is left out is for the log
            sys.stderr.write("".join(ERROR_MARK + line for line in full(error).splitlines(True)))
            sys.stderr.flush()
        connection.send(LOAD_FAILED, 0, 0, fit(brief))
        return
    ready(connection, function)
    serve(connection, function)


if __name__ == "__main__":
    main()
