"""Calls a Python model: reads the types of its inputs and outputs, and turns batches into its arguments.

    def predict(x): ...                                   arrays, rows first; float32 by default
    def predict(x: NDArray[np.int64]) -> NDArray[np.float32]: ...
    def predict(x: Annotated[np.ndarray, np.int64, (None, 16)]): ...   type and shape; None: any length
    def predict(x: list[float]) -> list[int]: ...         lists of rows; list[list[float]]: rows that are lists
    def predict(x: Ragged) -> Ragged: ...                 rows of different lengths, packed: .values, .offsets
    def predict(text: list[str]) -> list[str]: ...        text inputs; list[bytes]: without decoding
    def predict(text: list[str]) -> Ragged: ...           no ragged input: the output has lengths of its own
    def predict(x): yield ...                             one step of each row's result; Iterator[NDArray[np.int64]]
    def predict(a, b): ...                                several inputs, by name
    def predict(inputs: dict) -> dict: ...                inputs and outputs by name; needs an example
    class Model: __init__, predict(batch), and optionally preprocess(item), postprocess(item), which may be annotated
                                                          with the types of an item: str, float, NDArray[np.uint8]

An example is the attribute `example` of the function, the class or the module. It is a value, or a function that
returns one. The model is called with it once, at load. Types that are not annotated come from this call.
"""

import collections.abc
import copy
import importlib.util
import inspect
import sys
import types
import typing

import numpy as np

NUMBERS = {float: "float32", int: "int64", bool: "bool"}
SERVED = {"float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
          "bool"}


def served(dtype, what):
    name = np.dtype(dtype).name
    if name not in SERVED:
        raise TypeError(f"{what} is of type {name}, which is not supported; these are: {', '.join(sorted(SERVED))}")
    return name


class Ragged(typing.NamedTuple):
    """Rows of different lengths, packed one after the other: row i is values[offsets[i]:offsets[i + 1]]."""

    values: np.ndarray
    offsets: np.ndarray


class InvalidArgument(ValueError):
    """Raise this if the request is wrong: it fails with this message and status 400."""


InvalidArgument.__module__ = "chairlift"


CALLER = COMPUTE = IS_CANCELLED = None  # set by the worker process


async def infer(model, inputs=None, *, timeout=None, **named):
    """Calls another model of the server, from an async Python model. Returns a dict of arrays by name.

    model: a name in `calls` of the Python model's model.yaml.
    inputs: arrays by name.
    timeout: seconds; the deadline of the request applies too.

    Raises TimeoutError, or RuntimeError with the message of the called model.
    """
    own = sys.modules.get("_chairlift_worker_call")
    if own is None or own.CALLER is None:
        raise RuntimeError("chairlift.infer() is for functions that a server runs; programs call models that they load: "
                           "chairlift.load(...).infer(...)")
    return await own.CALLER(model, {**(inputs or {}), **named}, timeout)


def offer_package():
    """Makes `import chairlift` work in Python models if the package is not installed."""
    if importlib.util.find_spec("chairlift") is None:
        module = types.ModuleType("chairlift")
        module.Ragged, module.InvalidArgument, module.infer = Ragged, InvalidArgument, infer
        sys.modules["chairlift"] = module


def is_ragged(annotation):
    return isinstance(annotation, type) and annotation.__name__ == "Ragged"


def identity(batch):
    return batch


class Value:
    """An input or output.

    dtype: element type. None: unknown.
    shape: dimensions, -1 for any length. None: any shape.
    lists: the form in the user's function. "": an array; "rows": a list of rows; "numbers": nested lists of numbers;
        "str", "bytes": a list of texts.
    ragged: the class Ragged, if the value is one.
    own: whether the lengths of its rows differ from those of the ragged inputs.
    """

    def __init__(self, name, dtype=None, shape=None, lists="", ragged=None):
        self.name, self.dtype, self.shape, self.lists, self.ragged = name, dtype, shape, lists, ragged
        self.own = False

    @property
    def text(self):
        return self.dtype == "bytes"

    def learn(self, array):
        """Sets the unknown properties from an example."""
        if self.dtype is None:
            self.dtype = served(array.dtype, f"'{self.name}'")
        if self.shape is None:
            self.shape = (-1,) * array.ndim

    def spec(self, streams=False):
        dtype = self.dtype or "float32"
        if streams:  # [rows, steps, ...]
            return self.name, dtype, self.shape and (-1, -1, *self.shape[1:]), 3
        return self.name, dtype, self.shape, 2 if self.own else 1 if self.ragged is not None else 0


