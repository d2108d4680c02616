"""Cancelled rows of a batch: which messages a worker gets, and that the tokenizer skips these rows."""

import json
import pathlib
import socket
import struct
import sys

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "python/chairlift"))
import _tokenizer  # noqa: E402  as worker processes import it
import _worker  # noqa: E402

CANCEL = 6  # as src/engine/programs/process/README.md says


@pytest.fixture
def connection():
    server, worker = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    made = _worker.Connection(worker.detach())

    def cancel(sequence, rows=0, first=None):
        server.send(struct.pack("=IIQ", CANCEL, rows, sequence) + (b"" if first is None else struct.pack("=I", first)))
    made.hears = cancel
    yield made
    made.socket.close()
    server.close()


def test_some_rows_of_the_batch_that_is_computed(connection):
    connection.batch = 0, 7
    assert not connection.is_cancelled() and not connection.is_cancelled(2)
    connection.hears(7, rows=2, first=1)
    connection.hears(8, rows=1, first=4)
    assert not connection.is_cancelled()
    assert [row for row in range(6) if connection.is_cancelled(row)] == [1, 2]
    connection.batch = 1, 8
    assert [row for row in range(6) if connection.is_cancelled(row)] == [4]
    connection.hears(8)
    assert connection.is_cancelled() and connection.is_cancelled(0)


def test_the_tokenizer_passes_over_them(tmp_path, monkeypatch):
    words = ["[UNK]", "a", "b"]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setattr(_tokenizer, "limit_memory", lambda more: None)  # of this process
    texts = _tokenizer.Texts(json.dumps({
        "path": str(tmp_path / "tokenizer.json"), "chats": False, "pairs": False, "tokens": 64, "dtypes": {"input_ids": "int64"},
        "prompts": {}, "prompt": "", "lower": False, "include_prompt": True}))
    seen = []
    monkeypatch.setattr(texts.encoder, "row", lambda entry, truncate: seen.append(entry) or ([1], [0], 1))
    monkeypatch.setattr(texts, "is_cancelled", lambda row=None: row == 1)
    long = (b"a " * 3000, b"b " * 3000, b"a " * 4000)
    ids, counts, said = texts.run(long, None, np.zeros((3, 2), np.int64))
    assert [len(text) for text, in seen] == [6000, 8000]
    assert ids.offsets.tolist() == [0, 1, 1, 2] and counts.ravel().tolist() == [1, 0, 1]
    assert said[0] == said[2] == ""
