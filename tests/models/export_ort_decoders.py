#!/usr/bin/env python3
"""Writes a small GPT-2 by onnxruntime's own script (onnxruntime.transformers.models.gpt2).

It has some kilobytes and seeded weights. The keys and values of a layer are one tensor. After the optimizer, attention
is one operator (com.microsoft.Attention). The model must be served as a generative model. compare.py compares its
tokens with ONNX Runtime's.

    pip install torch onnx onnxruntime==1.31.1 transformers==4.36.2     # later transformers do not run that script
    python tests/models/export_ort_decoders.py tests/models/decoders
"""

import argparse
import pathlib
import sys

import onnx
import onnxruntime.transformers
import torch
import transformers

SCRIPTS = pathlib.Path(onnxruntime.transformers.__file__).parent
sys.path[:0] = [str(SCRIPTS), str(SCRIPTS / "models" / "gpt2")]
import gpt2_helper  # noqa: E402

HIDDEN, HEADS = 16, 4


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(7)
    model = gpt2_helper.MyGPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=61, n_positions=64, n_embd=HIDDEN, n_layer=2, n_head=HEADS)).eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    # The script's default is int32.
    for integers, optimised in ((torch.int64, False), (torch.int32, True)):
        path = args.folder / f"gpt2_ort131_joined_{'fused' if optimised else 'written_out'}.onnx"
        gpt2_helper.Gpt2Helper.export_onnx(model, torch.device("cpu"), str(path), input_ids_dtype=integers,
                                           position_ids_dtype=integers, attention_mask_dtype=integers)
        if optimised:
            gpt2_helper.Gpt2Helper.optimize_onnx(str(path), str(path), False, HEADS, HIDDEN)
        written = onnx.load(path)
        for node in written.graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
        del written.graph.value_info[:]
        onnx.save(written, path)
        print(f"{path.name}: {path.stat().st_size} bytes, {len(written.graph.node)} nodes")


if __name__ == "__main__":
    main()
