"""The package's exceptions, one class for each kind of failure of the engine."""

from __future__ import annotations


class Error(Exception):
    """Base class of the package's exceptions. The message says what failed, why, and what would work."""


class InvalidArgument(Error, ValueError):
    """The request, the model or a setting is not valid. Do not retry without a change."""


class OutOfRange(Error, ValueError):
    """The request needs more than the engine's memory budget allows."""


class NotFound(Error, LookupError):
    """The model, the file or the name does not exist."""


class Unimplemented(Error, NotImplementedError):
    """The model uses a part of ONNX that Chairlift does not support. The message names it."""


class ResourceExhausted(Error):
    """A queue or another limit is full. The same request may succeed later."""


class DeadlineExceeded(Error, TimeoutError):
    """The request's timeout passed before its answer was computed."""


class Cancelled(Error):
    """The request was cancelled."""


class Unavailable(Error):
    """The model or engine is closed, or the worker of a Python model has ended. The request may succeed later."""


class Internal(Error, RuntimeError):
    """A Python model raised an exception, or Chairlift has a bug."""


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


def error_of(code: str, message: str) -> Error:
    return _CLASSES.get(code, Error)(message)
