"""The exceptions of this package, one for each kind of failure."""

from __future__ import annotations


class Error(Exception):
    """Base class of this package's exceptions. The message says what is wrong and what would work."""


class InvalidArgument(Error, ValueError):
    """The request, the model or a setting is wrong. The same request will fail again."""


class OutOfRange(Error, ValueError):
    """The request needs more memory than the engine's memory budget allows."""


class NotFound(Error, LookupError):
    """There is no model, file or name like this."""


class Unimplemented(Error, NotImplementedError):
    """The model uses a part of ONNX that Chairlift cannot run. The message names it."""


class ResourceExhausted(Error):
    """A queue or another limit is full. The same request may succeed later."""


class DeadlineExceeded(Error, TimeoutError):
    """The timeout of the request passed before the answer was computed."""


class Cancelled(Error):
    """The request was cancelled."""


class Unavailable(Error):
    """The model or engine is closed, or the worker of a Python model ended. The request may succeed later."""


class Internal(Error, RuntimeError):
    """A Python model raised an exception, or Chairlift has a defect."""


_CLASSES = {
    "INVALID_ARGUMENT": InvalidArgument,
    "OUT_OF_RANGE": OutOfRange,
    "NOT_FOUND": NotFound,
    "UNIMPLEMENTED": Unimplemented,
    "RESOURCE_EXHAUSTED": ResourceExhausted,
    "DEADLINE_EXCEEDED": DeadlineExceeded,
    "CANCELLED": Cancelled,
    "UNAVAILABLE": Unavailable,
    "INTERNAL": Internal,
}

for _class in (Error, *_CLASSES.values()):
    _class.__module__ = "chairlift"  # the name that users import, in tracebacks too


def error_of(code: str, message: str) -> Error:
    return _CLASSES.get(code, Error)(message)
