#!/usr/bin/env python3
"""Writes small decoders that must be served as generative models.

They have some kilobytes, seeded weights, and a key-value cache. PyTorch's exporter writes them from transformers'
models, with the names of Hugging Face's exporters.

    pip install torch transformers onnx
    python tests/models/export_decoders.py tests/models/decoders
    pip install transformers==4.57.6                                  # its masks have another form
    python tests/models/export_decoders.py tests/models/decoders --only mpt
"""

import argparse
import inspect
import pathlib
import warnings

import onnx
import torch
import transformers
from transformers.cache_utils import DynamicCache

VOCABULARY, HIDDEN, LAYERS, HEADS = 61, 16, 2, 4


class Step(torch.nn.Module):
    """A step over the keys and values of earlier tokens, as positional arguments."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, *more):
        positions = more[:len(more) % 2]
        past = more[len(positions):]
        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        got = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True,
                         **({"position_ids": positions[0]} if positions else {}))
        present = [t for layer in got.past_key_values.layers for t in (layer.keys, layer.values)]
        return (got.logits, *present)


def models(attention):
    """name: (model, heads of keys)"""
    t = transformers
    sizes = dict(vocab_size=VOCABULARY, hidden_size=HIDDEN, intermediate_size=24, num_hidden_layers=LAYERS,
                 num_attention_heads=HEADS, num_key_value_heads=2, max_position_embeddings=128,
                 attn_implementation=attention)
    yield "gpt2", t.GPT2LMHeadModel(t.GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=HIDDEN, n_layer=LAYERS,
                                                 n_head=HEADS, attn_implementation=attention)), HEADS
    yield "llama", t.LlamaForCausalLM(t.LlamaConfig(**sizes)), 2
    yield "qwen2", t.Qwen2ForCausalLM(t.Qwen2Config(**sizes)), 2
    if attention == "eager":  # the only one that they have
        yield "bloom", t.BloomForCausalLM(t.BloomConfig(vocab_size=VOCABULARY, hidden_size=HIDDEN, n_layer=LAYERS,
                                                        n_head=HEADS)), HEADS
        yield "mpt", t.MptForCausalLM(t.MptConfig(vocab_size=VOCABULARY, d_model=HIDDEN, n_layers=LAYERS,
                                                  n_heads=HEADS, max_seq_len=64)), HEADS


def export(model, kv_heads, path, opset):
    batch, past, new = 2, 5, 3
    config = model.config
    feeds = [torch.randint(0, config.vocab_size, (batch, new)), torch.ones(batch, past + new, dtype=torch.int64)]
    inputs, outputs = ["input_ids", "attention_mask"], ["logits"]
    axes = {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "total"},
            "logits": {0: "batch", 1: "sequence"}}
    if "position_ids" in inspect.signature(model.forward).parameters:
        feeds.append(torch.arange(past, past + new)[None].expand(batch, new).contiguous())
        inputs.append("position_ids")
        axes["position_ids"] = {0: "batch", 1: "sequence"}
    for layer in range(config.num_hidden_layers):
        for what in ("key", "value"):
            feeds.append(torch.randn(batch, kv_heads, past, config.hidden_size // config.num_attention_heads))
            inputs.append(f"past_key_values.{layer}.{what}")
            outputs.append(f"present.{layer}.{what}")
            axes[inputs[-1]], axes[outputs[-1]] = {0: "batch", 2: "past"}, {0: "batch", 2: "total"}
    with torch.no_grad():
        torch.onnx.export(Step(model).eval(), tuple(feeds), str(path), dynamo=False, opset_version=opset,
                          input_names=inputs, output_names=outputs, dynamic_axes=axes)
    written = onnx.load(path)
    for node in written.graph.node:  # what says where the exporter ran
        del node.metadata_props[:]
        node.doc_string = ""
    onnx.save(written, path)
    print(f"{path.name}: {path.stat().st_size} bytes, {len(written.graph.node)} nodes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="", help="models whose name holds this")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    library = "hf" + transformers.__version__.split(".")[0]
    for attention, opset in (("eager", 14), ("sdpa", 17)):
        torch.manual_seed(7)
        for name, model, kv_heads in models(attention):
            if args.only not in name:
                continue
            for parameter in model.parameters():  # none equal to another, which exporters would merge
                parameter.data += 0.1 * torch.randn_like(parameter)
            export(model, kv_heads, args.folder / f"{name}_{library}_torchscript_{attention}_{opset}.onnx", opset)


if __name__ == "__main__":
    main()
