"""Transformers architectures of small sizes and seeded random weights, as torch.onnx.export(dynamo=True) writes them."""

import inspect

import torch
import transformers

VOCABULARY = 200

# By class of configuration: what its own defaults do not make small.
_TINY = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "d_model": 32, "n_embd": 32, "word_embed_proj_dim": 32,
    "embedding_size": 32, "projection_dim": 32, "intermediate_size": 48, "ffn_dim": 48, "d_ff": 48, "n_inner": 48,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_hidden_layers": 2, "n_layer": 2, "num_layers": 2,
    "encoder_layers": 2, "decoder_layers": 2, "n_layers": 2, "num_decoder_layers": 2, "num_attention_heads": 4,
    "n_head": 4, "num_heads": 4, "n_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8, "dim": 32, "hidden_dim": 48, "max_position_embeddings": 64,
    "n_positions": 64, "n_ctx": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "attention_dropout": 0.0, "ffn_hidden_size": 48, "num_kv_heads": 2, "max_seq_len": 64, "hidden_dropout": 0.0,
}  # fmt: skip


def tiny(config, **more):
    """A configuration with the small sizes that it knows, then `more`."""
    names = set(inspect.signature(config.__init__).parameters) | set(getattr(config, "__annotations__", {}))
    for base in config.__mro__:
        names |= set(getattr(base, "__annotations__", {}))
    aliases = set(getattr(config, "attribute_map", {}) or {})
    chosen = {name: size for name, size in _TINY.items() if name in names and name not in aliases}
    return config(**{**chosen, **more})


# (name, configuration, its own sizes, model class)
ENCODERS = [
    ("bert", "BertConfig", {}, "BertModel"),
    ("roberta", "RobertaConfig", {"max_position_embeddings": 66}, "RobertaForTokenClassification"),
    ("xlm-roberta", "XLMRobertaConfig", {"max_position_embeddings": 66}, "XLMRobertaForSequenceClassification"),
    ("distilbert", "DistilBertConfig", {}, "DistilBertModel"),
    ("electra", "ElectraConfig", {}, "ElectraModel"),
    ("albert", "AlbertConfig", {}, "AlbertModel"),
    ("deberta-v2", "DebertaV2Config", {}, "DebertaV2Model"),
    ("mpnet", "MPNetConfig", {"max_position_embeddings": 66}, "MPNetModel"),
    ("convbert", "ConvBertConfig", {"head_ratio": 2}, "ConvBertModel"),
    ("mobilebert", "MobileBertConfig", {"intra_bottleneck_size": 32, "true_hidden_size": 32}, "MobileBertModel"),
    ("squeezebert", "SqueezeBertConfig", {}, "SqueezeBertModel"),
    ("modernbert", "ModernBertConfig", {"cls_token_id": 1, "sep_token_id": 2, "local_attention": 8,
                                        "num_hidden_layers": 4}, "ModernBertModel"),
    ("nomic", "NomicBertConfig", {}, "NomicBertModel"),
    ("eurobert", "EuroBertConfig", {}, "EuroBertModel"),
    ("t5-encoder", "T5Config", {}, "T5EncoderModel"),
    ("clip-text", "CLIPTextConfig", {"eos_token_id": 3}, "CLIPTextModel"),
    ("siglip-text", "SiglipTextConfig", {}, "SiglipTextModel"),
    ("gemma3-text", "Gemma3TextConfig", {"use_bidirectional_attention": True, "sliding_window": 8,
                                         "num_hidden_layers": 6}, "Gemma3TextModel"),
]  # fmt: skip

