#!/usr/bin/env python3
"""Writes small encoder-decoders that must be served as generative models.

They have some kilobytes and seeded weights. PyTorch's exporter writes them from transformers' models, with the files
and names of Hugging Face's exporters.

    pip install torch transformers onnx
    python tests/models/export_encoder_decoders.py tests/models/encoder_decoders

With --optimum, optimum-onnx writes them (`pip install optimum-onnx`, which needs transformers 4). With --dynamo, torch's
newer exporter does; decoder_model_cached.onnx then has a cache of the answer's tokens and reads the encoder's output.
"""

import argparse
import json
import pathlib
import shutil
import tempfile
import warnings

import onnx
import torch
import transformers
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

VOCABULARY, HIDDEN, LAYERS, HEADS = 61, 16, 2, 4


class Encoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, input_ids, attention_mask):
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def caches(cache):
    return [t for own, other in zip(cache.self_attention_cache.layers, cache.cross_attention_cache.layers)
            for t in (own.keys, own.values, other.keys, other.values)]


class FirstStep(torch.nn.Module):
    """decoder_model.onnx: all tokens so far, and no past."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, encoder_attention_mask, input_ids, encoder_hidden_states):
        got = self.model(attention_mask=encoder_attention_mask, decoder_input_ids=input_ids,
                         encoder_outputs=BaseModelOutput(last_hidden_state=encoder_hidden_states),
                         past_key_values=EncoderDecoderCache(DynamicCache(), DynamicCache()), use_cache=True)
        return (got.logits, *caches(got.past_key_values))


class CachedStep(torch.nn.Module):
    """decoder_model_cached.onnx: a step over the keys and values of earlier tokens, and the encoder's output."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, encoder_hidden_states, encoder_attention_mask, past):
        own = DynamicCache()
        for layer, (key, value) in enumerate(past):
            own.update(key, value, layer)
        got = self.model(attention_mask=encoder_attention_mask, decoder_input_ids=input_ids,
                         encoder_outputs=BaseModelOutput(last_hidden_state=encoder_hidden_states),
                         past_key_values=EncoderDecoderCache(own, DynamicCache()), use_cache=True)
        return (got.logits, *(t for layer in got.past_key_values.self_attention_cache.layers
                              for t in (layer.keys, layer.values)))


