"""Runs ONNX models, and batches below the request: callers share batches, and none is padded or waits for others.

    import chairlift
    model = chairlift.load("model.onnx")
    y = model(x=array)
"""

from ._errors import (Cancelled, DeadlineExceeded, Error, Internal, InvalidArgument, NotFound, OutOfRange,
                      ResourceExhausted, Unavailable, Unimplemented)
from ._model import Engine, Model, Part, Stream, TensorSpec, load, load_repository
from ._worker_call import Ragged

__all__ = [
    "Cancelled", "DeadlineExceeded", "Engine", "Error", "Internal", "InvalidArgument", "Model", "NotFound",
    "OutOfRange", "Part", "Ragged", "ResourceExhausted", "Stream", "TensorSpec", "Unavailable", "Unimplemented",
    "load", "load_repository",
]
