"""The last step of models that generate texts: a tokenizer.json as a function from tokens to text, which the server runs in
a worker process. Its interpreter needs numpy and the package `tokenizers`.

    ids [rows, length]       tokens in a row: some whose text is out already, then new ones
    options [rows, 2]        how many are the former; whether the new ones are the last (1) or more may follow (0)
    text [rows]              what the new ones add to the text: UTF-8, empty while its last character is not complete

Special tokens have no text.
"""

import os
import typing

import numpy as np

from chairlift import InvalidArgument, Ragged

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processor's cores compute the model
try:
    from tokenizers import Tokenizer
except ImportError as error:
    import sys
    raise ImportError(f"{sys.executable} has no package tokenizers ({error}), which texts need: `pip install tokenizers` "
                      "there, or have CHAIRLIFT_PYTHON name an interpreter that has it") from error

MAX_FILE_BYTES = 256 << 20
INCOMPLETE = "\ufffd"  # what bytes of an incomplete character become


class Texts:
    """`argument`: the path of tokenizer.json."""

    def __init__(self, argument):
        if os.path.getsize(argument) > MAX_FILE_BYTES:
            raise ValueError(f"{argument} has more than {MAX_FILE_BYTES} bytes")
        self.tokenizer = Tokenizer.from_file(argument)

    def predict(self, ids: typing.Annotated[Ragged, np.int64],
                options: typing.Annotated[np.ndarray, np.int64, (None, 2)]) -> typing.Annotated[list[str], "text"]:
        rows, said = [], []
        for (known, _), begin, end in zip(options.tolist(), ids.offsets[:-1].tolist(), ids.offsets[1:].tolist()):
            row = ids.values[begin:end].tolist()
            if not 0 <= known <= len(row):
                raise InvalidArgument(f"{known} tokens of {len(row)} cannot be known")
            if row and min(row) < 0:
                raise InvalidArgument("tokens are 0 or more")
            rows += [row[:known], row]
        texts = self.tokenizer.decode_batch(rows, skip_special_tokens=True)
        for (_, last), before, text in zip(options.tolist(), texts[::2], texts[1::2]):
            if text.endswith(INCOMPLETE) and not last:
                text = before
            said.append(text[len(before):])
        return said