DECODERS = [
    ("gpt2", "GPT2Config", {}, "GPT2LMHeadModel"),
    ("gpt-neox", "GPTNeoXConfig", {}, "GPTNeoXForCausalLM"),
    ("opt", "OPTConfig", {}, "OPTForCausalLM"),
    ("bloom", "BloomConfig", {}, "BloomForCausalLM"),
    ("falcon", "FalconConfig", {}, "FalconForCausalLM"),
    ("llama", "LlamaConfig", {}, "LlamaForCausalLM"),
    ("mistral", "MistralConfig", {"sliding_window": None}, "MistralForCausalLM"),
    ("mistral-window", "MistralConfig", {"sliding_window": 8}, "MistralForCausalLM"),
    ("mixtral", "MixtralConfig", {"num_local_experts": 4}, "MixtralForCausalLM"),
    ("qwen2", "Qwen2Config", {}, "Qwen2ForCausalLM"),
    ("qwen3", "Qwen3Config", {}, "Qwen3ForCausalLM"),
    ("phi", "PhiConfig", {}, "PhiForCausalLM"),
    ("phi3", "Phi3Config", {}, "Phi3ForCausalLM"),
    ("gemma", "GemmaConfig", {}, "GemmaForCausalLM"),
    ("gemma2", "Gemma2Config", {"sliding_window": 8, "query_pre_attn_scalar": 8}, "Gemma2ForCausalLM"),
    ("gemma3", "Gemma3TextConfig", {"sliding_window": 8, "num_hidden_layers": 6, "query_pre_attn_scalar": 8},
     "Gemma3ForCausalLM"),
    ("smollm3", "SmolLM3Config", {"num_hidden_layers": 4}, "SmolLM3ForCausalLM"),
    ("olmo2", "Olmo2Config", {}, "Olmo2ForCausalLM"),
    ("granite", "GraniteConfig", {}, "GraniteForCausalLM"),
    ("cohere", "CohereConfig", {}, "CohereForCausalLM"),
    ("glm4", "Glm4Config", {}, "Glm4ForCausalLM"),
    ("nemotron", "NemotronConfig", {}, "NemotronForCausalLM"),
    ("starcoder2", "Starcoder2Config", {}, "Starcoder2ForCausalLM"),
    ("stablelm", "StableLmConfig", {}, "StableLmForCausalLM"),
    ("ernie4.5", "Ernie4_5Config", {}, "Ernie4_5ForCausalLM"),
]  # fmt: skip


# Without a cache: the score of each row's last token.
RERANKERS = [
    ("qwen3", "Qwen3Config", {}, "Qwen3ForSequenceClassification"),
    ("gemma", "GemmaConfig", {}, "GemmaForSequenceClassification"),
    ("gpt2", "GPT2Config", {}, "GPT2ForSequenceClassification"),
]  # fmt: skip

_WAVES = {"conv_dim": (16, 16), "conv_stride": (10, 8), "conv_kernel": (10, 8), "num_feat_extract_layers": 2,
          "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 2}  # fmt: skip
_STAGES = {"hidden_sizes": [16, 32], "depths": [1, 1], "num_stages": 2}

# (name, configuration, its own sizes, model class, shapes of its inputs by name: numbers and names of open dimensions)
OTHERS = [
    ("vit", "ViTConfig", {"image_size": 64}, "ViTModel", {"pixel_values": ("batch", 3, 64, 64)}),
    ("convnext", "ConvNextConfig", _STAGES, "ConvNextModel", {"pixel_values": ("batch", 3, 64, 64)}),
    ("convnext-v2", "ConvNextV2Config", _STAGES, "ConvNextV2Model", {"pixel_values": ("batch", 3, 64, 64)}),
    ("segformer", "SegformerConfig",
     {"num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1], "hidden_sizes": [8, 16], "patch_sizes": [7, 3],
      "strides": [4, 2], "num_attention_heads": [1, 2], "mlp_ratios": [2, 2], "decoder_hidden_size": 16},
     "SegformerForSemanticSegmentation", {"pixel_values": ("batch", 3, 64, 64)}),
    ("yolos", "YolosConfig", {"image_size": [64, 64], "num_detection_tokens": 5}, "YolosForObjectDetection",
     {"pixel_values": ("batch", 3, 64, 64)}),
    ("detr", "DetrConfig",
     {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone": None, "num_queries": 5,
      "backbone_config": ("ResNetConfig", {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1],
                                           "out_features": ["stage2"]})},
     "DetrForObjectDetection", {"pixel_values": ("batch", 3, 64, 64)}),
    ("wav2vec2", "Wav2Vec2Config", _WAVES, "Wav2Vec2Model", {"input_values": ("batch", "samples")}),
    ("hubert", "HubertConfig", _WAVES, "HubertModel", {"input_values": ("batch", "samples")}),
    ("wavlm", "WavLMConfig", _WAVES, "WavLMModel", {"input_values": ("batch", "samples")}),
]  # fmt: skip

