"""The tokenizer of models that take text inputs: turns text into tokens by a tokenizer.json and the files beside it.

The server runs it as a Python model in a worker process. The interpreter needs numpy and the package `tokenizers`.

    text [rows]              a text, or another kind of input as `options` say: the first text of a pair; token ids
                             (int32, little-endian); a chat's messages (JSON); a prompt's name, a zero byte and a text
    pair [rows]              the second text of a pair (`Pairs` only)
    options [rows, 2]        truncation, if a text has more tokens than the model's maximum: 0 refuse, 1 drop the last,
                             2 drop the first, 3 as truncation_side in tokenizer_config.json (default: the last);
                             the kind of `text`, one of the constants below
    input_ids, attention_mask, token_type_ids    ragged: one value for each token of a row
    num_tokens [rows, 1]
    said [rows]              for the kinds from DESCRIBED on, the tokens as text; otherwise empty
"""

import json
import os
import sys
import typing

import numpy as np

import _chat
from _chat import MAX_TEXT_BYTES, read_json
from _cuts import cuts_of
from _limits import limit_memory
from chairlift import InvalidArgument, Ragged

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # all cores are needed for the model
try:
    import _tokenizer_files
except ImportError as error:
    raise ImportError(f"{sys.executable} has no package tokenizers ({error}), which text inputs need: `pip install tokenizers` "
                      "there, or have CHAIRLIFT_PYTHON name an interpreter that has it") from error

TEXT, IDS, MESSAGES = 0, 1, 2
PROMPTED = 3  # a prompt's name, a zero byte and a text
ALONE = 4  # a single text, for a model that takes pairs
DESCRIBED, DESCRIBED_PLAIN = 5, 6  # a text; `said` is its tokens as JSON, with and without special tokens
DECODED, DECODED_ALL = 7, 8  # token ids; `said` is their text, without and with special tokens

MOST_TOKENS = 1 << 20  # where no file says how many the model takes
LOAD_BYTES, RUN_BYTES = 4 << 30, 2 << 30  # of memory
LEFT = ([], [], 0), "left"  # a row whose result is no longer needed
SHORT = 2048  # characters of a text that is not worth cutting


def max_tokens(folder):
    """The maximum length of a row: the smallest number in the files beside the tokenizer."""
    config = read_json(folder, "config.json")
    numbers = [read_json(folder, "sentence_bert_config.json").get("max_seq_length"),
               read_json(folder, "tokenizer_config.json").get("model_max_length")]
    positions = config.get("max_position_embeddings")
    if isinstance(positions, int) and config.get("model_type") in ("roberta", "xlm-roberta", "camembert", "mpnet"):
        positions -= config.get("pad_token_id", 1) + 1  # the first position is after the padding's
    numbers.append(positions)
    return min([MOST_TOKENS] + [int(n) for n in numbers if isinstance(n, (int, float)) and 0 < n <= MOST_TOKENS])


def ragged(rows, dtype):
    ends = np.cumsum([0] + [len(row) for row in rows], dtype=np.int64)
    values = np.empty(ends[-1], dtype)
    for row, begin in zip(rows, ends):
        values[begin:begin + len(row)] = row
    return Ragged(values, ends)


class Part:
    """One text of a pair: its token ids without special tokens, whether these are all, and a short part of the text."""

    def __init__(self, text, encoding, whole):
        self.ids, self.whole = encoding.ids, whole
        ends = encoding.offsets[:8]
        self.small = text[ends[0][0]:ends[-1][1]] if ends else ""


