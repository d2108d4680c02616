"""Models from PyTorch. The tests need torch and onnxscript, and are skipped if these are missing."""

import sys

import numpy as np
import pytest

import chairlift


def test_without_torch_it_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(chairlift.Unimplemented, match="pip install torch onnxscript"):
        chairlift.from_torch(None, None)


@pytest.fixture(scope="module")
def torch():
    pytest.importorskip("onnxscript")
    return pytest.importorskip("torch")


def test_a_network_of_images(torch):
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
                                  torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 5))
    network.train()
    model = chairlift.from_torch(network, torch.zeros(1, 3, 16, 16))
    assert network.training and network[1].training
    assert model.inputs[0].shape == (None, 3, None, None)
    network.eval()
    x = torch.randn(7, 3, 20, 12)
    np.testing.assert_allclose(model(x), network(x).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_an_encoder_of_two_inputs(torch):
    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = torch.nn.Embedding(50, 8)
            self.layer = torch.nn.Linear(8, 8)

        def forward(self, ids, mask):
            x = self.layer(self.embedding(ids))
            weights = (x @ x.transpose(1, 2) + (mask[:, None, :] - 1) * 1e4).softmax(-1)
            return {"tokens": weights @ x, "first": x[:, 0]}

    network = Encoder()
    model = chairlift.from_torch(network, {"ids": torch.zeros(2, 6, dtype=torch.int64), "mask": torch.ones(2, 6)},
                                 output_names=["tokens", "first"])
    ids, mask = torch.randint(0, 50, (3, 11)), torch.ones(3, 11)
    answer, expected = model(ids, mask), network(ids, mask)
    for name in ("tokens", "first"):
        np.testing.assert_allclose(answer[name], expected[name].detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_model_that_answers_otherwise_is_refused(torch):
    class Random(torch.nn.Module):
        calls = 0

        def forward(self, x):
            Random.calls += 1
            return x + Random.calls * 10

    with pytest.raises(chairlift.Internal, match="off from the module's by"):
        chairlift.from_torch(Random(), torch.ones(2, 3))


def test_examples_that_do_not_fit(torch):
    with pytest.raises(chairlift.InvalidArgument, match="does not fit Linear.forward"):
        chairlift.from_torch(torch.nn.Linear(2, 3), (torch.ones(1, 2), torch.ones(1, 2)))


def test_a_failing_export_says_why_in_a_line(torch):
    class Unexportable(torch.nn.Module):
        def forward(self, x):
            if x.sum().item() > 0:
                raise KeyError("no such thing")
            return x

    with pytest.raises(chairlift.InvalidArgument, match="^torch cannot export Unexportable: ") as caught:
        chairlift.from_torch(Unexportable(), torch.zeros(2, 3))
    message = str(caught.value)
    assert "\n" not in message and len(message) < 600
    assert "Failed to export" in str(caught.value.__context__)
    assert caught.value.__suppress_context__