def of_annotation(name, annotation):
    """Returns the values that an annotation describes. Returns None if it is a dictionary."""
    if annotation in (inspect.Parameter.empty, np.ndarray, typing.Any):
        return Value(name)
    if is_ragged(annotation):
        return Value(name, ragged=annotation)
    if annotation is list:
        return Value(name, lists="numbers")
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is dict or origin in (dict, collections.abc.Mapping):
        return None
    if origin is typing.Annotated:
        value = of_annotation(name, arguments[0])
        for said in arguments[1:]:
            if isinstance(said, tuple):
                value.shape = tuple(-1 if dimension is None else int(dimension) for dimension in said)
                if not value.shape or value.shape[0] != -1:
                    raise TypeError(f"the shape of '{name}' is {said}; its first dimension is the rows, None")
            elif isinstance(said, str):
                value.name = said
            else:
                value.dtype = served(said, f"'{name}'")
        return value
    if origin is np.ndarray:
        of = typing.get_args(arguments[1])
        known = of and isinstance(of[0], type) and issubclass(of[0], np.generic)
        return Value(name, served(of[0], f"'{name}'") if known else None)
    if origin in (list, collections.abc.Sequence):
        rank, item = 1, arguments[0]
        while typing.get_origin(item) in (list, collections.abc.Sequence):
            rank, item = rank + 1, typing.get_args(item)[0]
        if item in (str, bytes) and rank == 1:
            return Value(name, "bytes", (-1,), lists=item.__name__)
        if item in NUMBERS:
            return Value(name, NUMBERS[item], (-1,) * rank, lists="numbers")
        if item is np.ndarray or typing.get_origin(item) is np.ndarray:
            value = of_annotation(name, item)
            value.lists = "rows"
            return value
    if annotation in (str, bytes, *NUMBERS):
        kind = annotation.__name__
        raise TypeError(f"'{name}' is annotated with {kind}, but a function gets a batch of them: annotate list[{kind}]")
    raise TypeError(f"'{name}' is annotated with {annotation}; arrays, lists of numbers, of str or of arrays, and "
                    "dictionaries are served")


def of_item_annotation(name, annotation):
    """Returns the values that the annotation of one row describes, as of_annotation() does for a batch."""
    if annotation in (inspect.Parameter.empty, typing.Any):
        return Value(name)
    if typing.get_origin(annotation) is not typing.Annotated:
        return of_annotation(name, list[annotation])
    inner, *said = typing.get_args(annotation)
    value = of_item_annotation(name, inner)
    for one in said:
        if isinstance(one, tuple):
            value.shape = (-1, *(-1 if dimension is None else int(dimension) for dimension in one))
        elif isinstance(one, str):
            value.name = one
        else:
            value.dtype = served(one, f"'{name}'")
    return value


def is_annotated(function):
    signature = inspect.signature(function)
    return any(annotation is not inspect.Parameter.empty for annotation in
               [signature.return_annotation, *(one.annotation for one in signature.parameters.values())])


