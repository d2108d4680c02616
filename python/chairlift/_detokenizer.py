"""The detokenizer of generative models: turns tokens into text by a tokenizer.json.

The server runs it as a Python model in a worker process. The interpreter needs numpy and the package `tokenizers`.

    ids [rows, length]       tokens: `known` ones whose text was already returned, then new ones. If `likely` >= 0, the
                             alternatives follow: `likely` tokens for each new one
    options [rows, 3]        `known`; 1 if the answer ends with the new tokens, else 0; `likely`, or -1 for no names
    text [rows]              the text that the new tokens add, UTF-8. Empty while its last character is incomplete. If
                             `likely` >= 0, the names of the alternatives follow
    lengths [rows, length]   if `likely` >= 0: for each token, the number of bytes that it adds to `text`

A special token has no text, but a name. If a token's text is complete only with another token, its name is the entry in
the vocabulary.
"""

import os
import typing

import numpy as np

from _limits import limit_memory
from chairlift import InvalidArgument, Ragged

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # all cores are needed for the model
try:
    import _tokenizer_files
except ImportError as error:
    import sys
    raise ImportError(f"{sys.executable} has no package tokenizers ({error}), which text inputs need: `pip install tokenizers` "
                      "there, or have CHAIRLIFT_PYTHON name an interpreter that has it") from error

INCOMPLETE = "\ufffd"  # the decoder's text for an incomplete character
LOAD_BYTES, RUN_BYTES = 4 << 30, 1 << 30  # limits on memory during load and run
MAX_HELD_TOKENS = 64  # tokens that may wait for a complete character, as in the server


class Texts:
    """The Python model. `argument` is the path of tokenizer.json."""

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
        plain = []  # (index, tokens, known, last) of rows without names
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
            texts = [""] * len(texts)  # waits for the rest of the character
        return texts + names

    def name(self, context, token):
        before, text = self.tokenizer.decode_batch([context, context + [token]], skip_special_tokens=False)
        if before.endswith(INCOMPLETE) or text.endswith(INCOMPLETE) or len(text) <= len(before):
            return self.tokenizer.id_to_token(token) or f"<{token}>"
        return text[len(before):]