# (name, configuration, its own sizes, model class): encoder and decoder, in two files.
ENCODER_DECODERS = [
    ("bart", "BartConfig", {"decoder_start_token_id": 2, "forced_eos_token_id": None}, "BartForConditionalGeneration"),
    ("marian", "MarianConfig", {"decoder_start_token_id": 0, "decoder_vocab_size": VOCABULARY,
                                "forced_eos_token_id": None}, "MarianMTModel"),
    ("t5", "T5Config", {"decoder_start_token_id": 0}, "T5ForConditionalGeneration"),
]  # fmt: skip


def attention(entry):
    """The fastest that the entry's class has."""
    return "sdpa" if getattr(getattr(transformers, entry[3]), "_supports_sdpa", False) else "eager"


def build(entry, attention="sdpa"):
    """The entry's model, in evaluation mode. Seeded."""
    _, config, more, model = entry[:4]
    more = {key: tiny(getattr(transformers, value[0]), **value[1]) if key == "backbone_config" else value
            for key, value in more.items()}  # fmt: skip
    config = tiny(getattr(transformers, config), **more)
    config._attn_implementation = attention
    torch.manual_seed(7)
    made = getattr(transformers, model)(config).eval()
    with torch.no_grad():  # random weights of a tiny model say too little otherwise
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4.0)
    return made


class Plain(torch.nn.Module):
    """Without cache: tokens and mask in, the first output out."""

    def __init__(self, model, **more):
        super().__init__()
        self.model, self.more = model, more

    def forward(self, input_ids, attention_mask):
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, return_dict=True, **self.more)
        pooled = [] if getattr(out, "pooler_output", None) is None else [out.pooler_output]
        return tuple([out[0]] + pooled)


class Embedding(torch.nn.Module):
    """The last token that counts of each row (Qwen3-Embedding)."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        states = self.model(input_ids=input_ids, attention_mask=attention_mask, use_cache=False)[0]
        last = attention_mask.sum(dim=1) - 1
        return states[torch.arange(states.shape[0], device=states.device), last]


class Cached(torch.nn.Module):
    """With DynamicCache flattened: one step."""

    def __init__(self, model, layers, positions):
        super().__init__()
        self.model, self.layers, self.positions = model, layers, positions

    def forward(self, input_ids, attention_mask, position_ids, past):
        cache = transformers.DynamicCache()
        for layer, (key, value) in enumerate(past):
            cache.update(key, value, layer)
        more = {"position_ids": position_ids} if self.positions else {}
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True,
                         return_dict=True, **more)
        present = []
        for layer in out.past_key_values.layers:
            present += [layer.keys, layer.values]
        return tuple([out.logits] + present)


def export_plain(model, path, opset=None, **more):
    """[batch, length] tokens and mask, both open."""
    ids = torch.randint(3, VOCABULARY, (2, 9))
    wrapped = model if isinstance(model, Embedding) else Plain(model, **more)
    program = torch.onnx.export(
        wrapped, (ids, torch.ones_like(ids)), dynamo=True, opset_version=opset, verbose=False,
        dynamic_shapes={name: {0: "batch", 1: "length"} for name in ("input_ids", "attention_mask")},
        input_names=["input_ids", "attention_mask"])  # fmt: skip
    program.save(path)


class Tensors(torch.nn.Module):
    """All tensors that a model gives."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, given):
        return tuple(t for t in self.model(given).to_tuple() if isinstance(t, torch.Tensor))


def export_other(model, path, inputs):
    """One input of floats."""
    (name, shape), = inputs.items()
    given = torch.randn([2 if size == "batch" else 4000 if isinstance(size, str) else size for size in shape])
    dims = {axis: size for axis, size in enumerate(shape) if isinstance(size, str)}
    torch.onnx.export(Tensors(model), (given,), dynamo=True, verbose=False, dynamic_shapes=(dims,),
                      input_names=[name]).save(path)  # fmt: skip


class Source(torch.nn.Module):
    """An encoder."""

    def __init__(self, model):
        super().__init__()
        self.model = model.get_encoder()

    def forward(self, input_ids, attention_mask):
        return self.model(input_ids=input_ids, attention_mask=attention_mask)[0]


