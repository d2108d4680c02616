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
    """The element type by numpy's name: "float32", "int64", …, or "bfloat16" (from the package ml_dtypes)."""
    shape: tuple[int | None, ...]
    """One length per dimension. None: the length varies."""


class Part(NamedTuple):
    """Time steps [first, first + n) of one row of an answer, while the rest is still computed."""

    row: int
    first: int
    outputs: Arrays
    """Arrays by output name, each [n, …]."""


# Old names of keyword arguments. They work for one version, with a warning.
_RENAMED = {"time_batches": "autotune"}


def _current(renamed: Mapping[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """Adds arguments that were given under their old names."""
    for name, value in renamed.items():
        if name not in _RENAMED:
            raise TypeError(f"Engine() got an unexpected keyword argument '{name}'")
        warnings.warn(f"'{name}' is now '{_RENAMED[name]}'; the old name works until version 0.3",
                      DeprecationWarning, stacklevel=3)
        given[_RENAMED[name]] = value
    return given


class Engine:
    """Worker threads, one per core, that models share.

    `load()` uses one engine for the whole process. Make another engine to use other settings; it has its own threads.
    Engines and their models are thread-safe.

    workers: number of worker threads. 0: one for each core that this process may run on.
    cores: the cores to pin workers to, one per worker. Empty: the cores of this process, in order.
    memory_budget: bytes of intermediate values and outputs over all workers. 0: half of the memory that this process
        may use.
    max_requests: the limit on requests that wait or run, over all models. A request over it raises ResourceExhausted.
    autotune: whether to measure a model at its first load if its policy chooses batches by cost. This takes up to
        eight seconds. The result is kept in $XDG_CACHE_HOME/chairlift.
    """

    def __init__(self, *, workers: int = 0, cores: Sequence[int] = (), memory_budget: int = 0,
                 max_requests: int = 4096, autotune: bool = True, **renamed: Any) -> None:
        autotune = _current(renamed, {"autotune": autotune})["autotune"]
        # Workers of Python functions run what runs this.
        if sys.executable:
            os.environ.setdefault("CHAIRLIFT_PYTHON", sys.executable)
        _start_events()
        self._core = _core.Engine(workers=workers, cores=list(cores), memory_budget=memory_budget,
                                  max_requests=max_requests, autotune=autotune)
        _engines.add(self)

    def load(self, path: Source, *, allow_plugins: bool = False, **settings: Any) -> Model:
        """Loads a model on this engine, as `chairlift.load()` does."""
        return Model(self, path_of(path), settings, allow_plugins)

    def load_repository(self, path: str | os.PathLike[str], *, allow_plugins: bool = False,
                        **settings: Any) -> dict[str, Model]:
        """Loads a repository on this engine, as `chairlift.load_repository()` does."""
        folder = os.fspath(path)
        names = _core.models_in(folder)  # by model: the models that it names
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
        """The number of worker threads."""
        return self._core.workers

    def close(self) -> None:
        """Ends the threads. Requests that still run fail with Unavailable. The models cannot be called again."""
        self._core.close()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# Methods that users of other libraries call.
_OTHER_METHODS = {
    "run": "call the model itself, as model(x=array)", "predict": "call the model itself, as model(x=array)",
    "forward": "call the model itself, as model(x=array)", "encode": "embed() makes vectors of text",
    "generate": "complete() continues text; model(input_ids=…) continues tokens", "chat": "complete() continues text",
    "get_inputs": "`inputs` lists them", "get_outputs": "`outputs` lists them",
    "async_call": "`await model.infer(x=array)`", "ainfer": "`await model.infer(x=array)`"}


class Model:
    """A loaded model. Call it with an array for each input, by name or in the order of `inputs`:

        y = model(x=array)          y = model(array)          y = model({"x": array})

    The answer is the output's array. If the model has several outputs, it is a dict of arrays by name. The answer owns
    its memory.

    An input can be an object with the buffer protocol or DLPack, or any value that numpy converts to an array. An array
    must have the input's element type. Python numbers are converted to it. A single number is accepted for an input of
    one dimension, and means an array of one element. Dense arrays are borrowed, not copied. Do not write to them until
    the answer has arrived.

    A list of arrays is a ragged batch. Each array is one row, [length, …] for an input [batch, length, …], or a batch
    by itself. The answer is then a list, with one item for each array. Rows share batches without padding if the model
    allows it (`diagnosis`). An input that is not a list is used for every row.

    Every method that runs the model has two more parameters. To pass an input with one of these names, use a dict.

    timeout: seconds from the call. After them the call raises DeadlineExceeded. None: no timeout.
    outputs: a list of the names of the outputs to return. The answer is then a dict in this order. None: all outputs.
        The model may still compute the others.

    Raises InvalidArgument if an input is missing, unknown, or has another type or shape than the model's.
    """

    def __init__(self, engine: Engine, path: str | os.PathLike[str], settings: Mapping[str, Any],
                 allow_plugins: bool = False, uses: Mapping[str, Model] | None = None,
                 unfold: Callable[..., Any] | None = None) -> None:
        self._engine = engine
        self._uses = uses  # keeps the models of the repository that this one names loaded
        self._core = _core.Model(engine._core, os.fspath(path), {k: json.dumps(v) for k, v in settings.items()},
                                 allow_plugins, None if uses is None else {k: used.name for k, used in uses.items()},
                                 unfold)
        self._ranks = {spec[0]: len(spec[2]) for spec in self._core.inputs}
        self._names = list(self._ranks)
        self._only = len(self._core.outputs) == 1
        self._texts = _texts.Texts(self._core)

    @property
    def name(self) -> str:
        """The name of the model's file or folder. A number is added if the engine already has a model of that name."""
        return self._core.name

    @property
    def version(self) -> str:
        """The version that was loaded."""
        return self._core.version

    @property
    def inputs(self) -> list[TensorSpec]:
        """The model's inputs, in the order of positional arguments."""
        return [TensorSpec(*spec) for spec in self._core.inputs]

    @property
    def outputs(self) -> list[TensorSpec]:
        """The model's outputs."""
        return [TensorSpec(*spec) for spec in self._core.outputs]

    @property
    def diagnosis(self) -> str:
        """A text that says which shapes vary between requests, how requests share batches, and why."""
        return self._core.diagnosis

    def stats(self) -> dict[str, Any]:
        """Returns the counters since the load, with the names of the server's statistics (docs/reference/http.md).

        inference_count, execution_count: rows, and the batches in which they were computed.
        success, fail, queue, compute_infer: dicts with a `count`, and the total duration `ns` in nanoseconds.
        batches: the same durations by batch size in rows.
        failures: failed requests by reason.
        waiting, running: requests at this moment.
        """
        return self._core.stats()

    def __getattr__(self, name: str) -> Any:
        hint = _OTHER_METHODS.get(name)
        raise AttributeError(f"a Model has no '{name}'" + (f"; {hint}" if hint else ""), name=name, obj=self)

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
        """Runs the model and waits for the answer. Meanwhile other Python threads run. Ctrl-C cancels the request."""
        given = self._inputs(args, inputs)
        if is_ragged(given):
            rows, single = rows_of(given, self._ranks)
            return [self._row(arrays, single, outputs)
                    for arrays in self._core.infer_many(rows, timeout, _wanted(outputs))]
        return self._answer(self._core.infer(given, timeout, _wanted(outputs)), outputs)

    def _row(self, arrays: Arrays, single: bool, outputs: Sequence[str] | None) -> Answer:
        """The answer for one row of a ragged batch. `single`: the row was given without the batch axis."""
        if single:
            arrays = {name: array[0] if array.ndim > 0 and len(array) == 1 else array for name, array in arrays.items()}
        return self._answer(arrays, outputs)

    def submit(self, *args: Any, timeout: float | None = None, outputs: Sequence[str] | None = None,
               **inputs: Any) -> Any:
        """Starts a request and returns a concurrent.futures.Future at once.

        For a ragged batch, returns a list with a future for each row. A future holds the answer or the exception. Its
        `cancel()` reaches the engine: a request that waits is not computed. A request that runs stops at the next
        operator if its batch has no other request.
        """
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
        """Runs the model from asyncio and returns the answer. Cancelling the task cancels the request."""
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
                pass  # the loop is closed, so that no task waits any more

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
        """Starts a request and returns an iterator over the parts of its answer, as they are computed.

        A model that runs as cells yields time steps of the outputs that have a time axis. A generative model yields
        tokens. Other models yield no parts. `result()` of the stream returns the whole answer. Raises Unimplemented for
        a ragged batch.
        """
        given = self._inputs(args, inputs)
        if is_ragged(given):
            raise Unimplemented("a stream is of one request; a ragged batch is called or submitted")
        return Stream(self, given, timeout, outputs)

    def embed(self, texts: str | Sequence[str], *, normalize: bool | None = None, truncate: bool | str = False,
              prompt_name: str | None = None, timeout: float | None = None) -> np.ndarray:
        """Returns the embeddings of text inputs: float32 [texts, size], or [size] if `texts` is a single `str`.

        The model must be an encoder with a tokenizer.json beside its file (docs/guides/embeddings.md). The first call
        starts the tokenizer in a separate process.

        texts: one text or a list of them.
        normalize: whether to scale each vector to length 1. None: as the model's files say.
        truncate: which tokens to drop if a text has more than the model's maximum. "right": the last ones. "left": the
            first ones. True: as the tokenizer's files say. False: raise InvalidArgument.
        prompt_name: the prompt of config_sentence_transformers.json to put before each text. None: its default prompt.
        timeout: seconds until the call raises DeadlineExceeded. None: no timeout.
        """
        return self._texts.embed(texts, normalize, truncate, prompt_name, timeout)

    def rerank(self, query: str, texts: Sequence[str], *, raw_scores: bool = False, truncate: bool | str = False,
               timeout: float | None = None) -> list[Ranked]:
        """Returns text inputs sorted by how well they match the query, best first.

        The model must be a cross-encoder with a tokenizer.json beside its file.

        query: the text that each of `texts` is compared with.
        texts: the text inputs, a list of `str`.
        raw_scores: whether scores are the model's logits. False: scores between 0 and 1.
        truncate, timeout: as for `embed()`.
        """
        return self._texts.rerank(query, texts, raw_scores, truncate, timeout)

    def complete(self, texts: str | Sequence[str], *, timeout: float | None = None, **parameters: Any) -> Any:
        """Generates the text that follows a prompt, and returns it as a Completion.

        The model must generate tokens and have a tokenizer.json beside its file. The first call starts the tokenizer in
        separate processes.

        texts: one prompt, or a list of prompts. A list returns a list; its requests share every step.
        timeout: seconds until the call raises DeadlineExceeded. None: no timeout.
        parameters: max_tokens, temperature, top_p, seed, stop (a text or a list), logprobs and the others of
            docs/guides/language-models.md. If `n` is given, each prompt's answer is a list of n Completions.
        """
        return self._texts.complete(texts, timeout, parameters)

    def stream_text(self, text: str, *, timeout: float | None = None, **parameters: Any) -> TextStream:
        """Generates text for one prompt as `complete()` does. Returns an iterator over its pieces, as they are made."""
        return self._texts.stream(text, timeout, parameters)

    def close(self) -> None:
        """Unloads the model after its requests have ended. It cannot be called again.

        A model is also unloaded when the last reference to it is dropped.
        """
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
    """An iterator over the parts of one answer, returned by `Model.stream()`.

    It ends after the last part. Its request is cancelled if the stream is closed, its `with` block ends, or the last
    reference is dropped. Not thread-safe.
    """

    def __init__(self, model: Model, inputs: dict[str, Any], timeout: float | None,
                 outputs: Sequence[str] | None) -> None:
        self._model = model
        self._outputs = outputs
        super().__init__(lambda ended, came: model._core.start(inputs, timeout, _wanted(outputs), ended, came), Part)

    def result(self) -> Any:
        """Waits for the whole answer and returns it as a call of the model does.

        The iterator then has no more parts.
        """
        return self._model._answer(self._whole(), self._outputs)


class _Future(concurrent.futures.Future):
    """A future whose cancellation reaches the engine."""

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
        # Only the future's owner cancels a request, and the future is marked as cancelled before.
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


# One thread per process handles the events of engine threads, so that these never wait for the interpreter's lock.

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
    """Resets the state after fork(): a child has no engine threads, but may load models of its own."""
    global _lock, _engines, _events, _shared
    _lock = threading.Lock()
    _inherited.append((_engines, _shared))  # kept for ever: its threads do not exist here
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
    """Loads a model and returns it. Ctrl-C stops the load.

        model = chairlift.load("model.onnx")
        model = chairlift.load("models/minilm", max_batch_tokens=4096)

    path: an ONNX file, a model's folder, the folder of one version, or a Python model. A Python model is a function, a
        class, or "my.py:predict"; it runs in worker processes.
    allow_plugins: whether to run code from the model's folder: a plugin, or the function that its model.yaml names.
    settings: settings of a model.yaml, by name (docs/reference/repositories.md). They override those of the folder.

    Raises NotFound if the path does not exist, and InvalidArgument if the file or a setting is not valid. Raises
    Unimplemented if the model uses an operator that Chairlift lacks.
    """
    return _engine().load(path, allow_plugins=allow_plugins, **settings)


def load_repository(path: str | os.PathLike[str], *, allow_plugins: bool = False, **settings: Any) -> dict[str, Model]:
    """Loads every model of a repository as `chairlift serve` does, and returns the models by name.

    Each model is loaded in its latest version. Python models and pipelines are loaded too. A model that fails to load
    is left out with a warning. If every model fails, the first error is raised.

    path: the folder that holds the models' folders.
    allow_plugins: as for `load()`.
    settings: settings for all models. They override those of the folders.

    Raises NotFound if the folder has no models.
    """
    return _engine().load_repository(path, allow_plugins=allow_plugins, **settings)
