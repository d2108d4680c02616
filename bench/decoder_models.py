#!/usr/bin/env python3
"""Writes the models of `make bench BENCH=decoders`, with seeded weights, in the formats of the peers.

    decoder_models.py FOLDER [--only SUBSTRING]     writes what is missing

Run it in the peers' environment (build/decoder_peers), which sees the packages of .venv. FOLDER/<name>/ is a model's
folder, with the files of Hugging Face's exporters, from PyTorch's TorchScript exporter. FOLDER/<name>/ctranslate2 has
the same weights in the format of CTranslate2's converters, and FOLDER/<name>/model.gguf in that of llama.cpp.
"""

import argparse
import dataclasses
import pathlib
import shutil
import sys
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "models"))

OPSET = 17
SEED = 7


@dataclasses.dataclass(frozen=True)
class Shape:
    """`inner`: columns between a layer's two last products; `source`: it has an encoder of as many layers; `beams`: of each
    answer."""

    name: str
    layers: int
    hidden: int
    heads: int
    inner: int
    vocabulary: int
    source: bool = False
    beams: int = 1

    @property
    def step_weights(self):
        """Parameters that every step reads: the decoder's products and that of the logits."""
        attention = 4 * self.hidden * self.hidden + (2 * self.hidden * self.hidden if self.source else 0)
        return self.layers * (attention + 2 * self.hidden * self.inner) + self.hidden * self.vocabulary

    @property
    def token_bytes(self):
        return 2 * 4 * self.layers * self.hidden


SHAPES = {
    "gpt2": Shape("gpt2", 12, 768, 12, 3072, 50257),
    "t5_small": Shape("t5_small", 6, 512, 8, 2048, 32128, source=True),
    "transformer_base": Shape("transformer_base", 6, 512, 8, 2048, 32000, source=True),
    # TurboTransformers' decoder (Fang et al., PPoPP 2021, Table 3): 6 layers, 16 heads, 4 beams. The table names only
    # 3072 of its sizes, under "hidden_size", where its other rows have that of the layers between; heads have 64
    # columns, as in those.
    "turbo_decoder": Shape("turbo_decoder", 6, 1024, 16, 3072, 32000, source=True, beams=4),
}


def seeded(shape):
    """A transformers model."""
    import torch
    import transformers as t

    torch.manual_seed(SEED)
    untied = dict(tie_word_embeddings=False)  # else seeded weights repeat a token for ever
    if shape.name == "gpt2":
        model = t.GPT2LMHeadModel(t.GPT2Config())
        # Likewise: the next token should depend on the position.
        model.transformer.wpe.weight.data.normal_(0, 0.5)
    elif shape.name == "t5_small":
        model = t.T5ForConditionalGeneration(t.T5Config(
            vocab_size=shape.vocabulary, d_model=shape.hidden, d_kv=shape.hidden // shape.heads, d_ff=shape.inner,
            num_layers=shape.layers, num_heads=shape.heads, decoder_start_token_id=0, **untied))
    else:
        model = t.MarianMTModel(t.MarianConfig(
            vocab_size=shape.vocabulary, d_model=shape.hidden, encoder_layers=shape.layers,
            decoder_layers=shape.layers, encoder_attention_heads=shape.heads, decoder_attention_heads=shape.heads,
            encoder_ffn_dim=shape.inner, decoder_ffn_dim=shape.inner, max_position_embeddings=512, scale_embedding=True,
            activation_function="relu", eos_token_id=0, pad_token_id=shape.vocabulary - 1,
            decoder_start_token_id=shape.vocabulary - 1, forced_eos_token_id=None, **untied))
    return model.eval()


def write_onnx(shape, model, folder):
    import export_decoders
    import export_encoder_decoders

    if not shape.source:
        export_decoders.export(model, shape.heads, folder / "model.onnx", OPSET)
    else:
        export_encoder_decoders.export(model, folder, OPSET, with_past=True, merged=False)


def write_ctranslate2(shape, model, folder):
    from ctranslate2.converters import transformers as converters

    tokens = [str(i) for i in range(shape.vocabulary)]
    loader = {"gpt2": converters.GPT2Loader, "t5_small": converters.T5Loader}.get(shape.name, converters.MarianMTLoader)()
    spec = loader.get_model_spec(model)
    if shape.source:
        if shape.name != "t5_small":
            tokens.pop()  # padding, which begins answers; the converter leaves it out
        spec.register_source_vocabulary(tokens)
        spec.register_target_vocabulary(tokens)
        spec.config.decoder_start_token = tokens[0]
        spec.config.eos_token = tokens[model.config.eos_token_id]
        spec.config.bos_token = spec.config.unk_token = tokens[2]
    else:
        spec.register_vocabulary(tokens)
        spec.config.bos_token = spec.config.eos_token = spec.config.unk_token = tokens[-1]
    spec.validate()
    spec.optimize()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    spec.save(str(folder))


def write_gguf(shape, model, path):
    import gguf

    writer = gguf.GGUFWriter(str(path), "gpt2")
    writer.add_context_length(model.config.n_positions)
    writer.add_embedding_length(shape.hidden)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_layer_norm_eps(model.config.layer_norm_epsilon)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("none")
    writer.add_vocab_size(shape.vocabulary)
    weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}

    def add(name, of, transposed=False):
        for suffix in ("weight", "bias"):
            if f"{of}.{suffix}" in weights:
                value = weights[f"{of}.{suffix}"]
                writer.add_tensor(f"{name}.{suffix}", value.T.copy() if transposed and value.ndim == 2 else value)

    add("token_embd", "transformer.wte")
    add("position_embd", "transformer.wpe")
    add("output_norm", "transformer.ln_f")
    for i in range(shape.layers):
        of = f"transformer.h.{i}."
        add(f"blk.{i}.attn_norm", of + "ln_1")
        add(f"blk.{i}.attn_qkv", of + "attn.c_attn", True)
        add(f"blk.{i}.attn_output", of + "attn.c_proj", True)
        add(f"blk.{i}.ffn_norm", of + "ln_2")
        add(f"blk.{i}.ffn_up", of + "mlp.c_fc", True)
        add(f"blk.{i}.ffn_down", of + "mlp.c_proj", True)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write(shape, folder):
    """Writes the missing files of one model."""
    first = "encoder_model.onnx" if shape.source else "model.onnx"
    forms = {folder / "1" / first: lambda model: write_onnx(shape, model, folder / "1"),
             folder / "ctranslate2" / "model.bin": lambda model: write_ctranslate2(shape, model, folder / "ctranslate2")}
    if not shape.source:
        forms[folder / "model.gguf"] = lambda model: write_gguf(shape, model, folder / "model.gguf")
    missing = [form for file, form in forms.items() if not file.exists()]
    if not missing:
        return
    (folder / "1").mkdir(parents=True, exist_ok=True)
    model = seeded(shape)
    for form in missing:
        form(model)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="", help="models whose name holds this")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    for name, shape in SHAPES.items():
        if args.only in name:
            write(shape, args.folder / name)


if __name__ == "__main__":
    main()