class Function:
    """A Python model. Call it with the inputs and rows of a batch; it returns the outputs.

    Inputs and outputs are in the order of `inputs` and `outputs`.

    parts: the methods that run in this process: "preprocess", "predict" and "postprocess" in turn, or one hook.
    """

    def __init__(self, found, name, module, parts, argument=""):
        self.before = self.after = None
        example = getattr(found, "example", getattr(module, "example", None))
        if parts[0] != "preprocess":  # the example is an input of preprocess()
            example = None
        described = None  # the function with predict's signature, if another one is called
        if "predict" not in parts:
            self.before = self.hook_of(found, name, parts[0], argument)
            described = found.predict
            if inspect.isfunction(described):
                described = types.MethodType(described, object())
            name = f"{name}.{parts[0]}"
            found = identity
        elif inspect.isclass(found):
            found = found(argument) if argument else found()
            self.before = getattr(found, "preprocess", None) if "preprocess" in parts else None
            self.after = getattr(found, "postprocess", None) if "postprocess" in parts else None
            if not callable(getattr(found, "predict", None)):
                raise TypeError(f"class '{name}' has no predict(batch)")
            found = found.predict
        if not callable(found):
            raise TypeError(f"'{name}' is not a function or a class: it is of type {type(found).__name__}")
        if inspect.isasyncgenfunction(found):
            raise TypeError(f"'{name}' is an async generator; generators and async functions are served, apart")
        self.is_async = inspect.iscoroutinefunction(found)
        self.streams = inspect.isgeneratorfunction(found)
        self.call = (lambda *batch: COMPUTE(found(*batch))) if self.is_async else found
        self.name = name
        self.read_types(described or found, parts)
        if example is not None:
            self.learn(example() if callable(example) else example)
        if self.values is None or self.results is None:
            raise TypeError(f"'{name}' takes or returns a dictionary: its names are known from an example only; give the "
                            f"function one ({name}.example = ...)")
        self.any_ragged = any(value.ragged for value in self.values)
        for value in self.results:
            value.own = value.text or (value.ragged is not None and not self.any_ragged)
        if self.streams and (self.after or any(value.own or value.ragged for value in self.results)):
            raise TypeError(f"'{name}' is a generator: it yields arrays of a step of each row, without texts, a Ragged or "
                            "postprocess(item)")
        self.inputs = [value.spec() for value in self.values]
        self.outputs = [value.spec(self.streams) for value in self.results]
        self.dtypes = [None if value.text else np.dtype(dtype)
                       for value, (_, dtype, _, _) in zip(self.results, self.outputs)]
        if self.any_ragged and (self.before or self.after or any(value.lists for value in self.values)):
            raise TypeError(f"'{name}' takes a Ragged beside lists or hooks of single items, which need rows")

    def read_types(self, predict, parts):
        """Reads the types of inputs and outputs from the annotations of predict() and the hooks."""
        of_items = self.before is not None and is_annotated(self.before)
        if of_items:
            self.read_inputs(self.before, True)
        elif parts[0] == "postprocess":
            self.read_results(predict, False)
            self.values, self.by_name = list(map(copy.copy, self.results)), False
        else:
            self.read_inputs(predict, False)
        if "predict" not in parts and of_items:
            self.read_results(self.before, True)
        elif parts == ["preprocess"]:
            self.results = list(map(copy.copy, self.values))
        else:
            of_items = self.after is not None and is_annotated(self.after)
            self.read_results(self.after if of_items else predict, of_items)

    @staticmethod
    def hook_of(found, name, hook, argument):
        if not inspect.isclass(found):
            raise TypeError(f"separate_hooks names '{hook}', and '{name}' is not a class")
        for method, takes in ((hook, "item"), ("predict", "batch")):
            if not callable(getattr(found, method, None)):
                raise TypeError(f"separate_hooks names '{hook}', and class '{name}' has no {method}({takes})")
        if not isinstance(inspect.getattr_static(found, hook), (staticmethod, classmethod)):
            found = found(argument) if argument else found()
        return getattr(found, hook)

    @staticmethod
    def signature_of(found):
        try:
            return inspect.signature(found, eval_str=True)
        except ValueError:  # a function written in C
            return inspect.Signature([inspect.Parameter("x", inspect.Parameter.POSITIONAL_ONLY)])

    def read_inputs(self, found, items):
        """Reads the inputs from the signature. `items`: its parameters are items of one row."""
        signature = self.signature_of(found)
        positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        parameters = [parameter for parameter in signature.parameters.values()
                      if parameter.default is inspect.Parameter.empty and parameter.kind in positional]
        named = [parameter.name for parameter in signature.parameters.values()
                 if parameter.default is inspect.Parameter.empty and parameter.kind is inspect.Parameter.KEYWORD_ONLY]
        if named:
            raise TypeError(f"'{self.name}' takes '{named[0]}' by name only, and inputs are given by their places: give it a "
                            "default, or put it before the *")
        if not parameters:
            raise TypeError(f"'{self.name}' takes no required argument: give it one, for the rows of a batch")
        of = of_item_annotation if items else of_annotation
        self.values = [of(parameter.name, parameter.annotation) for parameter in parameters]
        self.by_name = self.values[0] is None
        if None in self.values:
            if len(self.values) > 1:
                raise TypeError(f"'{self.name}' takes a dictionary beside other arguments; name them all, or take one "
                                "dictionary")
            self.values = None

    def read_results(self, found, items):
        returned = self.signature_of(found).return_annotation
        if items:
            self.results = [of_item_annotation("output", returned)]
            return
        if self.streams and typing.get_origin(returned) in (collections.abc.Iterator, collections.abc.Iterable,
                                                            collections.abc.Generator):
            returned = typing.get_args(returned)[0]
        if typing.get_origin(returned) is tuple:
            self.results = [of_annotation(f"output_{i}", part) for i, part in enumerate(typing.get_args(returned))]
            if None in self.results:
                raise TypeError(f"'{self.name}' returns a tuple with a dictionary; return one dictionary")
        else:
            only = of_annotation("output", returned)
            self.results = None if only is None else [only]

    def learn(self, example):
        """Sets unknown types from a call with the example."""
        if self.values is not None and any(value.ragged for value in self.values):
            raise TypeError(f"'{self.name}' takes a Ragged: annotate its types (Annotated[Ragged, np.int64]) in place of "
                            "an example")
        if self.values is not None and any(value.text for value in self.values):
            raise TypeError(f"'{self.name}' takes texts: annotate what it returns (-> NDArray[...]) in place of an example")
        if self.values is None:
            if not isinstance(example, dict):
                raise TypeError(f"the example of '{self.name}' must be a dictionary, as its argument")
            self.values = [Value(name) for name in example]
        if isinstance(example, dict):
            missing = [value.name for value in self.values if value.name not in example]
            if missing:
                raise TypeError(f"the example of '{self.name}' has no '{missing[0]}'")
            parts = [example[value.name] for value in self.values]
        else:
            parts = example if isinstance(example, tuple) else (example,)
        if len(parts) != len(self.values):
            raise TypeError(f"the example of '{self.name}' has {len(parts)} inputs; it takes {len(self.values)}")
        arrays = []
        for part, value in zip(parts, self.values):
            array = np.asarray(part, dtype=value.dtype)
            if array.dtype == np.float64 and not isinstance(part, (np.ndarray, np.generic)):
                array = array.astype(np.float32)  # a list of Python numbers
            value.learn(array)
            arrays.append(array)
        result = self.run(arrays)
        if self.streams:
            result = next(result)
        if isinstance(result, dict):
            self.results = [Value(name) for name in result]
            result = [result[value.name] for value in self.results]
        elif isinstance(result, tuple):
            if self.results is None or len(self.results) != len(result):
                self.results = [Value(f"output_{i}") for i in range(len(result))]
        else:
            result = [result]
        rows = arrays[0].shape[0]
        for part, value in zip(result, self.results):
            array = np.asarray(part, dtype=value.dtype)
            if array.dtype == np.float64 and not isinstance(part, (np.ndarray, np.generic)):
                array = array.astype(np.float32)
            if array.ndim == 0 or array.shape[0] != rows:
                raise ValueError(self.wrong_rows(value.name, array.shape, rows))
            value.learn(array)

    def run(self, arrays):
        """Runs the user's code, with the inputs in the form that it expects."""
        if self.before is not None:
            items = [self.before(*item) for item in zip(*map(self.of_item, self.values, arrays))]
            result = self.call(np.stack(items) if items and isinstance(items[0], (np.ndarray, np.generic)) else items)
        elif self.by_name:
            result = self.call({value.name: array for value, array in zip(self.values, arrays)})
        else:
            result = self.call(*map(self.of_item, self.values, arrays))
        if self.after is not None:
            result = [self.after(item) for item in result]
        return result

    @staticmethod
    def of_item(value, array):
        return array if value.text or not value.lists else list(array) if value.lists == "rows" else array.tolist()

    def __call__(self, arrays, rows):
        offsets = None
        arrays = self.take_texts(arrays)
        if self.any_ragged:
            offsets = arrays.pop()
            arrays = [value.ragged(array, offsets) if value.ragged else array for value, array in zip(self.values, arrays)]
        if self.streams:
            return self.steps(self.run(arrays), rows, offsets)
        return self.checked(self.run(arrays), rows, offsets)

    def steps(self, made, rows, offsets):
        try:
            for step in made:
                yield [array[:, None] for array in self.checked(step, rows, offsets)]
        finally:
            made.close()

    def no_steps(self, last):
        """Returns the outputs of a step with no rows, which marks the end of a stream."""
        if inspect.isgenerator(last):
            raise ValueError(f"'{self.name}' yielded nothing; it must yield a step of each row at least once")
        return [array[:, :0] for array in last]

    def checked(self, result, rows, offsets):
        """Returns the outputs in the form that the server expects, then the offsets of those with their own."""
        if isinstance(result, dict):
            missing = [value.name for value in self.results if value.name not in result]
            if missing:
                raise ValueError(f"'{self.name}' returned no '{missing[0]}'; it must return: "
                                 f"{', '.join(value.name for value in self.results)}")
            result = [result[value.name] for value in self.results]
        elif not isinstance(result, tuple) or is_ragged(type(result)):
            result = (result,)
        if len(result) != len(self.results):
            raise ValueError(f"'{self.name}' returned {len(result)} outputs; it must return {len(self.results)}")
        if any(part is None for part in result):
            raise TypeError(f"'{self.name}' returned None; it must return a result for each row")
        outputs = []
        own = []  # offsets
        for part, value, dtype in zip(result, self.results, self.dtypes):
            expected_rows = rows
            if value.text:
                part, ends = self.give_texts(part, value.name, rows)
                outputs.append(part)
                own.append(ends)
                continue
            if value.own:
                if not is_ragged(type(part)):
                    raise TypeError(f"'{self.name}' returned '{value.name}' as {type(part).__name__}; it must be a Ragged")
                ends = np.ascontiguousarray(part.offsets, np.int64)
                if ends.ndim != 1 or len(ends) != rows + 1:
                    raise ValueError(self.wrong_rows(value.name, (max(len(np.atleast_1d(ends)) - 1, 0),), rows))
                part = np.asarray(part.values)
                if ends[0] != 0 or ends[-1] != part.shape[0] or np.any(np.diff(ends) < 0):
                    raise ValueError(f"'{self.name}' returned '{value.name}' with offsets that do not divide its "
                                     f"{part.shape[0]} values into rows")
                own.append(ends)
                expected_rows = part.shape[0]
            elif value.ragged:
                expected_rows = int(offsets[-1])
                if is_ragged(type(part)):
                    if not np.array_equal(part.offsets, offsets):
                        raise ValueError(f"'{self.name}' returned '{value.name}' with other offsets than those it was given")
                    part = part.values
            if isinstance(part, (str, bytes)):
                raise TypeError(f"'{self.name}' returned text for '{value.name}', which is served as {dtype}: "
                                "annotate -> list[str], and return one for each row")
            array = part if isinstance(part, np.ndarray) else np.asarray(
                part, dtype=None if isinstance(part, np.generic) else dtype)
            if array.dtype != dtype:
                raise TypeError(f"'{self.name}' returned '{value.name}' of type {array.dtype}; it is served as {dtype}: "
                                "annotate the type that it returns (-> NDArray[...]), or give it an example")
            shape = array.shape
            if not shape or shape[0] != expected_rows:
                raise ValueError(self.wrong_rows(value.name, shape, expected_rows))
            if value.shape is not None and (
                    len(shape) != len(value.shape) or
                    any(known not in (-1, own) for known, own in zip(value.shape, shape))):
                expected = [rows] + ["any" if known < 0 else known for known in value.shape[1:]]
                raise ValueError(f"'{self.name}' returned '{value.name}' of shape {list(shape)}; it must be {expected}")
            outputs.append(array)
        return outputs + own

    def take_texts(self, arrays):
        """Replaces the bytes of text inputs by lists of texts. Their offsets follow the inputs."""
        count = len(self.values)
        texts = [i for i, value in enumerate(self.values) if value.text]
        if not texts:
            return arrays
        inputs, ends, rest = arrays[:count], arrays[count:count + len(texts)], arrays[count + len(texts):]
        for i, offsets in zip(texts, ends):
            data, offsets = inputs[i].tobytes(), offsets.tolist()
            inputs[i] = [data[begin:end] for begin, end in zip(offsets, offsets[1:])]
            if self.values[i].lists == "str":
                try:
                    inputs[i] = [text.decode() for text in inputs[i]]
                except UnicodeDecodeError as error:
                    raise InvalidArgument(f"input '{self.values[i].name}' is not UTF-8 ({error})") from None
        return inputs + rest

    def give_texts(self, texts, name, rows):
        if isinstance(texts, (str, bytes)) or not hasattr(texts, "__len__"):
            raise TypeError(f"'{self.name}' returned '{name}' as {type(texts).__name__}; it must be a list of str")
        if len(texts) != rows:
            raise ValueError(self.wrong_rows(name, (len(texts),), rows))
        encoded = []
        for text in texts:
            if not isinstance(text, (str, bytes)):
                raise TypeError(f"'{self.name}' returned a {type(text).__name__} in '{name}'; it must be a list of str")
            encoded.append(text.encode("utf-8", "replace") if isinstance(text, str) else text)
        ends = np.cumsum([0] + [len(text) for text in encoded], dtype=np.int64)
        return np.frombuffer(b"".join(encoded), np.uint8), ends

    def wrong_rows(self, output, shape, rows):
        got = f"{shape[0]} rows" if shape else "a single number"
        return f"'{self.name}' returned {got} of '{output}' for {rows} rows: a result for each row, in their order"
