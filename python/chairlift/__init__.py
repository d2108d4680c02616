"""Run ONNX models in this process. Calls from several threads and tasks share batches, without padding.

    import chairlift
    model = chairlift.load("model.onnx")
    y = model(x=array)
"""

from typing import Any as _Any

from ._core import version as __version__
from ._cells import cell, load_cells
from ._errors import (Cancelled, DeadlineExceeded, Error, Internal, InvalidArgument, NotFound, OutOfRange,
                      ResourceExhausted, Unavailable, Unimplemented)
from ._model import Engine, Model, Part, Stream, TensorSpec, load, load_repository
from ._program import Server, inspect, serve
from ._texts import Completion, Ranked, TextStream, Token
from ._torch import from_torch
from ._worker_call import Ragged, infer

__all__ = [
    "Cancelled", "Completion", "DeadlineExceeded", "Engine", "Error", "Internal", "InvalidArgument", "Model", "NotFound",
    "OutOfRange", "Part", "Ragged", "Ranked", "ResourceExhausted", "Server", "Stream", "TensorSpec", "TextStream", "Token",
    "Unavailable", "Unimplemented", "cell", "from_torch", "infer", "inspect", "load", "load_cells", "load_repository",
    "serve",
]

# Names that users of other libraries look for.
_ELSEWHERE = {"InferenceSession": "chairlift.load(\"model.onnx\") loads a model", "Session": "chairlift.load(\"model.onnx\") loads a model",
              "run": "chairlift.load(\"model.onnx\")(x=array) runs a model", "Client": "`chairlift.Server` is a server; any HTTP client asks it"}


def __getattr__(name: str) -> _Any:
    import difflib

    near = difflib.get_close_matches(name, __all__, 1)
    hint = _ELSEWHERE.get(name) or (f"did you mean '{near[0]}'?" if near else "")
    raise AttributeError(f"chairlift has no '{name}'" + (f"; {hint}" if hint else ""), name=name)
