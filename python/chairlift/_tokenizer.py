"""The first step of models that take text: a tokenizer.json and the files beside it, as a function that the server runs
in a worker process. Its interpreter needs numpy and the package `tokenizers`.

    text [rows]              one text, or the first of two; or, as OPTIONS say, token ids: int32, little-endian; or, of models
                             that generate, the messages of a chat: JSON; or the name of a prompt, a zero byte, and a text
    pair [rows]              the second of two (`Pairs` only)
    options [rows, 2]        what to do with more tokens than the model takes: 0 refuse, 1 drop the last, 2 drop the first,
                             3 drop those that tokenizer_config.json says (truncation_side; the last if it says none);
                             what `text` is: 0 a text, 1 token ids, 2 messages, 3 a text with the name of its prompt
    input_ids, attention_mask, token_type_ids    of each row as many as it has tokens
    num_tokens [rows, 1]
"""

import json
import os
import typing

import numpy as np

import _chat
from _chat import read_json
from chairlift import InvalidArgument, Ragged

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processor's cores compute the model
try:
    import _tokenizer_files
except ImportError as error:
    import sys
    raise ImportError(f"{sys.executable} has no package tokenizers ({error}), which texts need: `pip install tokenizers` "
                      "there, or have CHAIRLIFT_PYTHON name an interpreter that has it") from error

MAX_TEXT_BYTES = 128 << 10
MOST_TOKENS = 1 << 20  # where no file says how many the model takes


def max_tokens(folder):
    """Of one row: the smallest number that the files beside the tokenizer name."""
    config = read_json(folder, "config.json")
    numbers = [read_json(folder, "sentence_bert_config.json").get("max_seq_length"),
               read_json(folder, "tokenizer_config.json").get("model_max_length")]
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and config.get("model_type") in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        positions -= config.get("pad_token_id", 1) + 1  # the first ones count from behind the padding's
    numbers.append(positions)
    return min([MOST_TOKENS] + [int(n) for n in numbers if isinstance(n, (int, float)) and 0 < n <= MOST_TOKENS])


def ragged(rows, dtype):
    ends = np.cumsum([0] + [len(row) for row in rows], dtype=np.int64)
    values = np.empty(ends[-1], dtype)
    for row, begin in zip(rows, ends):
        values[begin:begin + len(row)] = row
    return Ragged(values, ends)


class Texts:
    """`argument`: JSON of the path of tokenizer.json, of the element type of each output of tokens, and of what the files of
    sentence-transformers say."""

    def __init__(self, argument):
        said = json.loads(argument)
        folder = os.path.dirname(said["path"])
        self.tokenizer, config = _tokenizer_files.load(said["path"])
        self.side = "left" if config.get("truncation_side") == "left" else "right"
        self.prompts = _tokenizer_files.Prompts(said)
        self.tokenizer.no_padding()
        self.tokenizer.no_truncation()
        self.vocabulary = self.tokenizer.get_vocab_size(with_added_tokens=True)
        self.most = max_tokens(folder)
        if said["tokens"]:
            self.most = min(self.most, said["tokens"])
        self.dtypes = said["dtypes"]
        self.chats = _chat.Template(folder) if said["chats"] else None
        # What predict() gives, as the model takes it.
        parts = [typing.Annotated[Ragged, np.dtype(dtype), name] for name, dtype in self.dtypes.items()]
        parts.append(typing.Annotated[np.ndarray, np.int64, (None, 1), "num_tokens"])
        annotations = {"text": list[bytes], "options": typing.Annotated[np.ndarray, np.int64, (None, 2)],
                       "return": tuple[tuple(parts)]}
        if said["pairs"]:
            annotations["pair"] = list[bytes]

            def predict(text, pair, options):
                return self.run(text, pair, options)
        else:
            def predict(text, options):
                return self.run(text, None, options)
        predict.__annotations__ = annotations
        self.predict = predict

    def run(self, texts, pairs, options):
        options = options.tolist()
        rows = [None] * len(texts)
        to_encode = []
        for i, (text, (_, what)) in enumerate(zip(texts, options)):
            if what == 2 and self.chats is not None:
                rows[i] = self.of_messages(text)
            elif what in (1, 2):
                rows[i] = self.of_ids(text)
            else:
                name, text = text.split(b"\0", 1) if what == 3 and b"\0" in text else (None, text)
                text = self.prompts.applied(name and name.decode(errors="replace"), self.decoded(text))
                to_encode.append((i, text if pairs is None else (text, self.decoded(pairs[i]))))
        encodings = self.tokenizer.encode_batch([entry for _, entry in to_encode])
        for (i, entry), encoding in zip(to_encode, encodings):
            if len(encoding.ids) > self.most:
                encoding = self.shortened(entry, len(encoding.ids), options[i][0])
            rows[i] = encoding.ids, encoding.type_ids, len(encoding.ids)
        for row in rows:
            if not row[0]:
                raise InvalidArgument("the text has no tokens: it must have at least one")
        by_name = {
            "input_ids": [ids for ids, _, _ in rows],
            "attention_mask": [[1] * len(ids) for ids, _, _ in rows],
            "token_type_ids": [types for _, types, _ in rows],
        }
        numbers = np.array([[count] for _, _, count in rows], np.int64).reshape(-1, 1)
        return *(ragged(by_name[name], dtype) for name, dtype in self.dtypes.items()), numbers

    @staticmethod
    def decoded(text):
        if len(text) > MAX_TEXT_BYTES:
            raise InvalidArgument(f"the text has {len(text)} bytes; at most {MAX_TEXT_BYTES} are possible")
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise InvalidArgument(f"the text is not UTF-8: {error}") from None

    def of_ids(self, text):
        if len(text) % 4:
            raise InvalidArgument(f"token ids are four bytes each; {len(text)} bytes are not")
        ids = np.frombuffer(text, "<i4")
        wrong = np.flatnonzero((ids < 0) | (ids >= self.vocabulary))
        if wrong.size:
            raise InvalidArgument(f"token {ids[wrong[0]]} is not in the vocabulary of the model: 0 to "
                                  f"{self.vocabulary - 1}")
        if len(ids) > self.most:
            raise self.too_long(len(ids))
        return ids.tolist(), [0] * len(ids), len(ids)

    def of_messages(self, text):
        """The template says where the special tokens are."""
        prompt = self.chats.render(self.decoded(text))
        encoding = self.tokenizer.encode(self.decoded(prompt.encode(errors="surrogatepass")), add_special_tokens=False)
        if len(encoding.ids) > self.most:
            raise self.too_long(len(encoding.ids))
        return encoding.ids, encoding.type_ids, len(encoding.ids)

    def too_long(self, count):
        return InvalidArgument(f"the text has {count} tokens, and the model takes {self.most} at most: shorten it, or "
                               "have it truncated (\"truncate\": true)")

    def shortened(self, entry, count, truncate):
        """The encoding of a text of too many tokens; the longer of two loses them."""
        if not truncate:
            raise self.too_long(count)
        self.tokenizer.enable_truncation(self.most, direction={1: "right", 2: "left"}.get(truncate, self.side))
        try:
            return self.tokenizer.encode(*entry) if isinstance(entry, tuple) else self.tokenizer.encode(entry)
        finally:
            self.tokenizer.no_truncation()
