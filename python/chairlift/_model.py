"""Engines and models."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import functools
import json
import os
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from . import _core, _texts
from ._arrays import is_ragged, rows_of
from ._errors import Cancelled, Error, InvalidArgument, NotFound, Unimplemented
from ._parts import Parts
from ._program import path_of
from ._texts import Ranked, TextStream

Arrays = dict[str, np.ndarray]
Answer = np.ndarray | Arrays
Source = str | os.PathLike[str] | Callable[..., Any] | type


class TensorSpec(NamedTuple):
    """An input or output of a model."""

    name: str
    dtype: str
    """As numpy names it: "float32", "int64", …, or "bfloat16" (of the package ml_dtypes)."""
    shape: tuple[int | None, ...]
    """None where it varies."""


class Part(NamedTuple):
    """Time steps [first, first + n) of one row of an answer, before all of it is computed."""

    row: int
    first: int
    outputs: Arrays
    """By name, [n, …] each."""


class Engine:
    """Worker threads, one a core, that models share. `load()` uses one engine for the whole process; another is made
    for other settings, and has threads of its own.

    workers: 0: one for each core this process may run on.
    cores: the cores to pin them to, one per worker; empty: those of this process, in order.
    memory_budget: bytes of intermediates and outputs over all workers; 0: half of what this process may use.
    max_requests: requests that wait or run, over all models; more raise ResourceExhausted.
    time_batches: whether models whose batches are chosen by cost are timed when they are first loaded (up to three
        seconds, kept in $XDG_CACHE_HOME/chairlift).

    Thread-safe, as are its models.
    """

    def __init__(self, *, workers: int = 0, cores: Sequence[int] = (), memory_budget: int = 0,
                 max_requests: int = 4096, time_batches: bool = True) -> None:
        # Workers of Python functions run what runs this.
        if sys.executable:
            os.environ.setdefault("CHAIRLIFT_PYTHON", sys.executable)
        _start_events()
        self._core = _core.Engine(workers=workers, cores=list(cores), memory_budget=memory_budget,
                                  max_requests=max_requests, time_batches=time_batches)
        _engines.add(self)

    def load(self, path: Source, *, allow_plugins: bool = False, **settings: Any) -> Model:
        """As `chairlift.load()`, on this engine."""
        return Model(self, path_of(path), settings, allow_plugins)

    def load_repository(self, path: str | os.PathLike[str], *, allow_plugins: bool = False,
                        **settings: Any) -> dict[str, Model]:
        """As `chairlift.load_repository()`, on this engine."""
        folder = os.fspath(path)
        names = _core.models_in(folder)  # and those that each names
        if not names:
            raise NotFound(f"'{folder}' holds no models; a repository is <name>/<version>/model.onnx")
        loaded: dict[str, Model | Error] = {}

        def load(name: str, *within: str) -> Model:
            if name in within:
                raise InvalidArgument(f"model '{name}' leads back to itself ({' → '.join((*within, name))})")
            if name not in names:
                raise NotFound(f"model '{within[-1]}' names model '{name}', which {folder} does not have")
            if name not in loaded:
                try:
                    uses = {used: load(used, *within, name) for used in names[name]}
                    loaded[name] = Model(self, os.path.join(folder, name), settings, allow_plugins, uses)
                except Error as error:
                    loaded[name] = error
            found = loaded[name]
            if isinstance(found, Error):
                raise found
            return found

        for name in names:
            with contextlib.suppress(Error):
                load(name)
        models = {name: model for name in names if isinstance(model := loaded[name], Model)}
        errors = {name: error for name in names if isinstance(error := loaded[name], Error)}
        if errors and not models:
            raise next(iter(errors.values())).with_traceback(None)
        for name, error in errors.items():
            warnings.warn(f"{name} was left out: {error}", stacklevel=3)
        return models

    @property
    def workers(self) -> int:
        return self._core.workers

    def close(self) -> None:
        """Fails what still runs (Unavailable) and ends the threads. Its models cannot be called any more."""
        self._core.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Model:
    """A loaded model. Call it with an array for each of `inputs`, by name or in their order:

        y = model(x=array)          y = model(array)          y = model({"x": array})

    The answer is the output's array, or a dict of arrays by name if there are several. Inputs are anything with a
    buffer or DLPack, or that numpy makes an array of; of the input's element type, which arrays must have and numbers of
    Python get. A number alone stands for an array of one, where the input has one dimension. They are borrowed, not
    copied, if they lie dense in memory, and must not be written until the answer is there. The answer owns its memory.

    A list of arrays is a ragged batch: each array is a row, [length, …] of an input [batch, length, …], or a batch of its
    own. The answer is then a list too, of rows or batches as they were given. Rows share batches with no padding where
    the model allows it (`diagnosis`). What is not given as a list goes to every row as it is.

    All ways of calling take
        timeout: seconds from the call on; when they have passed, it raises DeadlineExceeded at once. None: no timeout.
        outputs: the names of the outputs that are wanted, in this order, as a list; the answer is then a dict. None:
            all. What no wanted output needs may still be computed.
    An input that has one of these names is given in a dict.
    """

    def __init__(self, engine: Engine, path: str | os.PathLike[str], settings: Mapping[str, Any],
                 allow_plugins: bool = False, uses: Mapping[str, Model] | None = None,
                 unfold: Callable[..., Any] | None = None) -> None:
        self._engine = engine
        self._uses = uses  # of a model of a repository: those that it names, which serve as long as it does
        self._core = _core.Model(engine._core, os.fspath(path), {k: json.dumps(v) for k, v in settings.items()},
                                 allow_plugins, None if uses is None else {k: used.name for k, used in uses.items()},
                                 unfold)
        self._ranks = {spec[0]: len(spec[2]) for spec in self._core.inputs}
        self._names = list(self._ranks)
        self._only = len(self._core.outputs) == 1
        self._texts = _texts.Texts(self._core)

    @property
    def name(self) -> str:
        """That of its file or folder, with a number where that has been loaded before."""
        return self._core.name

    @property
    def version(self) -> str:
        return self._core.version

    @property
    def inputs(self) -> list[TensorSpec]:
        return [TensorSpec(*spec) for spec in self._core.inputs]

    @property
    def outputs(self) -> list[TensorSpec]:
        return [TensorSpec(*spec) for spec in self._core.outputs]

    @property
    def diagnosis(self) -> str:
        """In words: what varies between requests, how they share batches, and why."""
        return self._core.diagnosis

    def stats(self) -> dict[str, Any]:
        """Counters since it was loaded, as in the server's statistics (docs/reference/http.md): `inference_count` rows in
        `execution_count` batches; `success`, `fail`, `queue`, `compute_infer`, …: how many, and `ns` in all;
        `batches`: the same by rows; `failures` by reason; `waiting` and `running` now."""
        return self._core.stats()

    def _inputs(self, args: tuple[Any, ...], inputs: dict[str, Any]) -> dict[str, Any]:
        if not args:
            return inputs
        if len(args) == 1 and isinstance(args[0], Mapping):
            given = dict(args[0])
        elif len(args) <= len(self._names):
            given = dict(zip(self._names, args))
        else:
            raise InvalidArgument(
                f"model '{self.name}' is called with {len(args)} arrays; its inputs are: {', '.join(self._names)}")
        for name in inputs:
            if name in given:
                raise InvalidArgument(f"input '{name}' is given twice")
        given.update(inputs)
        return given

    def _answer(self, arrays: Arrays, outputs: Sequence[str] | None) -> Answer:
        return next(iter(arrays.values())) if self._only and outputs is None else arrays

    def __call__(self, *args: Any, timeout: float | None = None, outputs: Sequence[str] | None = None,
                 **inputs: Any) -> Any:
        """Waits for the answer. Other Python threads run meanwhile; Ctrl-C cancels the request and ends the call."""
        given = self._inputs(args, inputs)
        if is_ragged(given):
            rows, single = rows_of(given, self._ranks)
            return [self._row(arrays, single, outputs)
                    for arrays in self._core.infer_many(rows, timeout, _wanted(outputs))]
        return self._answer(self._core.infer(given, timeout, _wanted(outputs)), outputs)

    def _row(self, arrays: Arrays, single: bool, outputs: Sequence[str] | None) -> Answer:
        """The answer of a ragged batch's row, which had no axis of rows if `single`."""
        if single:
            arrays = {name: array[0] if array.ndim > 0 and len(array) == 1 else array for name, array in arrays.items()}
        return self._answer(arrays, outputs)

    def submit(self, *args: Any, timeout: float | None = None, outputs: Sequence[str] | None = None,
               **inputs: Any) -> Any:
        """Returns at once: a concurrent.futures.Future, or, of a ragged batch, a list of one for each row. The future
        has the answer, or its exception; its `cancel()` reaches the engine: a request that waits is not computed, one
        that runs stops at the next operator if no other request is in its batch."""
        given = self._inputs(args, inputs)
        if is_ragged(given):
            rows, single = rows_of(given, self._ranks)
            return [self._submit(row, timeout, outputs, single) for row in rows]
        return self._submit(given, timeout, outputs, False)

    def _submit(self, inputs: dict[str, Any], timeout: float | None, outputs: Sequence[str] | None,
                single: bool) -> concurrent.futures.Future[Any]:
        future = _Future()
        done = functools.partial(_settle, self, future, outputs, single)
        future.request = self._core.start(inputs, timeout, _wanted(outputs), done, None)
        return future

    async def infer(self, *args: Any, timeout: float | None = None, outputs: Sequence[str] | None = None,
                    **inputs: Any) -> Any:
        """As a call, for asyncio: cancelling the task cancels the request."""
        given = self._inputs(args, inputs)
        if is_ragged(given):
            rows, single = rows_of(given, self._ranks)
            return await asyncio.gather(*(self._infer(row, timeout, outputs, single) for row in rows))
        return await self._infer(given, timeout, outputs, False)

    async def _infer(self, inputs: dict[str, Any], timeout: float | None, outputs: Sequence[str] | None,
                     single: bool) -> Any:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()

        def done(arrays: Arrays | None, error: Exception | None) -> None:
            try:
                loop.call_soon_threadsafe(self._settle_here, future, outputs, single, arrays, error)
            except RuntimeError:
                pass  # the loop is closed, and with it the task that waited

        request = self._core.start(inputs, timeout, _wanted(outputs), done, None)
        try:
            return await future
        except asyncio.CancelledError:
            request.cancel()
            raise

    def _settle_here(self, future: asyncio.Future[Any], outputs: Sequence[str] | None, single: bool,
                     arrays: Arrays | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            assert arrays is not None
            future.set_result(self._row(arrays, single, outputs))

    def stream(self, *args: Any, timeout: float | None = None, outputs: Sequence[str] | None = None,
               **inputs: Any) -> Stream:
        """An iterator over the parts of the answer, as they are computed: of models that run as cells, for outputs with
        a time axis, and of models that generate, tokens. Other models have none. The whole answer is the stream's `result()`."""
        given = self._inputs(args, inputs)
        if is_ragged(given):
            raise Unimplemented("a stream is of one request; a ragged batch is called or submitted")
        return Stream(self, given, timeout, outputs)

    def embed(self, texts: str | Sequence[str], *, normalize: bool | None = None, truncate: bool | str = False,
              prompt_name: str | None = None, timeout: float | None = None) -> np.ndarray:
        """The vectors of texts, float32 [texts, size], or [size] of a single `str`: of an encoder with a tokenizer.json
        beside its file (docs/guides/embeddings.md). The first call starts the tokenizer, in a process of its own.

        normalize: whether vectors have length 1. None: as the model's files say.
        truncate: whether a text of more tokens than the model takes loses some: "right": the last ones; "left": the
            first; True: as the tokenizer's files say. False: it raises InvalidArgument.
        prompt_name: the prompt of config_sentence_transformers.json that is put before the texts. None: its default.
        """
        return self._texts.embed(texts, normalize, truncate, prompt_name, timeout)

    def rerank(self, query: str, texts: Sequence[str], *, raw_scores: bool = False, truncate: bool | str = False,
               timeout: float | None = None) -> list[Ranked]:
        """The texts by how well they answer the query, the best first: of a cross-encoder with a tokenizer.json beside
        its file. Scores are between 0 and 1 or, `raw_scores`, the model's own."""
        return self._texts.rerank(query, texts, raw_scores, truncate, timeout)

    def complete(self, texts: str | Sequence[str], *, timeout: float | None = None, **parameters: Any) -> Any:
        """What follows a text: a Completion, whose `text` it is. For a model that generates, with a tokenizer.json
        beside its file; the first call starts the tokenizer, in processes of its own. A list of texts gives a list; its
        requests share every step.

        parameters: by name, as docs/guides/language-models.md lists them: max_tokens, temperature, top_p, seed, stop
            (a text, or several), logprobs, … With `n`, each Completion is a list of that many answers.
        """
        return self._texts.complete(texts, timeout, parameters)

    def stream_text(self, text: str, *, timeout: float | None = None, **parameters: Any) -> TextStream:
        """As complete(), of one text: an iterator over its pieces, as they are generated."""
        return self._texts.stream(text, timeout, parameters)

    def close(self) -> None:
        """Unloads the model once its requests have ended; it cannot be called any more. So does its last reference
        when it goes."""
        self._core.unload()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        def listed(specs: list[TensorSpec]) -> str:
            return ", ".join(f"{s.name}: {s.dtype}[{', '.join('?' if d is None else str(d) for d in s.shape)}]"
                             for s in specs)
        return f"<chairlift.Model '{self.name}' ({listed(self.inputs)}) -> ({listed(self.outputs)})>"


class Stream(Parts[Part]):
    """The parts of one answer (`Model.stream()`). Ends when all have come; `result()` is the answer as a whole, with
    its parts again and the padding of rows that ended early. A stream that is closed, left (`with`) or dropped cancels
    its request. Not thread-safe."""

    def __init__(self, model: Model, inputs: dict[str, Any], timeout: float | None,
                 outputs: Sequence[str] | None) -> None:
        self._model = model
        self._outputs = outputs
        super().__init__(lambda ended, came: model._core.start(inputs, timeout, _wanted(outputs), ended, came), Part)

    def result(self) -> Any:
        """The whole answer, as the model's call returns it; parts not yet iterated over are skipped."""
        return self._model._answer(self._whole(), self._outputs)


class _Future(concurrent.futures.Future):
    """Its cancellation reaches the engine."""

    request: _core.Request | None = None

    def cancel(self) -> bool:
        cancelled = super().cancel()
        if cancelled and self.request is not None:
            self.request.cancel()
        return cancelled


def _settle(model: Model, future: _Future, outputs: Sequence[str] | None, single: bool, arrays: Arrays | None,
            error: Exception | None) -> None:
    if not future.set_running_or_notify_cancel():
        return
    if isinstance(error, Cancelled):
        # Only its owner cancels a request, and that is noted first.
        future.set_exception(concurrent.futures.CancelledError())
    elif error is not None:
        future.set_exception(error)
    else:
        assert arrays is not None
        future.set_result(model._row(arrays, single, outputs))


def _wanted(outputs: Sequence[str] | None) -> list[str] | None:
    if outputs is None:
        return None
    if isinstance(outputs, str) or not all(isinstance(name, str) for name in outputs):
        raise InvalidArgument(f"outputs is {outputs!r}; it must be a list of names")
    return list(outputs)


# What engine threads report is handled by one thread a process: they never wait for the interpreter's lock.

_lock = threading.Lock()
_engines: weakref.WeakSet[Engine] = weakref.WeakSet()
_events: threading.Thread | None = None
_shared: Engine | None = None


def _run_events() -> None:
    while _core.run_events():
        pass


def _start_events() -> None:
    global _events
    with _lock:
        if _events is None:
            _events = threading.Thread(target=_run_events, name="chairlift", daemon=True)
            _events.start()


def _at_exit() -> None:
    for engine in list(_engines):
        engine.close()
    if _events is not None:
        _core.close_events()
        _events.join()


def _in_child() -> None:
    """A child of fork() has none of the threads; it may load models of its own."""
    global _lock, _engines, _events, _shared
    _lock = threading.Lock()
    _inherited.append((_engines, _shared))  # never destroyed
    _engines = weakref.WeakSet()
    _events = None
    _shared = None


_inherited: list[Any] = []
atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_child)


