"""Converts inputs that the engine cannot borrow: to contiguous arrays in native byte order. Refuses other values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ._errors import InvalidArgument, Unimplemented

MAX_BYTES = 1 << 36  # of one input
TYPES = frozenset(
    "float32 float64 float16 int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool bfloat16".split())


def _is_array(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return hasattr(value, "__dlpack__") and not isinstance(value, np.generic) and getattr(value, "ndim", 1) > 0


def is_ragged(inputs: Mapping[str, Any]) -> bool:
    """Whether an input is a list of arrays."""
    for value in inputs.values():
        if isinstance(value, (list, tuple)) and any(map(_is_array, value)):
            return True
    return False


def rows_of(inputs: Mapping[str, Any], ranks: Mapping[str, int]) -> tuple[list[dict[str, Any]], bool]:
    """Returns the inputs of each row of a ragged batch, and whether the rows had no batch axis (they have one now).

    ranks: number of dimensions of the model's inputs, by name.
    """
    lists = {name: value for name, value in inputs.items() if isinstance(value, (list, tuple)) and any(map(_is_array, value))}
    first = next(iter(lists))
    count, single = len(lists[first]), None
    rows: list[dict[str, Any]] = [dict(inputs) for _ in range(count)]
    for name, values in lists.items():
        if len(values) != count:
            raise InvalidArgument(f"input '{name}' is a list of {len(values)} arrays, input '{first}' of {count}")
        rank = ranks.get(name)
        if rank == 0:  # any shape: each array is a row
            rank = 1 + max(getattr(value, "ndim", 0) for value in values)
        if rank is None:
            raise InvalidArgument(f"there is no input '{name}'; the model's are: {', '.join(ranks)}")
        for row, value in zip(rows, values):
            array = value if isinstance(value, np.ndarray) else _natural(name, value)
            if array.ndim not in (rank - 1, rank) or single not in (None, array.ndim < rank):
                raise InvalidArgument(
                    f"input '{name}' is a list with an array of {array.ndim} dimensions; its arrays have {rank - 1}, a row "
                    f"each, or {rank}, a batch each, and all arrays of all inputs alike")
            single = array.ndim < rank
            row[name] = array[np.newaxis] if single else array
    return rows, bool(single)


def _natural(name: str, value: Any) -> np.ndarray:
    """The value as a numpy array, copied only if needed."""
    foreign = not isinstance(value, (np.ndarray, np.generic)) and hasattr(value, "__dlpack__")
    try:
        return np.from_dlpack(value) if foreign else np.asarray(value)
    except (BufferError, RuntimeError) as error:
        raise InvalidArgument(
            f"input '{name}' is a {type(value).__name__} that numpy cannot read in place ({error}); it takes arrays in "
            "the host's memory") from None
    except (ValueError, TypeError) as error:
        raise InvalidArgument(
            f"input '{name}' cannot be made an array ({error}); it takes an array, numbers nested in lists of equal "
            "lengths, or, of rows of different lengths, a list of arrays") from None


def _check(name: str, array: np.ndarray, wanted: str | None) -> None:
    right = f"it takes {wanted}" if wanted else f"these are taken: {', '.join(sorted(TYPES))}"
    if array.dtype.kind == "O":
        raise InvalidArgument(f"input '{name}' has elements that are Python objects; {right}")
    if array.dtype.kind in "USaT":
        raise InvalidArgument(f"input '{name}' is text; {right}")
    if array.dtype.name not in TYPES:
        raise InvalidArgument(f"input '{name}' has elements of type {array.dtype.name}; {right}")
    if array.nbytes > MAX_BYTES:
        raise InvalidArgument(f"input '{name}' has {array.nbytes} bytes; the limit is {MAX_BYTES}")


def _converts(have: np.dtype, want: np.dtype) -> bool:
    """Whether Python numbers, as numpy reads them, may be converted to this element type."""
    if have.kind in "iu":
        return want.kind in "iuf" or want.name == "bfloat16"
    return have.kind == want.kind or have.kind == "f" and want.name == "bfloat16"


def plain(name: str, value: Any, wanted: str | None) -> tuple[np.ndarray, bool]:
    """Returns a contiguous array, and whether its uint16 elements are bfloat16.

    An array keeps its type. Python numbers, and lists of them, get `wanted`, the type of the model's input.
    """
    array = _natural(name, value)
    typed = isinstance(value, memoryview) or any(
        hasattr(value, protocol) for protocol in ("dtype", "__array_interface__", "__dlpack__"))
    if not typed and wanted is not None and array.dtype.kind in "biuf":
        want = _dtype(wanted)
        if array.size == 0 or _converts(array.dtype, want):
            try:
                array = np.asarray(value, dtype=want)
            except OverflowError as error:
                raise InvalidArgument(f"input '{name}': {error}") from None
    _check(name, array, wanted)
    if array.dtype.name == "bfloat16":
        return np.require(array, requirements="CA").view(np.uint16), True
    return np.require(array, dtype=array.dtype.newbyteorder("="), requirements="CA"), False


def _dtype(name: str) -> np.dtype:
    if name != "bfloat16":
        return np.dtype(name)
    try:
        import ml_dtypes
    except ImportError:
        raise Unimplemented("arrays of bfloat16 need the package ml_dtypes: pip install ml_dtypes") from None
    return np.dtype(ml_dtypes.bfloat16)


def bfloat16(bits: np.ndarray) -> np.ndarray:
    """Converts an array of bfloat16 bits."""
    return bits.view(_dtype("bfloat16"))


def texts(values: list[bytes], shape: list[int]) -> np.ndarray:
    """Converts text inputs to an array of bytes objects."""
    array = np.empty(len(values), object)
    array[:] = values
    return array.reshape(shape)
