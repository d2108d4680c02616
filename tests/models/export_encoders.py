#!/usr/bin/env python3
"""Writes small encoders that the fusions must recognise, with seeded weights, by PyTorch's two exporters.

    pip install torch transformers onnx onnxscript
    python tests/models/export_encoders.py tests/models/encoders

ort_writers.py --keep made the models named `optimised` from the others.
"""

import argparse
import pathlib
import sys
import warnings

import onnx
import torch
import transformers

SIZES = dict(vocab_size=24, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
             max_position_embeddings=40)


class MeanPooled(torch.nn.Module):
    """As sentence-transformers does: the mean over a sequence's tokens, of length one."""

    def __init__(self, encoder):
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids, attention_mask, token_type_ids):
        hidden = self.encoder(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)[0]
        mask = attention_mask.unsqueeze(-1).expand(hidden.size()).float()
        mean = (hidden * mask).sum(1) / torch.clamp(mask.sum(1), min=1e-9)
        return torch.nn.functional.normalize(mean, p=2, dim=1)


class Outputs(torch.nn.Module):
    """A model's outputs by place, its inputs by name."""

    def __init__(self, model, inputs, outputs):
        super().__init__()
        self.model = model
        self.inputs = inputs
        self.outputs = outputs

    def forward(self, *args):
        got = self.model(**dict(zip(self.inputs, args)))
        return tuple(got[name] for name in self.outputs)


def models(attention):
    """name: (module, inputs, outputs)"""
    t = transformers
    both = ["input_ids", "attention_mask"]
    three = both + ["token_type_ids"]

    def config(kind, **more):
        return kind(**{**SIZES, **more}, attn_implementation=attention)

    bert = t.BertModel(config(t.BertConfig))
    yield "bert", Outputs(bert, three, ["last_hidden_state", "pooler_output"]), three, ["last_hidden_state", "pooled"]
    tanh = t.BertModel(config(t.BertConfig, hidden_act="gelu_pytorch_tanh"), add_pooling_layer=False)
    yield "bert_tanh", Outputs(tanh, both, ["last_hidden_state"]), both, ["last_hidden_state"]
    minilm = t.BertModel(config(t.BertConfig), add_pooling_layer=False)
    yield "minilm", MeanPooled(minilm), three, ["sentence"]
    albert = t.AlbertModel(config(t.AlbertConfig, embedding_size=8))
    yield "albert", Outputs(albert, three, ["last_hidden_state", "pooler_output"]), three, ["last_hidden_state",
                                                                                          "pooled"]
    distil = t.DistilBertForSequenceClassification(t.DistilBertConfig(
        vocab_size=24, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=40,
        attn_implementation=attention))
    yield "distilbert", Outputs(distil, both, ["logits"]), both, ["logits"]
    roberta = t.RobertaForSequenceClassification(config(t.RobertaConfig, pad_token_id=1, hidden_act="silu"))
    yield "roberta", Outputs(roberta, both, ["logits"]), both, ["logits"]
    mpnet = t.MPNetModel(t.MPNetConfig(**SIZES, attn_implementation="eager"), add_pooling_layer=False)
    yield "mpnet", Outputs(mpnet, both, ["last_hidden_state"]), both, ["last_hidden_state"]


def export(name, module, inputs, outputs, dynamo, opset, folder, label):
    ids = torch.randint(3, 24, (2, 9))
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[1, 6:] = 0
    feeds = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros(2, 9, dtype=torch.int64)}
    args = tuple(feeds[i] for i in inputs)
    path = folder / f"{name}_{label}_{opset}.onnx"
    module.eval()
    with torch.no_grad():
        if dynamo:
            dims = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("length", min=2, max=40)}
            shapes = tuple(dims for _ in inputs)
            if isinstance(module, Outputs):
                shapes = (shapes,)
            program = torch.onnx.export(module, args, dynamo=True, opset_version=opset, input_names=inputs,
                                        output_names=outputs, dynamic_shapes=shapes, verbose=False)
            program.save(str(path), external_data=False)
        else:
            axes = {i: {0: "batch", 1: "length"} for i in inputs}
            axes |= {o: {0: "batch"} for o in outputs}
            if "last_hidden_state" in outputs:
                axes["last_hidden_state"][1] = "length"
            torch.onnx.export(module, args, str(path), dynamo=False, opset_version=opset, input_names=inputs,
                              output_names=outputs, dynamic_axes=axes)
    model = onnx.load(path)
    # Removes metadata about the exporter's machine.
    for node in model.graph.node:
        del node.metadata_props[:]
        node.doc_string = ""
    for values in (model.graph.value_info, model.graph.input, model.graph.output, model.graph.initializer):
        for value in values:
            del value.metadata_props[:]
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    onnx.save(model, path)
    print(f"{path.name}: {path.stat().st_size} bytes, {len(model.graph.node)} nodes")


# Exporter, opset, attention as the library writes it, models: between them every pattern once.
PLANS = [
    ("torchscript", 11, "eager", ["bert", "albert", "distilbert", "roberta"]),
    ("torchscript", 14, "sdpa", ["bert", "distilbert", "minilm"]),
    ("torchscript", 17, "eager", ["bert_tanh", "minilm", "roberta", "mpnet"]),
    ("dynamo", 18, "sdpa", ["bert", "albert", "minilm", "roberta"]),
    ("dynamo", 21, "eager", ["bert_tanh", "distilbert", "minilm", "albert", "mpnet"]),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--exporter", choices=["torchscript", "dynamo"], help="this one alone")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    failed = 0
    library = "hf" + transformers.__version__.split(".")[0]
    for exporter, opset, attention, names in PLANS:
        if args.exporter not in (None, exporter):
            continue
        torch.manual_seed(7)
        for name, module, inputs, outputs in models(attention):
            if name not in names:
                continue
            for parameter in module.parameters():  # none equal to another, which exporters would merge
                parameter.data += 0.1 * torch.randn_like(parameter)
            label = f"{library}_{exporter}_{attention}"
            try:
                export(name, module, inputs, outputs, exporter == "dynamo", opset, args.folder, label)
            except Exception as error:  # noqa: BLE001: an exporter may fail in any way; the others go on
                print(f"{name} {label} {opset}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
                failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
