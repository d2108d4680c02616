#!/usr/bin/env python3
"""Writes a small Whisper that must be served as a model that generates from features.

It has some kilobytes and seeded weights. PyTorch's exporter writes it, with the files and names of Hugging Face's
exporters.

    pip install torch transformers onnx
    python tests/models/export_speech.py tests/models/speech
"""

import argparse
import json
import pathlib
import warnings

import torch
import transformers
from transformers.cache_utils import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

from export_encoder_decoders import HEADS, HIDDEN, LAYERS, VOCABULARY, caches, write

ROWS, PLACES = 8, 12


class Encoder(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.encoder = model.get_encoder()

    def forward(self, input_features):
        return self.encoder(input_features=input_features).last_hidden_state


class FirstStep(torch.nn.Module):
    """decoder_model.onnx: all tokens so far, and no past."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, encoder_hidden_states):
        got = self.model(decoder_input_ids=input_ids,
                         encoder_outputs=BaseModelOutput(last_hidden_state=encoder_hidden_states),
                         past_key_values=EncoderDecoderCache(DynamicCache(), DynamicCache()), use_cache=True)
        return (got.logits, *caches(got.past_key_values))


def export(model, folder, opset):
    folder.mkdir(parents=True, exist_ok=True)
    write(Encoder(model), [torch.randn(2, ROWS, 2 * PLACES)], folder / "encoder_model.onnx", opset, ["input_features"],
          ["last_hidden_state"],
          {"input_features": {0: "batch_size", 1: "feature_size", 2: "encoder_sequence_length"},
           "last_hidden_state": {0: "batch_size"}})
    decoder = {0: "batch_size", 1: "decoder_sequence_length"}
    axes = {"input_ids": decoder, "encoder_hidden_states": {0: "batch_size", 1: "encoder_sequence_length / 2"},
            "logits": decoder}
    outputs = ["logits"]
    for layer in range(LAYERS):
        for of in ("decoder", "encoder"):
            for what in ("key", "value"):
                outputs.append(f"present.{layer}.{of}.{what}")
                axes[outputs[-1]] = {0: "batch_size", 2: f"{of}_sequence_length_out"}
    write(FirstStep(model), [torch.randint(2, VOCABULARY, (2, 3)), torch.randn(2, PLACES, HIDDEN)],
          folder / "decoder_model.onnx", opset, ["input_ids", "encoder_hidden_states"], outputs, axes)
    config = dict(decoder_start_token_id=3, eos_token_id=2, forced_decoder_ids=[[1, 9], [2, 20]],
                  begin_suppress_tokens=[5])
    (folder / "generation_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    t = transformers
    torch.manual_seed(7)
    model = t.WhisperForConditionalGeneration(t.WhisperConfig(
        vocab_size=VOCABULARY, num_mel_bins=ROWS, d_model=HIDDEN, encoder_layers=LAYERS, decoder_layers=LAYERS,
        encoder_attention_heads=HEADS, decoder_attention_heads=HEADS, encoder_ffn_dim=24, decoder_ffn_dim=24,
        max_source_positions=PLACES, max_target_positions=64, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=3, tie_word_embeddings=False, attn_implementation="sdpa", begin_suppress_tokens=None,
        suppress_tokens=None))
    for parameter in model.parameters():  # so large that answers differ
        large = 0.02 if parameter.dim() == 1 else 1.0 if parameter.shape[0] == VOCABULARY else 0.4
        parameter.data += large * torch.randn_like(parameter)
    export(model, args.folder / f"whisper_hf{t.__version__.split('.')[0]}_torchscript_sdpa_17", 17)


if __name__ == "__main__":
    main()
