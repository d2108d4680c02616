"""Text inputs and outputs of a model that has a tokenizer.json beside its file."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ._errors import InvalidArgument
from ._parts import Parts

if TYPE_CHECKING:
    from . import _core


class Ranked(NamedTuple):
    """A text and its score, from `Model.rerank()`."""

    index: int
    """The text's index in the list that was passed."""
    score: float
    text: str


class Token(NamedTuple):
    """A token of a completion, if `logprobs` were requested."""

    text: str
    """The text that the token adds. It is empty for a special token or an incomplete character."""
    logprob: float
    likely: dict[str, float]
    """The log probabilities of the most likely tokens at this position, by text. A token without text has its name."""


class Completion(NamedTuple):
    """The text that a model generated, from `Model.complete()`."""

    text: str
    finish_reason: str
    """"stop": the model generated an end token or a stop string. "length": the maximum length was reached."""
    num_prompt_tokens: int
    num_tokens: int
    tokens: list[Token] | None
    """The tokens of the text if `logprobs` was requested, else None."""


# Inputs of <name>/complete that a caller must not set.
NOT_PARAMETERS = ("text_input", "options", "exclude_input_in_output", "stream")


class Texts:
    """Calls the models <name>/embed, <name>/rerank and <name>/complete (docs/guides/embeddings.md). Thread-safe."""

    def __init__(self, model: _core.Model) -> None:
        self._model = model
        self._lock = threading.Lock()
        self._pipeline: _core.Model | None = None
        self._call = ""

    def _loaded(self, call: str) -> _core.Model:
        """Returns the pipeline for `call`, the name of a method of Model. Raises InvalidArgument if it has another."""
        gives = {"embed": "embeddings", "rerank": "scores of pairs", "complete": "generated text"}
        with self._lock:
            if self._pipeline is None:
                self._pipeline = self._model.texts()
                inputs = [spec[0] for spec in self._pipeline.inputs]
                self._call = "complete" if "text_input" in inputs else "rerank" if "pair" in inputs else "embed"
        if call != self._call:
            raise InvalidArgument(f"model '{self._model.name}' gives {gives[self._call]}, not {gives[call]}: "
                                  f"call {self._call}()")
        return self._pipeline

    def embed(self, texts: str | Sequence[str], normalize: bool | None, truncate: bool | str,
              prompt_name: str | None, timeout: float | None) -> np.ndarray:
        pipeline = self._loaded("embed")
        single = isinstance(texts, str)
        given = _checked([texts] if single else texts)
        output = "embedding" if normalize is None else "pooled"
        if not given:
            size = next(spec[2][1] for spec in pipeline.outputs if spec[0] == output)
            return np.empty((0, size or 0), np.float32)
        options = _options(len(given), truncate)
        if prompt_name is not None:
            if not isinstance(prompt_name, str) or not prompt_name or "\0" in prompt_name:
                raise InvalidArgument(f"prompt_name is {prompt_name!r:.80}; it must be the name of a prompt")
            options[:, 1] = 3
            given = [f"{prompt_name}\0{text}" for text in given]
        vectors = pipeline.infer({"text": given, "options": options}, timeout, [output])[output]
        if normalize:
            lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
            vectors = (vectors / np.where(lengths > 0, lengths, 1)).astype(np.float32)
        return vectors[0] if single else vectors

    def rerank(self, query: str, texts: Sequence[str], raw_scores: bool, truncate: bool | str,
               timeout: float | None) -> list[Ranked]:
        pipeline = self._loaded("rerank")
        given = _checked(texts)
        if not given:
            return []
        inputs = {"text": _checked([query]) * len(given), "pair": given, "options": _options(len(given), truncate)}
        scores = pipeline.infer(inputs, timeout, ["logits"])["logits"][:, 0].astype(np.float64)
        if not raw_scores:
            with np.errstate(over="ignore"):
                scores = 1 / (1 + np.exp(-scores))
        return [Ranked(int(i), float(scores[i]), given[i]) for i in np.argsort(-scores, kind="stable")]

    def complete(self, texts: str | Sequence[str], timeout: float | None, parameters: dict[str, Any]) -> Any:
        pipeline = self._loaded("complete")
        if isinstance(texts, str):
            return _completions(pipeline.infer(_completed(texts, parameters), timeout, None), "n" in parameters)
        rows = [_completed(text, parameters) for text in _checked(texts)]
        return [_completions(arrays, "n" in parameters) for arrays in pipeline.infer_many(rows, timeout, None)]

    def stream(self, text: str, timeout: float | None, parameters: dict[str, Any]) -> TextStream:
        pipeline = self._loaded("complete")
        if "n" in parameters:
            raise InvalidArgument("a stream is of one answer: leave n out, or call complete()")
        return TextStream(pipeline, _completed(*_checked([text]), parameters), timeout)


