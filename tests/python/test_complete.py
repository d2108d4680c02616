"""Completions in process, which equal the server's."""

import numpy as np
import pytest

import chairlift
from test_completions import Server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("complete"))
    yield server
    server.close()


@pytest.fixture(scope="module")
def models(server):
    """A decoder, and an encoder beside its decoder."""
    with chairlift.load(server.folder / "gpt2/1/model.onnx") as gpt2, chairlift.load(server.folder / "t5/1") as t5:
        yield {"gpt2": gpt2, "t5": t5}


@pytest.mark.parametrize("name", ["gpt2", "t5"])
def test_a_text_is_continued_as_by_the_server(server, models, name):
    prompts = ["ab", "c", "ba c"]
    for given in ({"max_tokens": 9}, {"max_tokens": 14, "temperature": 0.9, "seed": 3}, {"max_tokens": 20, "stop": "b"}):
        answers = models[name].complete(prompts, **given)
        for prompt, answer in zip(prompts, answers):
            _, got = server.ask("/v1/completions", {"model": name, "prompt": prompt, **given})
            (choice,), usage = got["choices"], got["usage"]
            assert answer == chairlift.Completion(choice["text"], choice["finish_reason"], usage["prompt_tokens"],
                                                  answer.num_tokens if "stop" in given else usage["completion_tokens"],
                                                  None)
            alone = models[name].complete(prompt, **given)
            assert (alone.text, alone.finish_reason) == (answer.text, answer.finish_reason)
            stream = models[name].stream_text(prompt, **given)
            assert "".join(stream) == answer.text
            assert stream.result().text == answer.text and list(stream) == []


def test_several_answers_and_log_probabilities(server, models):
    given = {"max_tokens": 8, "temperature": 1.0, "seed": 5, "logprobs": 2}
    answers = models["gpt2"].complete("ab", n=3, **given)
    _, got = server.ask("/v1/completions", {"model": "gpt2", "prompt": "ab", "n": 3, **given})
    assert [answer.text for answer in answers] == [choice["text"] for choice in got["choices"]]
    for answer, choice in zip(answers, got["choices"]):
        said = choice["logprobs"]
        assert [token.text for token in answer.tokens] == said["tokens"]
        assert np.allclose([token.logprob for token in answer.tokens], said["token_logprobs"], atol=1e-4)
        assert [list(token.likely) for token in answer.tokens] == [list(likely) for likely in said["top_logprobs"]]
    (one,) = models["gpt2"].complete("ab", n=1, **given)
    assert one.text == answers[0].text
    assert models["gpt2"].complete([], max_tokens=3) == []


def test_what_is_wrong_is_named(models):
    gpt2 = models["gpt2"]
    for call in (gpt2.complete, gpt2.stream_text):
        with pytest.raises(chairlift.InvalidArgument, match="temperature is -1"):
            answer = call("ab", temperature=-1)
            answer.result()
        with pytest.raises(chairlift.InvalidArgument, match="no parameter 'stream'"):
            call("ab", stream=True)
        with pytest.raises(chairlift.InvalidArgument, match="warmth"):
            call("ab", warmth=1).result()
    with pytest.raises(chairlift.InvalidArgument, match="leave n out"):
        gpt2.stream_text("ab", n=2)
    with pytest.raises(chairlift.InvalidArgument, match="gives generated text, not embeddings: call complete"):
        gpt2.embed("ab")
    with pytest.raises(chairlift.InvalidArgument, match="text 1 is 7; it must be a str"):
        gpt2.complete(["a", 7])


def test_a_stream_that_is_closed_ends_its_request(models):
    def was_cancelled():
        with models["gpt2"].stream_text("ab", max_tokens=50, ignore_eos=True) as stream:
            next(stream)
        try:
            stream.result()
        except chairlift.Cancelled:
            return True
        return False

    assert any(was_cancelled() for _ in range(500))  # unless it was the first to be done, as on a busy machine
