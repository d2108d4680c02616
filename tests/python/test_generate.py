"""Models that generate: prompts in, the tokens that onnxruntime's own loop over the file chooses out."""

import asyncio
import pathlib
import shutil

import numpy as np
import onnxruntime
import pytest

import chairlift

FILE = pathlib.Path(__file__).resolve().parents[1] / "models/decoders/gpt2_hf5_torchscript_eager_14.onnx"
PROMPTS = [[3, 14, 15], [9, 2, 6, 5, 35, 8, 9, 7], [1]]
TOKENS = 12


def greedy(session, prompt):
    """The most likely tokens, one at a time."""
    ids, past, answer = np.array([prompt]), {}, []
    for entry in session.get_inputs():
        if entry.name.startswith("past"):
            past[entry.name] = np.zeros((1, entry.shape[1], 0, entry.shape[3]), np.float32)
    names = [entry.name for entry in session.get_outputs()]
    for _ in range(TOKENS):
        length = next(iter(past.values())).shape[2]
        given = {"input_ids": ids, "attention_mask": np.ones((1, length + ids.shape[1]), np.int64),
                 "position_ids": np.arange(length, length + ids.shape[1])[None], **past}
        got = dict(zip(names, session.run(None, given)))
        past = {name: got[name.replace("past_key_values", "present")] for name in past}
        answer.append(int(got["logits"][0, -1].argmax()))
        ids = np.array([answer[-1:]])
    return answer


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = shutil.copy(FILE, tmp_path_factory.mktemp("decoder") / "model.onnx")
    return chairlift.load(path)


@pytest.fixture(scope="module")
def wanted():
    session = onnxruntime.InferenceSession(str(FILE), providers=["CPUExecutionProvider"])
    return [greedy(session, prompt) for prompt in PROMPTS]


def test_a_prompt_is_answered(model, wanted):
    for prompt, tokens in zip(PROMPTS, wanted):
        answer = model(input_ids=[prompt], max_tokens=TOKENS, ignore_eos=True, outputs=["output_ids"])
        assert answer["output_ids"].tolist() == [tokens]


def test_prompts_of_different_lengths_are_a_list(model, wanted):
    answers = model(input_ids=[np.array(prompt) for prompt in PROMPTS], max_tokens=TOKENS, ignore_eos=True,
                    outputs=["output_ids"])
    assert [answer["output_ids"].tolist() for answer in answers] == wanted


def test_tokens_come_as_they_are_generated(model, wanted):
    stream = model.stream(input_ids=[PROMPTS[1]], max_tokens=TOKENS, ignore_eos=True, outputs=["output_ids"])
    parts = list(stream)
    assert len(parts) > 1
    assert [part.first for part in parts] == list(np.cumsum([0] + [len(part.outputs["output_ids"]) for part in parts])[:-1])
    assert [token for part in parts for token in part.outputs["output_ids"].tolist()] == wanted[1]
    assert stream.result()["output_ids"].tolist() == [wanted[1]]


def test_numbers_are_given_as_they_are(model):
    given = {"input_ids": [PROMPTS[0]], "max_tokens": 40, "ignore_eos": True, "temperature": 1.5, "seed": 7}
    drawn = model(given, outputs=["output_ids"])["output_ids"]
    as_arrays = {"input_ids": np.array([PROMPTS[0]]), "max_tokens": np.array([40], np.int32), "ignore_eos": np.array([True]),
                 "temperature": np.array([1.5], np.float32), "seed": np.array([7])}
    assert drawn.tolist() == model(as_arrays, outputs=["output_ids"])["output_ids"].tolist()
    with pytest.raises(chairlift.InvalidArgument, match="max_tokens"):
        model(input_ids=[PROMPTS[0]], max_tokens=[1, 2])
    with pytest.raises(chairlift.InvalidArgument, match="temperature"):
        model(input_ids=[PROMPTS[0]], temperature=-1)


def test_requests_share_steps(model, wanted):
    async def ask():
        return await asyncio.gather(*(model.infer(input_ids=[PROMPTS[i % 3]], max_tokens=TOKENS, ignore_eos=True,
                                                  outputs=["output_ids"]) for i in range(60)))
    for i, answer in enumerate(asyncio.run(ask())):
        assert answer["output_ids"].tolist() == [wanted[i % 3]]


def test_a_closed_stream_ends_its_request(model):
    given = {"input_ids": [PROMPTS[0]], "max_tokens": 40, "ignore_eos": True}

    def was_cancelled():
        busy = [model.submit(given) for _ in range(100)]
        with model.stream(given) as stream:
            pass
        try:
            stream.result()
        except chairlift.Cancelled:
            return True
        finally:
            for future in busy:
                future.result()
        return False

    assert any(was_cancelled() for _ in range(20))  # unless it was the first to be done
    assert model.stats()["failures"]["cancelled"] >= 1