class Encoder:
    """Tokenizes texts and pairs of texts, to at most `most` tokens. It tokenizes only the part of a text that is needed.

    `truncates`: requests may ask for truncation; prompts of models that generate may not. `truncate` is the first of
    the `options`. A row is its token ids, their types, and the number of tokens.
    """

    def __init__(self, tokenizer, most, truncates=True):
        self.tokenizer, self.most, self.truncates = tokenizer, most, truncates
        self.cuts = cuts_of(tokenizer)
        self.short = max(SHORT, 8 * most)  # characters; most texts with `most` tokens have fewer

    def is_short(self, entry):
        """Whether the entry is short enough to be tokenized whole."""
        return sum(map(len, entry)) <= self.short

    def row(self, entry, truncate, special=True):
        return self.row_of_pair(entry, truncate) if len(entry) == 2 else self.row_of_text(entry[0], truncate, special)

    def row_of_text(self, text, truncate, special):
        known = self.end_of if truncate == 2 else self.begin_of
        encoding = known(text, truncate, special) if self.cuts is not None else None
        if encoding is None and truncate:
            encoding = self.truncated(text, truncate)
        elif encoding is None:
            encoding = self.tokenizer.encode(text, add_special_tokens=special)
            if len(encoding) > self.most:
                raise self.too_long(len(encoding))
        return row_of(encoding)

    def lengths_to(self, text):
        """Yields increasing lengths of parts of a text, in characters, less than the whole text."""
        length = self.short
        while 2 * length < len(text):
            yield length
            length *= 4

    def begin_of(self, text, truncate, special):
        """Returns the tokens of a text from its beginning alone, if that has too many tokens; otherwise None."""
        for length in self.lengths_to(text):
            found = self.cuts.search(text, length)
            if found is None:
                return None
            begin = text[:found.start()]
            if truncate:
                encoding = self.truncated(begin, truncate)
                if len(encoding) >= self.most:
                    return encoding
            elif len(self.tokenizer.encode(begin, add_special_tokens=special)) > self.most:
                raise self.too_long()
        return None

    def end_of(self, text, truncate, _):
        """Returns the tokens of a text from its end alone, if that has too many tokens; otherwise None."""
        for length in self.lengths_to(text):
            places = self.cuts.finditer(text, len(text) - length)
            first, second = next(places, None), next(places, None)
            if second is None:
                return None
            encoding = self.truncated(text[first.start():], truncate)
            # The tokens of the first word may differ from those in the middle of a text.
            begins = [begin for (begin, _), extra in zip(encoding.offsets, encoding.special_tokens_mask) if not extra]
            if len(encoding) >= self.most and begins and begins[0] >= second.start() - first.start():
                return encoding
        return None

    def row_of_pair(self, pair, truncate):
        """Tokenizes and truncates a pair. The tokenizer's own truncation takes a time proportional to the product of
        both lengths."""
        room = max(self.most - self.tokenizer.num_special_tokens_to_add(True), 0)
        cut = truncate != 2 and self.cuts is not None
        parts = [self.ids_of(text, cut) for text in pair]
        if not all(part.whole for part in parts):
            if not truncate:
                raise self.too_long()
            if room % 2 and min(len(part.ids) for part in parts) > room // 2:
                # Each text gets half of the room, and the longer text one more token.
                parts = [self.ids_of(text, False) for text in pair]
        first, second = (part.ids for part in parts)
        if len(first) + len(second) <= room:
            return row_of(self.tokenizer.encode(*pair))
        if not truncate:
            raise self.too_long(len(first) + len(second) + self.most - room)
        shorter, longer = sorted((len(first), len(second)))
        if shorter > room // 2:
            shorter = room // 2
        longer = room - shorter
        lengths = (longer, shorter) if len(first) > len(second) else (shorter, longer)
        if truncate == 1:
            first, second = first[:lengths[0]], second[:lengths[1]]
        else:
            first, second = first[len(first) - lengths[0]:], second[len(second) - lengths[1]:]
        # A small pair shows the places of the special tokens.
        small = self.tokenizer.encode(*(part.small for part in parts))
        ids, types, seen = [], [], set()
        for token, kind, sequence in zip(small.ids, small.type_ids, small.sequence_ids):
            part = [token] if sequence is None else (first, second)[sequence] if sequence not in seen else []
            seen.add(sequence)
            ids += part
            types += [kind] * len(part)
        return ids, types, len(ids)

    def ids_of(self, text, cut):
        """Returns the tokens of a text as a Part. `cut`: stops when there are too many."""
        for length in self.lengths_to(text) if cut else ():
            found = self.cuts.search(text, length)
            if found is None:
                break
            encoding = self.tokenizer.encode(text[:found.start()], add_special_tokens=False)
            if len(encoding) > self.most:
                return Part(text, encoding, False)
        return Part(text, self.tokenizer.encode(text, add_special_tokens=False), True)

    def too_long(self, count=None):
        said = f"{count} tokens, and the model takes {self.most} at most" if count else \
            f"more than the {self.most} tokens that the model takes"
        instead = ", or have it truncated (\"truncate\": true)" if self.truncates else ""
        return InvalidArgument(f"the text has {said}: shorten it{instead}")

    def truncated(self, text, truncate):
        self.tokenizer.enable_truncation(self.most, direction="right" if truncate == 1 else "left")
        try:
            return self.tokenizer.encode(text)
        finally:
            self.tokenizer.no_truncation()


def row_of(encoding):
    return encoding.ids, encoding.type_ids, len(encoding)


