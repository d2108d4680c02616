"""What the engine refuses or cannot do, as exceptions by the kind of failure."""

from __future__ import annotations


class Error(Exception):
    """Base class of all that this package raises of its own. The message says what was wrong and what would be right."""


class InvalidArgument(Error, ValueError):
    """The request, the model or a setting is wrong; sending it again will not help."""


class OutOfRange(Error, ValueError):
    """The request needs more than the engine's memory budget allows."""


class NotFound(Error, LookupError):
    """There is no such model, file or name."""


class Unimplemented(Error, NotImplementedError):
    """The model uses a part of ONNX that Chairlift cannot run; the message names it."""


class ResourceExhausted(Error):
    """A bounded queue or limit is full; the same request may succeed later."""


class DeadlineExceeded(Error, TimeoutError):
    """The request's timeout passed before its answer was computed."""


class Cancelled(Error):
    """The request was cancelled."""


class Unavailable(Error):
    """The model or engine is closed, or a function's worker has ended; the same request may succeed later."""


class Internal(Error, RuntimeError):
    """A user's function raised, or a defect of Chairlift."""


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