class Step(torch.nn.Module):
    """decoder_with_past_model.onnx: a step over the keys and values of earlier tokens and of the source."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, encoder_attention_mask, input_ids, *past):
        cache = EncoderDecoderCache(DynamicCache(), DynamicCache())
        for layer in range(len(past) // 4):
            own = past[4 * layer:4 * layer + 4]
            cache.self_attention_cache.update(own[0], own[1], layer)
            cache.cross_attention_cache.update(own[2], own[3], layer)
            cache.is_updated[layer] = True
        hidden = torch.zeros(input_ids.shape[0], encoder_attention_mask.shape[1], self.model.config.d_model)
        got = self.model(attention_mask=encoder_attention_mask, decoder_input_ids=input_ids,
                         encoder_outputs=BaseModelOutput(last_hidden_state=hidden), past_key_values=cache,
                         use_cache=True)
        return (got.logits, *(t for layer in got.past_key_values.self_attention_cache.layers
                              for t in (layer.keys, layer.values)))


def models(attention):
    """name: model"""
    t = transformers
    # Tied weights would make them repeat their input.
    ids = dict(pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, tie_word_embeddings=False)
    bart = dict(vocab_size=VOCABULARY, d_model=HIDDEN, encoder_layers=LAYERS, decoder_layers=LAYERS,
                encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=24, decoder_ffn_dim=24,
                max_position_embeddings=64, attn_implementation=attention)
    t5 = dict(vocab_size=VOCABULARY, d_model=HIDDEN, d_kv=4, d_ff=24, num_layers=LAYERS, num_heads=HEADS,
              relative_attention_num_buckets=8, relative_attention_max_distance=20, attn_implementation=attention)
    yield "marian", t.MarianMTModel(t.MarianConfig(**bart, **ids, forced_eos_token_id=1, scale_embedding=True))
    yield "bart", t.BartForConditionalGeneration(t.BartConfig(**bart, bos_token_id=0, pad_token_id=1, eos_token_id=2,
                                                              decoder_start_token_id=2, tie_word_embeddings=False, forced_eos_token_id=2,
                                                              forced_bos_token_id=0))
    yield "t5", t.T5ForConditionalGeneration(t.T5Config(**t5, **ids))
    yield "t5v11", t.T5ForConditionalGeneration(t.T5Config(**t5, **ids, feed_forward_proj="gated-gelu"))


def write(module, feeds, path, opset, inputs, outputs, axes):
    with torch.no_grad():
        torch.onnx.export(module.eval(), tuple(feeds), str(path), dynamo=False, opset_version=opset,
                          input_names=inputs, output_names=outputs, dynamic_axes=axes)
    without_place(path)


def without_place(path):
    written = onnx.load(path)
    for node in written.graph.node:  # what says where the exporter ran
        del node.metadata_props[:]
        node.doc_string = ""
    for value in [*written.graph.value_info, *written.graph.input, *written.graph.output]:
        del value.metadata_props[:]
    onnx.save(written, path)
    print(f"{path.parent.name}/{path.name}: {path.stat().st_size} bytes, {len(written.graph.node)} nodes")


def merge(folder, opset, config):
    """decoder_model_merged.onnx: both in one, as Hugging Face's exporters join them."""
    branches = []
    first, step = (onnx.load(folder / name) for name in ("decoder_model.onnx", "decoder_with_past_model.onnx"))
    outputs = [output.name for output in first.graph.output]
    for name, graph in (("cached", step.graph), ("first", first.graph)):
        nodes = list(graph.node)
        given = {output.name for output in graph.output}
        for node in nodes:  # names of its own
            for names in (node.input, node.output):
                names[:] = [n + "_" if n in given else n for n in names]
        for output in outputs:  # what the source gives is empty in the cached branch
            if output in given:
                nodes.append(onnx.helper.make_node("Identity", [output + "_"], [f"{output}/{name}"]))
            else:
                empty = onnx.helper.make_tensor("", onnx.TensorProto.FLOAT, [0, config.num_attention_heads, 1, head_size(config)], [])
                nodes.append(onnx.helper.make_node("Constant", [], [f"{output}/{name}"], value=empty))
        values = [onnx.helper.make_tensor_value_info(f"{output}/{name}", onnx.TensorProto.FLOAT, None)
                  for output in outputs]
        branches.append(onnx.helper.make_graph(nodes, name, [], values, list(graph.initializer)))
    inputs = {i.name: i for graph in (first.graph, step.graph) for i in graph.input}
    inputs["use_cache_branch"] = onnx.helper.make_tensor_value_info("use_cache_branch", onnx.TensorProto.BOOL, [1])
    choice = onnx.helper.make_node("If", ["use_cache_branch"], outputs, then_branch=branches[0],
                                   else_branch=branches[1])
    values = [onnx.helper.make_tensor_value_info(output, onnx.TensorProto.FLOAT, None) for output in outputs]
    merged = onnx.helper.make_model(onnx.helper.make_graph([choice], "merged", list(inputs.values()), values),
                                    opset_imports=[onnx.helper.make_opsetid("", opset)])
    merged.ir_version = first.ir_version
    onnx.save(merged, folder / "decoder_model_merged.onnx")