class Texts:
    """The Python model.

    `argument` is JSON: the path of tokenizer.json, the element type of each output of tokens, and the settings of
    sentence-transformers.
    """

    def __init__(self, argument):
        said = json.loads(argument)
        folder = os.path.dirname(said["path"])
        # Its process is made before there is much to copy.
        self.chats = _chat.Template(folder) if said["chats"] else None
        limit_memory(LOAD_BYTES)
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
        self.encoder = Encoder(self.tokenizer, self.most, truncates=not said["chats"])
        worker = sys.modules.get("_chairlift_worker_call")
        self.is_cancelled = worker.IS_CANCELLED if worker else lambda row=None: False
        # What predict() gives, as the model takes it.
        parts = [typing.Annotated[Ragged, np.dtype(dtype), name] for name, dtype in self.dtypes.items()]
        parts.append(typing.Annotated[np.ndarray, np.int64, (None, 1), "num_tokens"])
        parts.append(typing.Annotated[list[str], "said"])
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
        limit_memory(RUN_BYTES)

    def run(self, texts, pairs, options):
        options = options.tolist()
        rows = [None] * len(texts)
        said = [""] * len(texts)
        short = []
        for i, (text, (truncate, what)) in enumerate(zip(texts, options)):
            if i > 0 and len(text) > SHORT:  # time has passed
                if self.is_cancelled():
                    raise InvalidArgument("the request was cancelled")
                if self.is_cancelled(i):
                    rows[i], said[i] = LEFT
                    continue
            if what == MESSAGES and self.chats is not None:
                rows[i] = self.of_messages(text)
            elif what in (DESCRIBED, DESCRIBED_PLAIN):
                rows[i], said[i] = self.described(self.decoded(text), what == DESCRIBED)
            elif what in (DECODED, DECODED_ALL):
                rows[i] = self.of_ids(text)
                said[i] = self.tokenizer.decode(rows[i][0], skip_special_tokens=what == DECODED)
            elif what == IDS:
                rows[i] = self.of_ids(text)
            elif what not in (TEXT, PROMPTED, ALONE):
                raise InvalidArgument(f"options: {what} is no kind of text that this model takes")
            else:
                name, text = text.split(b"\0", 1) if what == PROMPTED and b"\0" in text else (None, text)
                text = self.prompts.applied(name and name.decode(errors="replace"), self.decoded(text))
                entry = (text,) if pairs is None or what == ALONE else (text, self.decoded(pairs[i]))
                if self.encoder.is_short(entry):
                    short.append((i, entry))
                else:
                    rows[i] = self.encoder.row(entry, self.side_of(truncate))
        encodings = self.tokenizer.encode_batch([entry if len(entry) == 2 else entry[0] for _, entry in short])
        for (i, entry), encoding in zip(short, encodings):
            fits = len(encoding) <= self.most
            rows[i] = row_of(encoding) if fits else self.encoder.row(entry, self.side_of(options[i][0]))
        for row, text in zip(rows, said):
            if not row[0] and not text:
                raise InvalidArgument("the text has no tokens: it must have at least one")
        by_name = {
            "input_ids": [ids for ids, _, _ in rows],
            "attention_mask": [[1] * len(ids) for ids, _, _ in rows],
            "token_type_ids": [types for _, types, _ in rows],
        }
        numbers = np.array([[count] for _, _, count in rows], np.int64).reshape(-1, 1)
        return *(ragged(by_name[name], dtype) for name, dtype in self.dtypes.items()), numbers, said

    @staticmethod
    def decoded(text):
        if len(text) > MAX_TEXT_BYTES:
            raise InvalidArgument(f"the text has {len(text)} bytes; it may have {MAX_TEXT_BYTES}")
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
            raise self.encoder.too_long(len(ids))
        return ids.tolist(), [0] * len(ids), len(ids)

    def side_of(self, truncate):
        """Returns the truncation for option 3, by tokenizer_config.json."""
        return truncate if truncate != 3 else 2 if self.side == "left" else 1

    def described(self, text, special_tokens):
        """Returns a row, and its tokens in the format of text-embeddings-inference. `start` and `stop` are offsets."""
        text = text.lower() if self.prompts.lower else text
        encoding = self.tokenizer.encode(text, add_special_tokens=special_tokens)
        tokens = [{"id": token, "text": name, "special": True, "start": None, "stop": None} if special else
                  {"id": token, "text": text[start:stop], "special": False, "start": start, "stop": stop}
                  for token, name, special, (start, stop) in zip(encoding.ids, encoding.tokens, encoding.special_tokens_mask,
                                                                 encoding.offsets)]
        return (encoding.ids, encoding.type_ids, len(encoding.ids)), json.dumps(tokens, separators=(",", ":"))

    def of_messages(self, text):
        """Tokenizes the messages of a chat. The chat template adds the special tokens."""
        prompt = self.chats.render(self.decoded(text))
        return self.encoder.row((self.decoded(prompt.encode(errors="surrogatepass")),), 0, special=False)
