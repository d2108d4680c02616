#!/usr/bin/env python3
"""Writes small decoders by onnxruntime-genai's model builder. They must be served as generative models.

They have some kilobytes and seeded weights. Attention and its cache are one operator,
com.microsoft.GroupQueryAttention. compare.py compares their tokens with ONNX Runtime's.

    pip install torch transformers tokenizers onnx onnxruntime-genai==0.18.0
    python tests/models/export_genai_decoders.py tests/models/decoders
"""

import argparse
import pathlib
import tempfile

import onnx
import tokenizers
import torch
import transformers
from onnxruntime_genai.models import builder

VOCABULARY = 61


def models():
    t = transformers
    sizes = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
                 num_key_value_heads=2, head_dim=16, max_position_embeddings=64, bos_token_id=1, eos_token_id=2)
    yield "llama", t.LlamaForCausalLM(t.LlamaConfig(**sizes))
    yield "qwen3", t.Qwen3ForCausalLM(t.Qwen3Config(**sizes))
    yield "phi3", t.Phi3ForCausalLM(t.Phi3Config(**{**sizes, "hidden_size": 64}, original_max_position_embeddings=64,
                                                 pad_token_id=0))


def write(model, path, precision="fp32", options=()):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        model.save_pretrained(folder / "model")
        words = tokenizers.models.WordLevel({f"t{i}": i for i in range(VOCABULARY)}, unk_token="t0")
        transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(words), bos_token="t1",
                                             eos_token="t2", pad_token="t0").save_pretrained(folder / "model")
        arguments = (None, str(folder / "model"), str(folder / "out"), precision, "cpu", str(folder / "cache"))
        builder.create_model(*arguments, **builder.parse_extra_options(*arguments, list(options)))
        written = onnx.load(folder / "out" / "model.onnx")
    for node in written.graph.node:
        del node.metadata_props[:]
    del written.graph.value_info[:]
    onnx.save(written, path)
    print(f"{path.name}: {path.stat().st_size} bytes, {len(written.graph.node)} nodes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    for name, model in models():
        torch.manual_seed(7)
        for parameter in model.parameters():  # so large that answers differ
            parameter.data += 0.3 * torch.randn_like(parameter)
        write(model, args.folder / f"{name}_genai018_gqa.onnx")
        if name == "llama":  # as it is by default: products of bytes where the processor has them
            write(model, args.folder / f"{name}_genai018_int4.onnx", "int4")
        if name == "qwen3":  # with zero points, and products of floats
            options = ["is_symmetric=false", "accuracy_level=1", "block_size=16"]
            write(model, args.folder / f"{name}_genai018_int4.onnx", "int4", options)


if __name__ == "__main__":
    main()