class Answer(torch.nn.Module):
    """A decoder over an encoder's output, with a cache of its own tokens if `past` is given."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, encoder_hidden_states, encoder_attention_mask, past=None):
        own = transformers.DynamicCache()
        for layer, (key, value) in enumerate(past or []):
            own.update(key, value, layer)
        out = self.model(
            attention_mask=encoder_attention_mask, decoder_input_ids=input_ids, use_cache=past is not None,
            encoder_outputs=transformers.modeling_outputs.BaseModelOutput(last_hidden_state=encoder_hidden_states),
            past_key_values=None if past is None else transformers.EncoderDecoderCache(own, transformers.DynamicCache()))
        if past is None:
            return out.logits
        return tuple([out.logits] + [t for layer in out.past_key_values.self_attention_cache.layers
                                     for t in (layer.keys, layer.values)])  # fmt: skip


def export_pair(model, path, cached):
    """`path` is the decoder's; encoder_model.onnx is written beside it."""
    source, new = torch.randint(3, VOCABULARY, (2, 7)), torch.randint(3, VOCABULARY, (2, 3))
    mask, hidden = torch.ones_like(source), torch.randn(2, 7, 32)
    of_source, of_new = {0: "batch", 1: "source"}, {0: "batch", 1: "new"}
    torch.onnx.export(Source(model), (source, mask), dynamo=True, verbose=False, dynamic_shapes=(of_source, of_source),
                      input_names=["input_ids", "attention_mask"],
                      output_names=["last_hidden_state"]).save(path.parent / "encoder_model.onnx")  # fmt: skip
    inputs, outputs = ["input_ids", "encoder_hidden_states", "encoder_attention_mask"], ["logits"]
    feeds, shapes = (new, hidden, mask), (of_new, of_source, of_source)
    if cached:
        with torch.no_grad():
            first = model(input_ids=source, decoder_input_ids=new, use_cache=True).past_key_values.self_attention_cache
        past = [(layer.keys, layer.values) for layer in first.layers]
        for layer in range(len(past)):
            inputs += [f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"]
            outputs += [f"present.{layer}.key", f"present.{layer}.value"]
        feeds, shapes = (*feeds, past), (*shapes, [({0: "batch", 2: "past"},) * 2] * len(past))
    torch.onnx.export(Answer(model), feeds, dynamo=True, verbose=False, dynamic_shapes=shapes, input_names=inputs,
                      output_names=outputs).save(path)  # fmt: skip


def export_cached(model, path, positions, opset=None, names=True):
    """One step over the past, named as Hugging Face's exporters do or as torch.export flattens it."""
    config = model.config.get_text_config()
    layers = config.num_hidden_layers
    with torch.no_grad():
        first = model(input_ids=torch.randint(3, VOCABULARY, (2, 4)), use_cache=True).past_key_values
    past = [(layer.keys, layer.values) for layer in first.layers]
    ids = torch.randint(3, VOCABULARY, (2, 3))
    mask = torch.ones(2, 7, dtype=torch.int64)
    place = torch.arange(4, 7).expand(2, 3).contiguous()
    inputs, outputs = ["input_ids", "attention_mask"], ["logits"]
    if positions:
        inputs.append("position_ids")
    for layer in range(layers):
        inputs += [f"past_key_values.{layer}.key", f"past_key_values.{layer}.value"]
        outputs += [f"present.{layer}.key", f"present.{layer}.value"]
    arguments = {"input_ids": ids, "attention_mask": mask, "position_ids": place if positions else None, "past": past}
    shapes = {
        "input_ids": {0: "batch", 1: "new"}, "attention_mask": {0: "batch", 1: "total"},
        "position_ids": {0: "batch", 1: "new"} if positions else None,
        "past": [({0: "batch", 2: "past"}, {0: "batch", 2: "past"}) for _ in range(layers)],
    }  # fmt: skip
    program = torch.onnx.export(
        Cached(model, layers, positions), (), kwargs=arguments, dynamo=True, opset_version=opset, verbose=False,
        dynamic_shapes=shapes, **({"input_names": inputs, "output_names": outputs} if names else {}))  # fmt: skip
    program.save(path)

