"""What a model does with texts, where a tokenizer.json lies beside its file."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ._errors import InvalidArgument

if TYPE_CHECKING:
    from . import _core


class Ranked(NamedTuple):
    """A text of `Model.rerank()`."""

    index: int
    """Its place among the texts that were given."""
    score: float
    text: str


class Texts:
    """Thread-safe; asks what the server has as <name>/embed or <name>/rerank (docs/texts.md)."""

    def __init__(self, model: _core.Model) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._pipeline: _core.Model | None = None
        self._pairs = False

    def _loaded(self, pairs: bool) -> _core.Model:
        with self._lock:
            if self._pipeline is None:
                self._pipeline = self._model.texts()
                self._pairs = "pair" in (spec[0] for spec in self._pipeline.inputs)
        if self._pairs and not pairs:
            raise InvalidArgument(f"model '{self._model.name}' gives scores of pairs of texts, and no vectors: "
                                  "call rerank()")
        if pairs and not self._pairs:
            raise InvalidArgument(f"model '{self._model.name}' gives vectors of texts, and no scores of pairs: "
                                  "call embed()")
        return self._pipeline

    def embed(self, texts: str | Sequence[str], normalize: bool | None, truncate: bool | str,
              timeout: float | None) -> np.ndarray:
        pipeline = self._loaded(pairs=False)
        single = isinstance(texts, str)
        given = _checked([texts] if single else texts)
        output = "embedding" if normalize is None else "pooled"
        if not given:
            size = next(spec[2][1] for spec in pipeline.outputs if spec[0] == output)
            return np.empty((0, size or 0), np.float32)
        vectors = pipeline.infer({"text": given, "options": _options(len(given), truncate)}, timeout, [output])[output]
        if normalize:
            lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
            vectors = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        return vectors[0] if single else vectors

    def rerank(self, query: str, texts: Sequence[str], raw_scores: bool, truncate: bool | str,
               timeout: float | None) -> list[Ranked]:
        pipeline = self._loaded(pairs=True)
        given = _checked(texts)
        if not given:
            return []
        inputs = {"text": _checked([query]) * len(given), "pair": given, "options": _options(len(given), truncate)}
        scores = pipeline.infer(inputs, timeout, ["logits"])["logits"][:, 0].astype(np.float64)
        if not raw_scores:
            with np.errstate(over="ignore"):
                scores = 1 / (1 + np.exp(-scores))
        return [Ranked(int(i), float(scores[i]), given[i]) for i in np.argsort(-scores, kind="stable")]


def _checked(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, (str, bytes)):
        raise InvalidArgument(f"texts is {texts!r:.80}; it must be a list of texts")
    given = list(texts)
    for i, text in enumerate(given):
        if not isinstance(text, str):
            raise InvalidArgument(f"text {i} is {text!r:.80}; it must be a str")
    return given


def _options(rows: int, truncate: bool | str) -> np.ndarray:
    """What _tokenizer.py takes: of each row, what is dropped, and that it is a text."""
    ways = {False: 0, True: 1, "right": 1, "left": 2}
    if truncate not in ways:
        raise InvalidArgument(f"truncate is {truncate!r}; it must be False, True, 'right' or 'left'")
    return np.tile(np.array([ways[truncate], 0], np.int64), (rows, 1))