def head_size(config):
    return getattr(config, "d_kv", config.d_model // config.num_attention_heads)


def export(model, folder, opset, with_past, merged=True):
    folder.mkdir(parents=True, exist_ok=True)
    config = model.config
    batch, source, new, past = 2, 7, 3, 5
    mask = torch.ones(batch, source, dtype=torch.int64)
    tokens = {0: "batch_size", 1: "encoder_sequence_length"}
    write(Encoder(model), [torch.randint(2, config.vocab_size, (batch, source)), mask], folder / "encoder_model.onnx", opset,
          ["input_ids", "attention_mask"], ["last_hidden_state"],
          {"input_ids": tokens, "attention_mask": tokens, "last_hidden_state": tokens})
    decoder = {0: "batch_size", 1: "decoder_sequence_length"}
    axes = {"encoder_attention_mask": tokens, "input_ids": decoder, "encoder_hidden_states": tokens, "logits": decoder}
    outputs = ["logits"]
    layers = config.decoder_layers if hasattr(config, "decoder_layers") else config.num_layers
    for layer in range(layers):
        for of in ("decoder", "encoder"):
            for what in ("key", "value"):
                outputs.append(f"present.{layer}.{of}.{what}")
                axes[outputs[-1]] = {0: "batch_size", 2: f"{of}_sequence_length"}
    ids = torch.randint(2, config.vocab_size, (batch, new))
    write(FirstStep(model), [mask, ids, torch.randn(batch, source, config.d_model)], folder / "decoder_model.onnx", opset,
          ["encoder_attention_mask", "input_ids", "encoder_hidden_states"], outputs, axes)
    if with_past:
        feeds, inputs, outputs = [mask, ids[:, :1]], ["encoder_attention_mask", "input_ids"], ["logits"]
        axes = {"encoder_attention_mask": tokens, "input_ids": {0: "batch_size"}, "logits": {0: "batch_size"}}
        for layer in range(layers):
            for of, length in (("decoder", past), ("encoder", source)):
                for what in ("key", "value"):
                    feeds.append(torch.randn(batch, config.num_attention_heads, length, head_size(config)))
                    inputs.append(f"past_key_values.{layer}.{of}.{what}")
                    axes[inputs[-1]] = {0: "batch_size", 2: f"past_{of}_sequence_length"}
                    if of == "decoder":
                        outputs.append(f"present.{layer}.{of}.{what}")
                        axes[outputs[-1]] = {0: "batch_size", 2: "total_sequence_length"}
        write(Step(model), feeds, folder / "decoder_with_past_model.onnx", opset, inputs, outputs, axes)
        if merged:
            merge(folder, opset, config)
    write_generation_config(model, folder)


def export_with_dynamo(model, folder):
    folder.mkdir(parents=True, exist_ok=True)
    config = model.config
    ids, mask = torch.randint(2, config.vocab_size, (2, 7)), torch.ones(2, 7, dtype=torch.int64)
    new, hidden = torch.randint(2, config.vocab_size, (2, 3)), torch.randn(2, 7, config.d_model)
    source, length = {0: "batch", 1: "source"}, {0: "batch", 1: "length"}
    past = [tuple(torch.randn(2, config.num_attention_heads, 5, head_size(config)) for _ in ("key", "value"))
            for _ in range(config.decoder_layers)]  # fmt: skip
    caches = [f"{layer}.{what}" for layer in range(config.decoder_layers) for what in ("key", "value")]
    for name, module, feeds, shapes, inputs, outputs in (
        ("encoder_model", Encoder(model), (ids, mask), (source, source), ["input_ids", "attention_mask"],
         ["last_hidden_state"]),
        ("decoder_model", FirstStep(model), (mask, new, hidden), (source, length, source),
         ["encoder_attention_mask", "input_ids", "encoder_hidden_states"], ["logits"]),
        ("decoder_model_cached", CachedStep(model), (new, hidden, mask, past),
         (length, source, source, [({0: "batch", 2: "past"},) * 2] * config.decoder_layers),
         ["input_ids", "encoder_hidden_states", "encoder_attention_mask"] + [f"past_key_values.{c}" for c in caches],
         ["logits"] + [f"present.{c}" for c in caches]),
    ):  # fmt: skip
        path = folder / f"{name}.onnx"
        torch.onnx.export(module.eval(), feeds, dynamo=True, dynamic_shapes=shapes, input_names=inputs,
                          output_names=outputs, verbose=False).save(path)
        without_place(path)
    write_generation_config(model, folder)


def export_with_optimum(model, folder):
    from optimum.exporters.onnx import onnx_export_from_model

    with tempfile.TemporaryDirectory() as written:
        onnx_export_from_model(model, written, task="text2text-generation-with-past", do_validation=False)
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("encoder_model.onnx", "decoder_model.onnx"):
            shutil.copyfile(pathlib.Path(written) / name, folder / name)
            without_place(folder / name)
    write_generation_config(model, folder)


def write_generation_config(model, folder):
    kept = {key: value for key, value in model.generation_config.to_dict().items()
              if key in ("bos_token_id", "decoder_start_token_id", "eos_token_id", "forced_eos_token_id",
                         "pad_token_id") and value is not None}
    (folder / "generation_config.json").write_text(json.dumps(kept, indent=2, sort_keys=True) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--with-past", action="store_true", help="decoder_with_past_model.onnx and both in one too")
    parser.add_argument("--dynamo", action="store_true", help="by torch's newer exporter")
    parser.add_argument("--optimum", action="store_true", help="by optimum-onnx")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    library = "hf" + transformers.__version__.split(".")[0]
    for attention, opset in (("eager", 14), ("sdpa", 17)):
        torch.manual_seed(7)
        for name, model in models(attention):
            for parameter in model.parameters():  # so large that answers differ
                large = 0.02 if parameter.dim() == 1 else 1.0 if parameter.shape[0] == VOCABULARY else 0.4
                parameter.data += large * torch.randn_like(parameter)
            if args.dynamo:
                if name == "bart" and attention == "sdpa":
                    export_with_dynamo(model.eval(), args.folder / f"{name}_{library}_dynamo_{attention}")
            elif args.optimum:
                export_with_optimum(model.eval(), args.folder / f"{name}_{library}_optimum_{attention}")
            else:
                export(model, args.folder / f"{name}_{library}_torchscript_{attention}_{opset}", opset, args.with_past)


if __name__ == "__main__":
    main()
