"""An answer that arrives in parts while it is computed."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

P = TypeVar("P")
S = TypeVar("S", bound="Parts[Any]")
Arrays = dict[str, np.ndarray]


class Parts(Iterator[P]):
    """Iterates over the parts of an answer. `close()`, the end of a `with` block and garbage collection cancel the
    request. Not thread-safe."""

    def __init__(self, start: Callable[[Callable[..., None], Callable[..., None]], Any],
                 part: Callable[[int, int, Arrays], P | None]) -> None:
        """start(ended, came): sends the request. It must call ended(arrays, error) once, and came(row, first, arrays) for
            each part before.
        part(row, first, arrays): returns the item to iterate over, or None to skip this part."""
        self._coming: queue.SimpleQueue[tuple[P | None, int, tuple[Arrays | None, Exception | None] | None]] = queue.SimpleQueue()
        self._end: tuple[Arrays | None, Exception | None] | None = None
        coming = self._coming  # the callbacks must not keep `self` alive

        def came(row: int, first: int, arrays: Arrays) -> None:
            coming.put((part(row, first, arrays), sum(array.nbytes for array in arrays.values()), None))

        self._request = start(lambda arrays, error: coming.put((None, 0, (arrays, error))), came)

    def __next__(self) -> P:
        while self._end is None:
            one, size, self._end = self._coming.get()
            self._request.read(size)  # generation pauses while many bytes are unread
            if one is not None:
                return one
            if self._end is not None and self._end[1] is not None:
                raise self._end[1]
        raise StopIteration

    def _whole(self) -> Arrays:
        """The whole answer. Parts that were not read yet are skipped."""
        for _ in self:
            pass
        assert self._end is not None
        arrays, error = self._end
        if error is not None:
            raise error
        assert arrays is not None
        return arrays

    def close(self) -> None:
        self._request.cancel()

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_request"):
            self._request.cancel()
