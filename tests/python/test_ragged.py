"""Lists of arrays of different lengths: each row is computed and answered with its own length."""

import asyncio

import numpy as np
import pytest
from models import bert, builder

import chairlift

LENGTHS = [5, 1, 9, 3, 3, 17]


def rows(width=2, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((length, width), np.float32) for length in LENGTHS]


CALLS = [lambda m, x: m(x), lambda m, x: m(x=tuple(x)), lambda m, x: [future.result() for future in m.submit(x)],
         lambda m, x: asyncio.run(m.infer(x))]


@pytest.mark.parametrize("call", CALLS, ids=["call", "tuple", "submit", "infer"])
def test_rows_are_answered_as_they_were_given(tagger, call):
    x = rows()
    answers = call(tagger, x)
    assert [len(y) for y in answers] == LENGTHS
    for row, y in zip(x, answers):
        np.testing.assert_allclose(y, tagger(row[np.newaxis])[0], rtol=1e-5, atol=1e-6)
    batches = call(tagger, [np.stack([row, row]) for row in x])
    for row, y in zip(answers, batches):
        np.testing.assert_allclose(y, np.stack([row, row]), rtol=1e-5, atol=1e-6)


@pytest.fixture(scope="module")
def encoder(folder):
    shape = bert.BertShape(layers=1, hidden=16, heads=2, intermediate=32, vocabulary=50, positions=32)
    builder.save(bert.bert(shape), folder / "encoder.onnx")
    return chairlift.load(folder / "encoder.onnx")


def test_an_encoder_packs_them(encoder):
    assert "packed" in encoder.diagnosis
    ids = [np.arange(length) % 50 for length in LENGTHS * 20]
    inputs = {"input_ids": ids, "attention_mask": [np.ones_like(row) for row in ids],
              "token_type_ids": [np.zeros_like(row) for row in ids]}
    answers = encoder(inputs)
    assert len(answers) == len(ids)
    for i, answer in list(enumerate(answers))[:len(LENGTHS)]:
        alone = encoder({name: rows[i][np.newaxis] for name, rows in inputs.items()})
        assert answer["last_hidden_state"].shape == (LENGTHS[i], 16)
        for name in alone:
            np.testing.assert_allclose(answer[name], alone[name][0], rtol=1e-4, atol=1e-5)
    assert encoder.stats()["padded_rows"] == 0 and max(encoder.stats()["batches"]) > 1
    assert list(encoder(inputs, outputs=["sentence_embedding"])[1]) == ["sentence_embedding"]


def test_more_rows_than_a_queue_takes(doubling_file):
    model = chairlift.load(doubling_file, max_queue_size=600)
    answers = model([np.full(4, i, np.float32) for i in range(3000)])
    assert [answer[0] for answer in answers] == [2 * i for i in range(3000)]


def test_what_is_no_list_goes_to_every_row(several):
    answers = several(a=[np.ones((1, 3), np.float32), np.ones((1, 3), np.float32)], b=np.full((1, 3), 2, np.float32))
    assert [answer["sum"].tolist() for answer in answers] == [[[3, 3, 3]], [[3, 3, 3]]]


def test_a_list_of_one_and_numbers_in_lists(doubling):
    answer = doubling([np.ones(4, np.float32)])
    assert isinstance(answer, list) and answer[0].tolist() == [2, 2, 2, 2]
    assert doubling([[1, 2, 3, 4]]).tolist() == [[2, 4, 6, 8]]  # numbers are one array


@pytest.mark.parametrize("inputs, says", [
    ({"a": [np.ones((1, 3), np.float32)] * 2, "b": [np.ones((1, 3), np.float32)]}, "'b' is a list of 1 arrays, .* of 2"),
    ({"a": [np.ones((1, 3), np.float32), np.ones(3, np.float32)], "b": np.ones((1, 3), np.float32)}, "array of 1 dimensions"),
    ({"a": [np.ones((1, 1, 3), np.float32)], "b": np.ones((1, 3), np.float32)}, "'a' .* array of 3 dimensions"),
    ({"a": [np.ones((1, 3), np.float32), 3.0], "b": np.ones((1, 3), np.float32)}, "'a' .* 0 dimensions"),
    ({"a": [np.ones((1, 3), np.float32)] * 2, "b": [np.ones((1, 3), np.float32), np.ones((1, 4), np.float32)]},
     "row 1 of 2: .*'b'"),
    ({"a": [np.ones((1, 3), np.float32)], "c": [np.ones((1, 3), np.float32)]}, "no input 'c'"),
])
def test_wrong_lists_are_refused_by_name(several, inputs, says):
    with pytest.raises(chairlift.InvalidArgument, match=says):
        several(**inputs)


def test_each_future_of_a_list_is_its_row_s(gate):
    futures = gate.model.submit([np.ones(2, np.float32)] * 4)
    assert futures[3].cancel()
    gate.open()
    assert [future.result().tolist() for future in futures[:3]] == [[2, 2]] * 3


def test_a_list_is_no_stream(tagger):
    with pytest.raises(chairlift.Unimplemented, match="one request"):
        tagger.stream(rows())
