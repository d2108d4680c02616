"""The last step of models that generate texts: a tokenizer.json as a function from tokens to text, which the server runs in
a worker process. Its interpreter needs numpy and the package `tokenizers`.

    ids [rows, length]       tokens in a row: some whose text is out already, then new ones; then, for each of these, as
                             many that might have been in its place
    options [rows, 3]        how many are the first; whether the new ones are the last (1) or more may follow (0); how many
                             might be in the place of each, or -1
    text [rows]              what the new ones add to the text: UTF-8, empty while its last character is not complete. Unless
                             the last option is -1, behind it the names of those that might have been
    lengths [rows, length]   unless that is -1, by token: bytes of what it adds to `text`

Special tokens have no text, but names. A token whose text is complete with another only is named as in the vocabulary.
"""

import os
import typing

import numpy as np

from _limits import limit_memory
from chairlift import InvalidArgument, Ragged

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processor's cores compute the model
try:
    import _tokenizer_files
except ImportError as error:
    import sys
    raise ImportError(f"{sys.executable} has no package tokenizers ({error}), which text inputs need: `pip install tokenizers` "
                      "there, or have CHAIRLIFT_PYTHON name an interpreter that has it") from error

INCOMPLETE = "\ufffd"  # what bytes of an incomplete character become
LOAD_BYTES, RUN_BYTES = 4 << 30, 1 << 30  # of memory
MAX_HELD_TOKENS = 64  # that may wait for a character to be complete, as in the server


class Texts:
    """`argument`: the path of tokenizer.json."""

    def __init__(self, argument):
        limit_memory(LOAD_BYTES)
        self.tokenizer, config = _tokenizer_files.load(argument)
        limit_memory(RUN_BYTES)
        if config.get("clean_up_tokenization_spaces") is True:
            print("tokenizer_config.json: clean_up_tokenization_spaces has no effect: texts are as the tokenizer's decoder "
                  "gives them")

    def predict(self, ids: typing.Annotated[Ragged, np.int64],
                options: typing.Annotated[np.ndarray, np.int64, (None, 3)]) -> tuple[
                    typing.Annotated[list[str], "text"], typing.Annotated[Ragged, np.int64, "lengths"]]:
        said, lengths = [], np.zeros(len(ids.values), np.int64)
        plain = []  # rows, and how many of their tokens are known
        for (known, last, likely), begin, end in zip(options.tolist(), ids.offsets[:-1].tolist(), ids.offsets[1:].tolist()):
            row = ids.values[begin:end].tolist()
            new = (len(row) - known) // (1 + max(likely, 0))
            if known < 0 or new < 0 or likely < -1 or known + new * (1 + max(likely, 0)) != len(row):
                raise InvalidArgument(f"{len(row)} tokens are not {known} and new ones with {likely} for each")
            if row and min(row) < 0:
                raise InvalidArgument("tokens are 0 or more")
            if likely < 0:
                plain.append((len(said), row, known, last))
                said.append("")
            else:
                pieces = self.pieces(row[:known + new], known, row[known + new:], likely, last)
                lengths[begin + known:end] = [len(piece.encode()) for piece in pieces]
                said.append("".join(pieces))
        texts = self.tokenizer.decode_batch([part for _, row, known, _ in plain for part in (row[:known], row)],
                                            skip_special_tokens=True)
        for (i, _, _, last), before, text in zip(plain, texts[::2], texts[1::2]):
            if text.endswith(INCOMPLETE) and not last:
                text = before
            said[i] = text[len(before):]
        return said, Ragged(lengths, ids.offsets)

    def pieces(self, row, known, candidates, likely, last):
        """The text that each token of `row` from `known` on adds, then the names of the candidates."""
        texts, names = [], []
        window, read, before = 0, known, self.tokenizer.decode(row[:known], skip_special_tokens=True)
        for i in range(known, len(row)):
            text = self.tokenizer.decode(row[window:i + 1], skip_special_tokens=True)
            complete = len(text) > len(before) and not text.endswith(INCOMPLETE)
            whole = complete or i - read >= MAX_HELD_TOKENS
            piece = text[len(before):] if whole or (last and i + 1 == len(row)) else ""
            of_row = candidates[(i - known) * likely:][:likely]
            names += [piece if piece and token == row[i] else self.name(row[window:i], token) for token in of_row]
            texts.append(piece)
            if whole:
                window, read = read, i + 1
                before = self.tokenizer.decode(row[window:read], skip_special_tokens=True)
        if not last and self.tokenizer.decode(row[window:], skip_special_tokens=True).endswith(INCOMPLETE):
            texts = [""] * len(texts)  # until the rest comes
        return texts + names

    def name(self, context, token):
        before, text = self.tokenizer.decode_batch([context, context + [token]], skip_special_tokens=False)
        if before.endswith(INCOMPLETE) or text.endswith(INCOMPLETE) or len(text) <= len(before):
            return self.tokenizer.id_to_token(token) or f"<{token}>"
        return text[len(before):]