def _engine() -> Engine:
    global _shared
    engine = _shared
    if engine is None:
        made = Engine()
        with _lock:
            _shared = engine = _shared or made
    return engine


def load(path: Source, *, allow_plugins: bool = False, **settings: Any) -> Model:
    """Loads a model: an ONNX file, the folder of a model (of cells, or with versions and a model.yaml), one version's
    folder, or a Python function or class in worker processes of its own (itself, or "my.py:predict").

        model = chairlift.load("model.onnx")
        model = chairlift.load("models/minilm", max_batch_tokens=4096)

    allow_plugins: whether code that lies in the model's folder may run: a function that its model.yaml names, a plugin.
    settings: those of a model.yaml, by name (docs/reference/repositories.md); the
        folder's own hold where they are not given.

    Ctrl-C ends it.
    """
    return _engine().load(path, allow_plugins=allow_plugins, **settings)


def load_repository(path: str | os.PathLike[str], *, allow_plugins: bool = False, **settings: Any) -> dict[str, Model]:
    """Loads every model of a folder of models, as `chairlift serve` does: the latest version of each, functions and
    pipelines too, by name.

    What cannot be loaded is left out with a warning; where nothing can, it raises why.

    allow_plugins: as for `load()`.
    settings: of every model that can have them; else those of its own folder hold.
    """
    return _engine().load_repository(path, allow_plugins=allow_plugins, **settings)