class TextStream(Parts[str]):
    """Iterates over the pieces of a generated text, from `Model.stream_text()`. `result()` returns the whole text. `close()`,
    the end of a `with` block and garbage collection cancel the request. Not thread-safe."""

    def __init__(self, pipeline: _core.Model, inputs: dict[str, Any], timeout: float | None) -> None:
        super().__init__(lambda ended, came: pipeline.start(inputs, timeout, None, ended, came),
                         lambda row, first, arrays: arrays["text_output"][0].decode() or None)

    def result(self) -> Completion:
        """The whole text. Pieces that were not read yet are skipped."""
        return _completions(self._whole(), False)


def _completed(text: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Returns the inputs of the pipeline <name>/complete for one prompt."""
    for name in NOT_PARAMETERS:
        if name in parameters:
            raise InvalidArgument(f"there is no parameter '{name}'; docs/guides/language-models.md and docs/guides/embeddings.md list them")
    inputs = {name: value for name, value in parameters.items() if value is not None}
    if isinstance(inputs.get("stop"), str):
        inputs["stop"] = [inputs["stop"]]
    return {"text_input": [text], **inputs}


def _completions(arrays: dict[str, np.ndarray], several: bool) -> Any:
    """Returns the Completions of an answer's rows: a list if `several`, else the only one."""
    found = [Completion(text.decode(), arrays["finish_reason"][i].decode(), int(arrays["num_prompt_tokens"][0]),
                        int(arrays["num_tokens"][i]), _tokens(arrays, i) if "tokens" in arrays else None)
             for i, text in enumerate(arrays["text_output"])]
    return found if several else found[0]


def _tokens(arrays: dict[str, np.ndarray], row: int) -> list[Token]:
    tokens = []
    for i in range(int((arrays["text_offset"][row] >= 0).sum())):
        likely: dict[str, float] = {}
        if "top_tokens" in arrays:
            for name, logprob in zip(arrays["top_tokens"][row, i], arrays["top_logprobs"][row, i]):
                if name:
                    likely.setdefault(name.decode(), float(logprob))
        tokens.append(Token(arrays["tokens"][row, i].decode(), float(arrays["token_logprobs"][row, i]), likely))
    return tokens


def _checked(texts: Sequence[str]) -> list[str]:
    if isinstance(texts, (str, bytes)) or not isinstance(texts, Iterable):
        raise InvalidArgument(f"{texts!r:.80} is not text; give a str, or a list of str")
    given = list(texts)
    for i, text in enumerate(given):
        if not isinstance(text, str):
            raise InvalidArgument(f"text {i} is {text!r:.80}; it must be a str")
    return given


def _options(rows: int, truncate: bool | str) -> np.ndarray:
    """Returns the input `options` of _tokenizer.py, int64 [rows, 2]: which tokens to drop, and the kind of the row."""
    ways = {False: 0, True: 3, "right": 1, "left": 2}
    if truncate not in ways:
        raise InvalidArgument(f"truncate is {truncate!r}; it must be False, True, 'right' or 'left'")
    return np.tile(np.array([ways[truncate], 0], np.int64), (rows, 1))
