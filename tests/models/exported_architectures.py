"""The architectures that exporters.py exports: small sizes, seeded random weights, and dynamic dimensions as usual."""

import dataclasses
import pathlib
import tempfile
from typing import Callable

import numpy as np

BATCH = {0: "batch"}
TOKENS = {0: "batch", 1: "length"}
IMAGE = {0: "batch", 2: "height", 3: "width"}


@dataclasses.dataclass
class Case:
    name: str
    write: Callable[[pathlib.Path], None]


def cases(exporter):
    """The cases of one exporter; ImportError where it is not installed."""
    return {
        "torchscript": lambda: torch_cases(dynamo=False),
        "dynamo": lambda: torch_cases(dynamo=True),
        "optimum": optimum_cases,
        "ultralytics": ultralytics_cases,
        "tf2onnx": lambda: keras_cases(write_tf2onnx),
        "keras-torch": lambda: keras_cases(write_keras),
        "keras-tensorflow": lambda: keras_cases(write_keras),
        "jax2onnx": jax_cases,
        "skl2onnx": sklearn_cases,
    }[exporter]()


# ---- torch ----


@dataclasses.dataclass
class Traced:
    """A torch module; its inputs by name, with the dimensions that stay open; the outputs' open dimensions."""

    make: Callable
    inputs: dict
    outputs: dict
    opset: int = 0


def torch_cases(dynamo):
    import torch

    # One operator for a whole layer, which no exporter writes.
    torch.backends.mha.set_fastpath_enabled(False)

    ids = lambda: torch.randint(3, 24, (2, 9))  # noqa: E731

    def mask():
        ones = torch.ones(2, 9, dtype=torch.int64)
        ones[1, 6:] = 0
        return ones

    def image(size, axes=None, channels=3):
        return torch.randn(2, channels, size, size), axes or BATCH

    models = {}
    models |= vision(image)
    models |= sequences(torch, ids, mask)
    models |= transformers_models(torch, ids, mask, image)

    def writer(traced):
        def write(path):
            torch.manual_seed(7)
            module = traced.make().eval()
            for parameter in module.parameters():  # none equal to another, which exporters would merge
                parameter.data += 0.02 * torch.randn_like(parameter)
            export_torch(module, traced, path, dynamo)

        return write

    return [Case(name, writer(traced)) for name, traced in models.items()]


def export_torch(module, traced, path, dynamo):
    import torch

    args = tuple(value for value, _ in traced.inputs.values())
    axes = {name: dims for name, (_, dims) in traced.inputs.items() if dims}
    more = {"opset_version": traced.opset} if traced.opset else {}
    with torch.no_grad():
        if dynamo:
            # AUTO: a dimension that the architecture, or the exporter, fixes becomes a number.
            shapes = {name: {axis: torch.export.Dim.AUTO for axis in dims} for name, (_, dims) in traced.inputs.items()}
            given = {name: value for name, (value, _) in traced.inputs.items()}
            named = isinstance(module, Named)
            torch.onnx.export(module.model if named else module, () if named else args, str(path),
                              kwargs=given if named else None, dynamo=True, input_names=list(traced.inputs),
                              output_names=None if named else list(traced.outputs),
                              dynamic_shapes=shapes if named else tuple(shapes.values()), external_data=False,
                              verbose=False, **more)
        else:
            torch.onnx.export(module, args, str(path), dynamo=False, input_names=list(traced.inputs),
                              output_names=list(traced.outputs), dynamic_axes=axes | traced.outputs, **more)


def vision(image):
    import torch
    import torchvision
    from torch import nn
    from torchvision import models

    small, open_size = image(64), image(64, IMAGE)

    def classifier(make, given=small):
        return Traced(make, {"image": given}, {"logits": BATCH})

    class Down(nn.Sequential):
        def __init__(self, into, out):
            super().__init__(nn.Conv2d(into, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(),
                             nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU())

    class UNet(nn.Module):
        """A U-Net. `up` is the upsampling: 'transposed' convolutions or 'bilinear'."""

        def __init__(self, up):
            super().__init__()
            self.down = nn.ModuleList([Down(3, 8), Down(8, 16), Down(16, 32)])
            self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2) if up == "transposed" else nn.Conv2d(32, 16, 1),
                                     nn.ConvTranspose2d(16, 8, 2, 2) if up == "transposed" else nn.Conv2d(16, 8, 1)])
            self.join = nn.ModuleList([Down(32, 16), Down(16, 8)])
            self.last = nn.Conv2d(8, 4, 1)
            self.bilinear = up == "bilinear"

        def forward(self, x):
            kept = []
            for stage in self.down[:-1]:
                x = stage(x)
                kept.append(x)
                x = nn.functional.max_pool2d(x, 2)
            x = self.down[-1](x)
            for grow, join in zip(self.up, self.join):
                skip = kept.pop()
                x = grow(x)
                if self.bilinear:
                    x = nn.functional.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)
                x = join(torch.cat([skip, x], 1))
            return self.last(x)

    class Output(nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x)["out"]

    class Detector(nn.Module):
        """One image in, boxes, labels and scores out, as torchvision's detectors are exported."""

        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, x):
            found = self.model([x[0]])[0]
            return found["boxes"], found["scores"], found["labels"]

    class Deformed(nn.Module):
        def __init__(self):
            super().__init__()
            self.offset = nn.Conv2d(3, 18, 3, padding=1)
            self.mask = nn.Conv2d(3, 9, 3, padding=1)
            self.conv = torchvision.ops.DeformConv2d(3, 8, 3, padding=1)

        def forward(self, x):
            return self.conv(x, self.offset(x), torch.sigmoid(self.mask(x)))

    class Sampled(nn.Module):
        """A spatial transformer: an affine grid that follows from the image, sampled."""

        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, stride=2, padding=1)
            self.theta = nn.Linear(4, 6)

        def forward(self, x):
            theta = self.theta(self.conv(x).mean((2, 3))).view(-1, 2, 3)
            return nn.functional.grid_sample(x, nn.functional.affine_grid(theta, x.size(), align_corners=False),
                                             align_corners=False)

    class SuperResolution(nn.Sequential):
        def __init__(self):
            super().__init__(nn.Conv2d(3, 16, 5, padding=2), nn.PReLU(), nn.Conv2d(16, 12, 3, padding=1),
                             nn.PixelShuffle(2), nn.InstanceNorm2d(3, affine=True), nn.Hardtanh())

    same_size = {"image": open_size}
    boxes = {"boxes": {0: "found"}, "scores": {0: "found"}, "labels": {0: "found"}}
    one_image = {"image": (torch.rand(1, 3, 96, 96), {})}
    return {
        "resnet18": classifier(lambda: models.resnet18(num_classes=10)),
        "resnet18_open": classifier(lambda: models.resnet18(num_classes=10), open_size),
        "mobilenet_v3": classifier(lambda: models.mobilenet_v3_small(num_classes=10)),
        "efficientnet_b0": classifier(lambda: models.efficientnet_b0(num_classes=10)),
        "densenet": classifier(lambda: models.DenseNet(16, (2, 2, 2), 16, num_classes=10)),
        "shufflenet": classifier(lambda: models.shufflenet_v2_x0_5(num_classes=10)),
        "squeezenet": classifier(lambda: models.squeezenet1_1(num_classes=10)),
        "regnet": classifier(lambda: models.regnet_y_400mf(num_classes=10)),
        "googlenet": classifier(lambda: models.googlenet(num_classes=10, aux_logits=False, init_weights=False)),
        "vgg11": classifier(lambda: nn.Sequential(models.vgg11_bn().features[:15], nn.AdaptiveAvgPool2d(2), nn.Flatten(),
                                                  nn.Linear(1024, 10))),
        "vit": classifier(lambda: models.VisionTransformer(64, 16, 2, 2, 32, 64, num_classes=10)),
        "swin": classifier(lambda: models.SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10)),
        "swin_v2": classifier(lambda: models.SwinTransformer(
            [4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10,
            block=models.swin_transformer.SwinTransformerBlockV2,
            downsample_layer=models.swin_transformer.PatchMergingV2)),
        "maxvit": classifier(lambda: models.MaxVit((64, 64), 16, 4, [16, 32], [1, 1], 8, 0.0, num_classes=10)),
        "convnext": classifier(lambda: models.ConvNeXt(
            [models.convnext.CNBlockConfig(16, 32, 2), models.convnext.CNBlockConfig(32, None, 2)], num_classes=10)),
        "unet_transposed": Traced(lambda: UNet("transposed"), same_size, {"classes": IMAGE}),
        "unet_bilinear": Traced(lambda: UNet("bilinear"), same_size, {"classes": IMAGE}),
        "deeplab": Traced(lambda: Output(models.segmentation.deeplabv3_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=4)), same_size, {"classes": IMAGE}),
        "fcn": Traced(lambda: Output(models.segmentation.fcn_resnet50(
            weights=None, weights_backbone=None, num_classes=4)), {"image": small}, {"classes": BATCH}),
        "lraspp": Traced(lambda: Output(models.segmentation.lraspp_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=4)), same_size, {"classes": IMAGE}),
        "faster_rcnn": Traced(lambda: Detector(models.detection.fasterrcnn_mobilenet_v3_large_320_fpn(
            weights=None, weights_backbone=None, num_classes=4, min_size=96, max_size=96)), one_image, boxes),
        "ssdlite": Traced(lambda: Detector(models.detection.ssdlite320_mobilenet_v3_large(
            weights=None, weights_backbone=None, num_classes=4)), one_image, boxes),
        "retinanet": Traced(lambda: Detector(models.detection.RetinaNet(
            models.detection.backbone_utils.mobilenet_backbone(
                backbone_name="mobilenet_v3_large", weights=None, fpn=True, trainable_layers=6),
            4, anchor_generator=models.detection.anchor_utils.AnchorGenerator(
                ((32, 64),) * 3, ((0.5, 1.0, 2.0),) * 3), min_size=96, max_size=96)), one_image, boxes),
        "deform_conv": Traced(Deformed, same_size, {"y": IMAGE}, 19),
        "spatial_transformer": Traced(Sampled, {"image": small}, {"y": BATCH}, 20),
        "super_resolution": Traced(SuperResolution, same_size, {"y": IMAGE}),
        "video_r3d": Traced(lambda: models.video.VideoResNet(
            models.video.resnet.BasicBlock, [models.video.resnet.Conv3DSimple] * 4, [1, 1, 1, 1],
            models.video.resnet.BasicStem, num_classes=10),
            {"clip": (torch.randn(2, 3, 4, 32, 32), BATCH)}, {"logits": BATCH}),
    }


def sequences(torch, ids, mask):
    from torch import nn

    class Tagger(nn.Module):
        def __init__(self, kind, **more):
            super().__init__()
            self.embedding = nn.Embedding(24, 8)
            self.layers = kind(8, 12, batch_first=True, **more)
            self.out = nn.Linear(24 if more.get("bidirectional") else 12, 5)

        def forward(self, x):
            return self.out(self.layers(self.embedding(x))[0])

    class LastState(nn.Module):
        """A classifier of a GRU's last state, over [length, batch]."""

        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(24, 8)
            self.layers = nn.GRU(8, 12, num_layers=2)
            self.out = nn.Linear(12, 5)

        def forward(self, x):
            return self.out(self.layers(self.embedding(x))[1][-1])

    class Stream(nn.Module):
        """An LSTM whose states come and go with each chunk."""

        def __init__(self):
            super().__init__()
            self.layers = nn.LSTM(6, 8, num_layers=2)

        def forward(self, x, h, c):
            y, (h, c) = self.layers(x, (h, c))
            return y, h, c

    class Encoder(nn.Module):
        def __init__(self, batch_first=True):
            super().__init__()
            self.embedding = nn.Embedding(24, 16)
            layer = nn.TransformerEncoderLayer(16, 2, 24, batch_first=batch_first, norm_first=not batch_first)
            self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.out = nn.Linear(16, 5)

        def forward(self, x, attention_mask):
            return self.out(self.layers(self.embedding(x), src_key_padding_mask=attention_mask == 0))

    class Unmasked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 24, batch_first=True), 2,
                                                enable_nested_tensor=False)

        def forward(self, x):
            return self.layers(x)

    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(24, 16)
            self.query, self.key, self.value = (nn.Linear(16, 16) for _ in range(3))
            self.out = nn.Linear(16, 24)

        def forward(self, x):
            x = self.embedding(x)
            heads = [f(x).view(x.shape[0], x.shape[1], 2, 8).transpose(1, 2) for f in (self.query, self.key, self.value)]
            y = nn.functional.scaled_dot_product_attention(*heads, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(x.shape))

    class TextConvolution(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(24, 8)
            self.convolutions = nn.ModuleList(nn.Conv1d(8, 6, k, padding=k // 2) for k in (3, 5))
            self.out = nn.Linear(12, 5)

        def forward(self, x):
            x = self.embedding(x).transpose(1, 2)
            return self.out(torch.cat([torch.relu(c(x)).amax(2) for c in self.convolutions], 1))

    class Recommender(nn.Module):
        """As click-through models are: bags of embeddings, numbers, products of pairs."""

        def __init__(self):
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(24, 8) for _ in range(4))
            self.bottom = nn.Sequential(nn.Linear(5, 8), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(18, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())

        def forward(self, numbers, categories):
            x = self.bottom(numbers)
            rows = torch.stack([x] + [table(categories[:, i]) for i, table in enumerate(self.tables)], 1)
            products = torch.bmm(rows, rows.transpose(1, 2))
            i, j = torch.tril_indices(5, 5, -1)
            return self.top(torch.cat([x, products[:, i, j]], 1))

    tokens, tags = (ids(), TOKENS), {"y": TOKENS}
    both = {"input_ids": (ids(), TOKENS), "attention_mask": (mask(), TOKENS)}
    state = {1: "batch"}
    return {
        "lstm_tagger": Traced(lambda: Tagger(nn.LSTM, bidirectional=True), {"input_ids": tokens}, tags),
        "lstm_forward": Traced(lambda: Tagger(nn.LSTM, num_layers=2), {"input_ids": tokens}, tags),
        "gru_tagger": Traced(lambda: Tagger(nn.GRU, bidirectional=True), {"input_ids": tokens}, tags),
        "rnn_tagger": Traced(lambda: Tagger(nn.RNN), {"input_ids": tokens}, tags),
        "gru_classifier": Traced(LastState, {"input_ids": (ids(), {0: "length", 1: "batch"})}, {"y": BATCH}),
        "lstm_stream": Traced(Stream, {"x": (torch.randn(5, 2, 6), {0: "length", 1: "batch"}),
                                       "h": (torch.randn(2, 2, 8), state), "c": (torch.randn(2, 2, 8), state)},
                              {"y": {0: "length", 1: "batch"}, "h_out": state, "c_out": state}),
        "transformer_encoder": Traced(Encoder, both, tags),
        "transformer_unmasked": Traced(Unmasked, {"x": (torch.randn(2, 9, 16), TOKENS)}, tags),
        "causal_attention": Traced(Causal, {"input_ids": tokens}, tags),
        "text_cnn": Traced(TextConvolution, {"input_ids": tokens}, {"y": BATCH}),
        "recommender": Traced(Recommender, {"numbers": (torch.randn(2, 5), BATCH),
                                            "categories": (torch.randint(0, 24, (2, 4)), BATCH)}, {"y": BATCH}),
    }


class Named:
    """Set to the class below once torch is there."""


def transformers_models(torch, ids, mask, image):
    import transformers as t

    global Named

    class Named(torch.nn.Module):  # noqa: F811
        """A model's outputs by place, its inputs by name."""

        def __init__(self, model, inputs, outputs):
            super().__init__()
            self.model, self.inputs, self.outputs = model, list(inputs), list(outputs)

        def forward(self, *args):
            got = self.model(**dict(zip(self.inputs, args)))
            return tuple(got[name] for name in self.outputs)

    class TextFeatures(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, input_ids, attention_mask):
            return self.model.get_text_features(input_ids=input_ids, attention_mask=attention_mask)

    class ImageFeatures(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, pixel_values):
            return self.model.get_image_features(pixel_values=pixel_values)

    class MeanPooled(torch.nn.Module):
        """As sentence-transformers does: the mean over a sequence's tokens, of length one."""

        def __init__(self, encoder):
            super().__init__()
            self.encoder = encoder

        def forward(self, input_ids, attention_mask, token_type_ids):
            hidden = self.encoder(input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)[0]
            weight = attention_mask.unsqueeze(-1).expand(hidden.size()).float()
            mean = (hidden * weight).sum(1) / torch.clamp(weight.sum(1), min=1e-9)
            return torch.nn.functional.normalize(mean, p=2, dim=1)

    sizes = dict(vocab_size=24, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
                 max_position_embeddings=40)
    one = {"input_ids": (ids(), TOKENS)}
    two = one | {"attention_mask": (mask(), TOKENS)}
    three = two | {"token_type_ids": (torch.zeros(2, 9, dtype=torch.int64), TOKENS)}
    hidden, logits = {"last_hidden_state": TOKENS}, {"logits": BATCH}
    pixels = {"pixel_values": image(32)}
    vit = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=32,
               patch_size=8)
    speech = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, vocab_size=24,
                  conv_dim=(16, 16, 16), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3), num_conv_pos_embeddings=16,
                  num_conv_pos_embedding_groups=4, num_feat_extract_layers=3)
    wave = {"input_values": (torch.randn(2, 400), {0: "batch", 1: "samples"})}
    clip = dict(text_config=dict(sizes, eos_token_id=2, bos_token_id=1), vision_config=vit, projection_dim=12)
    t5 = dict(vocab_size=24, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2)

    def named(make, inputs, outputs):
        return Traced(lambda: Named(make(), inputs, outputs), inputs, outputs)

    return {
        "bert": named(lambda: t.BertModel(t.BertConfig(**sizes)), three,
                      hidden | {"pooler_output": BATCH}),
        "bert_eager": named(lambda: t.BertModel(t.BertConfig(**sizes, attn_implementation="eager")), three,
                            hidden | {"pooler_output": BATCH}),
        "bert_classifier": named(lambda: t.BertForSequenceClassification(t.BertConfig(**sizes)), two, logits),
        "bert_masked_lm": named(lambda: t.BertForMaskedLM(t.BertConfig(**sizes)), two, {"logits": TOKENS}),
        "minilm": Traced(lambda: MeanPooled(t.BertModel(t.BertConfig(**sizes), add_pooling_layer=False)), three,
                         {"sentence": BATCH}),
        "distilbert": named(lambda: t.DistilBertForSequenceClassification(t.DistilBertConfig(
            vocab_size=24, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=40)), two, logits),
        "roberta": named(lambda: t.RobertaForSequenceClassification(t.RobertaConfig(**sizes, pad_token_id=1)), two,
                         logits),
        "albert": named(lambda: t.AlbertModel(t.AlbertConfig(**sizes, embedding_size=8)), three, hidden),
        "electra": named(lambda: t.ElectraModel(t.ElectraConfig(**sizes, embedding_size=8)), three, hidden),
        "mpnet": named(lambda: t.MPNetModel(t.MPNetConfig(**sizes)), two, hidden),
        "xlm_roberta": named(lambda: t.XLMRobertaForTokenClassification(t.XLMRobertaConfig(**sizes, pad_token_id=1)),
                             two, {"logits": TOKENS}),
        "deberta": named(lambda: t.DebertaV2Model(t.DebertaV2Config(
            **sizes, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8,
            norm_rel_ebd="layer_norm", share_att_key=True, position_biased_input=False)), two, hidden),
        "modernbert": named(lambda: t.ModernBertModel(t.ModernBertConfig(
            **sizes, local_attention=8, global_attn_every_n_layers=2, pad_token_id=0, reference_compile=False,
            attn_implementation="sdpa")), two, hidden),
        "t5_encoder": named(lambda: t.T5EncoderModel(t.T5Config(**t5)), two, hidden),
        "t5": named(lambda: t.T5ForConditionalGeneration(t.T5Config(**t5, use_cache=False)),
                    two | {"decoder_input_ids": (ids(), {0: "batch", 1: "decoder_length"})},
                    {"logits": {0: "batch", 1: "decoder_length"}}),
        "gpt2": named(lambda: t.GPT2LMHeadModel(t.GPT2Config(
            vocab_size=24, n_embd=16, n_layer=2, n_head=2, n_positions=40, use_cache=False)), two, {"logits": TOKENS}),
        "gpt2_unmasked": named(lambda: t.GPT2LMHeadModel(t.GPT2Config(
            vocab_size=24, n_embd=16, n_layer=2, n_head=2, n_positions=40, use_cache=False)), one, {"logits": TOKENS}),
        "llama": named(lambda: t.LlamaForCausalLM(t.LlamaConfig(
            **sizes, num_key_value_heads=1, use_cache=False)), two, {"logits": TOKENS}),
        "qwen2": named(lambda: t.Qwen2Model(t.Qwen2Config(
            **sizes, num_key_value_heads=1, use_cache=False)), two, hidden),
        "vit_hf": named(lambda: t.ViTForImageClassification(t.ViTConfig(**vit)), pixels, logits),
        "deit": named(lambda: t.DeiTModel(t.DeiTConfig(**vit), add_pooling_layer=False), pixels,
                      {"last_hidden_state": BATCH}),
        "beit": named(lambda: t.BeitModel(t.BeitConfig(**vit, use_relative_position_bias=True)), pixels,
                      {"last_hidden_state": BATCH}),
        "dinov2": named(lambda: t.Dinov2Model(t.Dinov2Config(
            hidden_size=16, num_hidden_layers=2, num_attention_heads=2, mlp_ratio=2, image_size=32, patch_size=8)),
            {"pixel_values": image(32, IMAGE)}, {"last_hidden_state": {0: "batch", 1: "patches"}}),
        "swin_hf": named(lambda: t.SwinModel(t.SwinConfig(
            image_size=32, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 2], window_size=4)), pixels,
            {"last_hidden_state": BATCH}),
        "segformer": named(lambda: t.SegformerForSemanticSegmentation(t.SegformerConfig(
            num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16], patch_sizes=[7, 3],
            strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=16, num_labels=4)),
            {"pixel_values": image(64, IMAGE)}, {"logits": IMAGE}),
        "whisper_encoder": named(lambda: t.WhisperModel(t.WhisperConfig(
            vocab_size=24, d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, num_mel_bins=8,
            max_source_positions=50, max_target_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2,
            decoder_start_token_id=1)).get_encoder(),
            {"input_features": (torch.randn(2, 8, 100), BATCH)}, {"last_hidden_state": BATCH}),
        "wav2vec2": named(lambda: t.Wav2Vec2ForCTC(t.Wav2Vec2Config(**speech)), wave,
                          {"logits": {0: "batch", 1: "frames"}}),
        "wav2vec2_stable": named(lambda: t.Wav2Vec2ForCTC(t.Wav2Vec2Config(
            **speech, do_stable_layer_norm=True, feat_extract_norm="layer")), wave,
            {"logits": {0: "batch", 1: "frames"}}),
        "hubert": named(lambda: t.HubertModel(t.HubertConfig(**speech)), wave,
                        {"last_hidden_state": {0: "batch", 1: "frames"}}),
        "clip_text": Traced(lambda: TextFeatures(t.CLIPModel(t.CLIPConfig(**clip))), two, {"text_embeds": BATCH}),
        "clip_vision": Traced(lambda: ImageFeatures(t.CLIPModel(t.CLIPConfig(**clip))), pixels,
                              {"image_embeds": BATCH}),
        "siglip_vision": named(lambda: t.SiglipVisionModel(t.SiglipVisionConfig(**vit)), pixels,
                               {"last_hidden_state": BATCH, "pooler_output": BATCH}),
        "patch_tst": named(lambda: t.PatchTSTForPrediction(t.PatchTSTConfig(
            num_input_channels=2, context_length=32, patch_length=8, patch_stride=8, d_model=16, num_hidden_layers=2,
            num_attention_heads=2, ffn_dim=24, prediction_length=4)),
            {"past_values": (torch.randn(2, 32, 2), BATCH)}, {"prediction_outputs": BATCH}),
        "vits": named(lambda: t.VitsModel(t.VitsConfig(vocab_size=24)).text_encoder, {
            "input_ids": (ids(), TOKENS), "padding_mask": (torch.ones(2, 9, 1), TOKENS)},
            {"last_hidden_state": TOKENS}),
    }


# ---- optimum-onnx ----


def optimum_cases():
    import torch
    import transformers as t
    from optimum.exporters.onnx import onnx_export_from_model

    sizes = dict(vocab_size=24, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24,
                 max_position_embeddings=40)
    vit = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, image_size=32,
               patch_size=8)
    speech = dict(hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=24, vocab_size=24,
                  conv_dim=(16, 16, 16), conv_stride=(5, 2, 2), conv_kernel=(10, 3, 3), num_conv_pos_embeddings=16,
                  num_conv_pos_embedding_groups=4, num_feat_extract_layers=3)
    t5 = dict(vocab_size=24, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0)
    models = {
        "bert": (lambda: t.BertModel(t.BertConfig(**sizes)), "feature-extraction"),
        "bert_fill_mask": (lambda: t.BertForMaskedLM(t.BertConfig(**sizes)), "fill-mask"),
        "distilbert": (lambda: t.DistilBertForSequenceClassification(t.DistilBertConfig(
            vocab_size=24, dim=16, n_layers=2, n_heads=2, hidden_dim=24, max_position_embeddings=40)),
            "text-classification"),
        "roberta": (lambda: t.RobertaForTokenClassification(t.RobertaConfig(**sizes, pad_token_id=1)),
                    "token-classification"),
        "bert_answers": (lambda: t.BertForQuestionAnswering(t.BertConfig(**sizes)), "question-answering"),
        "albert": (lambda: t.AlbertModel(t.AlbertConfig(**sizes, embedding_size=8)), "feature-extraction"),
        "electra": (lambda: t.ElectraModel(t.ElectraConfig(**sizes, embedding_size=8)), "feature-extraction"),
        "mpnet": (lambda: t.MPNetModel(t.MPNetConfig(**sizes)), "feature-extraction"),
        "xlm_roberta": (lambda: t.XLMRobertaModel(t.XLMRobertaConfig(**sizes, pad_token_id=1)), "feature-extraction"),
        "deberta": (lambda: t.DebertaV2ForSequenceClassification(t.DebertaV2Config(
            **sizes, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=8,
            norm_rel_ebd="layer_norm", share_att_key=True, position_biased_input=False)), "text-classification"),
        "modernbert": (lambda: t.ModernBertModel(t.ModernBertConfig(
            **sizes, local_attention=8, global_attn_every_n_layers=2, pad_token_id=0, reference_compile=False)),
            "feature-extraction"),
        "vit": (lambda: t.ViTForImageClassification(t.ViTConfig(**vit)), "image-classification"),
        "resnet": (lambda: t.ResNetForImageClassification(t.ResNetConfig(
            embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])), "image-classification"),
        "segformer": (lambda: t.SegformerForSemanticSegmentation(t.SegformerConfig(
            num_encoder_blocks=2, depths=[1, 1], sr_ratios=[2, 1], hidden_sizes=[8, 16], patch_sizes=[7, 3],
            strides=[4, 2], num_attention_heads=[1, 2], mlp_ratios=[2, 2], decoder_hidden_size=16, num_labels=4)),
            "semantic-segmentation"),
        "detr": (lambda: t.YolosForObjectDetection(t.YolosConfig(**{**vit, "image_size": [32, 32]},
                                                                num_detection_tokens=5)), "object-detection"),
        "wav2vec2": (lambda: t.Wav2Vec2ForCTC(t.Wav2Vec2Config(**speech)), "automatic-speech-recognition"),
        "whisper": (lambda: t.WhisperForConditionalGeneration(t.WhisperConfig(
            vocab_size=24, d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, num_mel_bins=80,
            max_source_positions=1500, max_target_positions=20, pad_token_id=0, bos_token_id=1, eos_token_id=2,
            decoder_start_token_id=1)), "automatic-speech-recognition"),
        "t5": (lambda: t.T5ForConditionalGeneration(t.T5Config(**t5)), "text2text-generation"),
        "t5_past": (lambda: t.T5ForConditionalGeneration(t.T5Config(**t5)), "text2text-generation-with-past"),
        "bart": (lambda: t.BartForConditionalGeneration(t.BartConfig(
            vocab_size=24, d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
            decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=40)),
            "text2text-generation"),
        "gpt2": (lambda: t.GPT2LMHeadModel(t.GPT2Config(vocab_size=24, n_embd=16, n_layer=2, n_head=2, n_positions=40)),
                 "text-generation"),
        "gpt2_past": (lambda: t.GPT2LMHeadModel(t.GPT2Config(
            vocab_size=24, n_embd=16, n_layer=2, n_head=2, n_positions=40)), "text-generation-with-past"),
        "llama_past": (lambda: t.LlamaForCausalLM(t.LlamaConfig(**sizes, num_key_value_heads=1)),
                       "text-generation-with-past"),
        "clip": (lambda: t.CLIPModel(t.CLIPConfig(text_config=dict(sizes, eos_token_id=2, bos_token_id=1),
                                                  vision_config=vit, projection_dim=12)),
                 "zero-shot-image-classification"),
    }

    def writer(make, task):
        def write(path):
            torch.manual_seed(7)
            with tempfile.TemporaryDirectory() as folder:
                onnx_export_from_model(make().eval(), folder, task=task, do_validation=False)
                written = sorted(pathlib.Path(folder).glob("*.onnx"))
                for file in written:
                    name = path if len(written) == 1 else path.with_name(f"{path.stem}.{file.stem}.onnx")
                    name.write_bytes(file.read_bytes())

        return write

    return [Case(name, writer(make, task)) for name, (make, task) in models.items()]


# ---- ultralytics ----


def ultralytics_cases():
    import ultralytics

    def writer(model, **more):
        def write(path):
            with tempfile.TemporaryDirectory() as folder:
                local = pathlib.Path(folder) / model
                # 'yolo11n-seg.yaml' is yolo11-seg.yaml at scale n, which the copy's name tells.
                plain = model.replace("n.", ".").replace("n-", "-")
                sources = pathlib.Path(ultralytics.__file__).parent.glob("cfg/models/**/*.yaml")
                local.write_text(next(s for s in sources if s.name in (model, plain)).read_text())
                written = ultralytics.YOLO(str(local)).export(format="onnx", imgsz=64, simplify=False, **more)
                path.write_bytes(pathlib.Path(written).read_bytes())

        return write

    dynamic = dict(dynamic=True)
    return [
        Case("yolov8n", writer("yolov8n.yaml", **dynamic)), Case("yolo11n", writer("yolo11n.yaml", **dynamic)),
        Case("yolo11n_fixed", writer("yolo11n.yaml")), Case("yolo11n_nms", writer("yolo11n.yaml", nms=True)),
        Case("yolo11n_seg", writer("yolo11n-seg.yaml", **dynamic)),
        Case("yolo11n_pose", writer("yolo11n-pose.yaml", **dynamic)),
        Case("yolo11n_cls", writer("yolo11n-cls.yaml", **dynamic)),
        Case("yolo26n", writer("yolo26n.yaml", **dynamic)), Case("yolov10n", writer("yolov10n.yaml", **dynamic)),
        Case("yolov5n", writer("yolov5n.yaml", **dynamic)),
    ]


# ---- keras, by itself and by tf2onnx ----


def keras_cases(write_model):
    import keras

    if write_model is write_tf2onnx:
        import tf2onnx  # noqa: F401: whether it is installed
    layers = keras.layers

    def sequence(layer):
        tokens = keras.Input((None,), dtype="int32", name="tokens")
        return keras.Model(tokens, layers.Dense(5)(layer(layers.Embedding(24, 8)(tokens))))

    def transformer():
        tokens = keras.Input((None,), dtype="int32", name="tokens")
        x = layers.Embedding(24, 16)(tokens)
        for _ in range(2):
            y = layers.MultiHeadAttention(2, 8)(x, x)
            x = layers.LayerNormalization()(x + y)
            y = layers.Dense(16)(layers.Dense(24, activation="gelu")(x))
            x = layers.LayerNormalization()(x + y)
        return keras.Model(tokens, layers.Dense(5)(layers.GlobalAveragePooling1D()(x)))

    def unet():
        image = keras.Input((32, 32, 3), name="image")
        a = layers.Conv2D(8, 3, padding="same", activation="relu")(image)
        b = layers.Conv2D(16, 3, strides=2, padding="same", activation="swish")(a)
        c = layers.Concatenate()([a, layers.Conv2DTranspose(8, 3, strides=2, padding="same")(b)])
        d = layers.Concatenate()([c, layers.UpSampling2D(interpolation="bilinear")(layers.MaxPooling2D()(c))])
        return keras.Model(image, layers.Conv2D(4, 1, activation="softmax")(d))

    def autoencoder():
        image = keras.Input((32, 32, 3), name="image")
        x = layers.SeparableConv2D(8, 3, strides=2, padding="same", activation="relu")(image)
        x = layers.GroupNormalization(4)(x)
        x = layers.Conv2DTranspose(3, 3, strides=2, padding="same", activation="sigmoid")(x)
        return keras.Model(image, x)

    def perceptron():
        numbers = keras.Input((12,), name="numbers")
        x = layers.Normalization(mean=np.arange(12.0), variance=np.ones(12))(numbers)
        x = layers.BatchNormalization()(layers.Dense(16, activation="selu")(x))
        return keras.Model(numbers, layers.Dense(3, activation="softmax")(x))

    def temporal():
        wave = keras.Input((None, 4), name="wave")
        x = wave
        for dilation in (1, 2, 4):
            x = layers.Conv1D(8, 3, dilation_rate=dilation, padding="causal", activation="relu")(x)
        return keras.Model(wave, layers.Dense(2)(x))

    def two_inputs():
        a, b = keras.Input((6,), name="a"), keras.Input((6,), name="b")
        shared = layers.Dense(4, activation="tanh")
        return keras.Model([a, b], layers.Dot(1, normalize=True)([shared(a), shared(b)]))

    image = dict(weights=None, input_shape=(64, 64, 3), classes=10)
    models = {
        "mobilenet_v2": lambda: keras.applications.MobileNetV2(alpha=0.35, **image),
        "mobilenet_v3": lambda: keras.applications.MobileNetV3Small(**image),
        "efficientnet_b0": lambda: keras.applications.EfficientNetB0(**image),
        "resnet50": lambda: keras.applications.ResNet50(**image),
        "densenet121": lambda: keras.applications.DenseNet121(**image),
        "convnext_tiny": lambda: keras.applications.ConvNeXtTiny(**image),
        "unet": unet, "autoencoder": autoencoder, "perceptron": perceptron, "temporal_cnn": temporal,
        "two_inputs": two_inputs, "transformer": transformer,
        "lstm": lambda: sequence(layers.LSTM(12, return_sequences=True)),
        "lstm_masked": lambda: keras.Sequential([
            keras.Input((None,), dtype="int32"), layers.Embedding(24, 8, mask_zero=True), layers.LSTM(12)]),
        "bidirectional_lstm": lambda: sequence(layers.Bidirectional(layers.LSTM(12, return_sequences=True))),
        "gru": lambda: sequence(layers.GRU(12, return_sequences=True)),
        "gru_last": lambda: sequence(layers.GRU(12)),
        "simple_rnn": lambda: sequence(layers.SimpleRNN(12, return_sequences=True)),
        "conv_lstm": lambda: keras.Sequential([
            keras.Input((4, 8, 8, 2)), layers.ConvLSTM2D(4, 3, padding="same"), layers.Flatten(), layers.Dense(3)]),
    }

    def writer(make):
        def write(path):
            keras.utils.set_random_seed(7)
            write_model(make(), path)
            keras.utils.clear_session()

        return write

    return [Case(name, writer(make)) for name, make in models.items()]


def write_keras(model, path):
    given = [np.zeros([9 if n is None and i else n or 1 for i, n in enumerate(x.shape)], x.dtype) for x in model.inputs]
    model(given if len(given) > 1 else given[0])  # only a model that has been called is exported
    model.export(str(path), format="onnx", verbose=False)


def write_tf2onnx(model, path):
    import tensorflow as tf
    import tf2onnx

    signature = [tf.TensorSpec(i.shape, i.dtype, name=i.name) for i in model.inputs]
    one = len(signature) == 1
    call = tf.function(lambda *x: model(x[0] if one else list(x)), input_signature=signature)
    tf2onnx.convert.from_function(call, signature, opset=18, output_path=str(path))


# ---- jax2onnx ----


def jax_cases():
    import jax
    import jax.numpy as jnp
    import onnx
    from flax import nnx
    from jax2onnx import to_onnx

    class Perceptron(nnx.Module):
        def __init__(self, rngs):
            self.one, self.two = nnx.Linear(12, 16, rngs=rngs), nnx.Linear(16, 3, rngs=rngs)
            self.norm = nnx.BatchNorm(16, use_running_average=True, rngs=rngs)

        def __call__(self, x):
            return jax.nn.softmax(self.two(jax.nn.gelu(self.norm(self.one(x)))))

    class Convolutional(nnx.Module):
        def __init__(self, rngs):
            self.one = nnx.Conv(3, 8, (3, 3), rngs=rngs)
            self.two = nnx.Conv(8, 16, (3, 3), strides=2, rngs=rngs)
            self.norm = nnx.BatchNorm(8, use_running_average=True, rngs=rngs)
            self.out = nnx.Linear(16 * 8 * 8, 10, rngs=rngs)

        def __call__(self, x):
            x = nnx.max_pool(nnx.relu(self.norm(self.one(x))), window_shape=(2, 2), strides=(2, 2))
            x = nnx.silu(self.two(x))
            return self.out(x.reshape(x.shape[0], -1))

    class Residual(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Conv(3, 8, (7, 7), strides=2, rngs=rngs)
            self.a, self.b = nnx.Conv(8, 8, (3, 3), rngs=rngs), nnx.Conv(8, 8, (3, 3), rngs=rngs)
            self.norm = nnx.GroupNorm(8, 4, rngs=rngs)
            self.out = nnx.Linear(8, 10, rngs=rngs)

        def __call__(self, x):
            x = self.first(x)
            x = x + self.b(nnx.relu(self.norm(self.a(x))))
            return self.out(jnp.mean(x, (1, 2)))

    class Block(nnx.Module):
        def __init__(self, rngs):
            self.attention = nnx.MultiHeadAttention(2, 16, decode=False, rngs=rngs)
            self.one, self.two = nnx.Linear(16, 24, rngs=rngs), nnx.Linear(24, 16, rngs=rngs)
            self.norm1, self.norm2 = nnx.LayerNorm(16, rngs=rngs), nnx.LayerNorm(16, rngs=rngs)

        def __call__(self, x):
            x = x + self.attention(self.norm1(x))
            return x + self.two(nnx.gelu(self.one(self.norm2(x))))

    class Transformer(nnx.Module):
        def __init__(self, rngs):
            self.embedding = nnx.Embed(24, 16, rngs=rngs)
            self.a, self.b = Block(rngs), Block(rngs)
            self.out = nnx.Linear(16, 5, rngs=rngs)

        def __call__(self, tokens):
            return self.out(self.b(self.a(self.embedding(tokens))))

    class VisionTransformer(nnx.Module):
        def __init__(self, rngs):
            self.patches = nnx.Conv(3, 16, (8, 8), strides=8, rngs=rngs)
            self.positions = nnx.Param(jax.random.normal(rngs.params(), (1, 16, 16)))
            self.a, self.out = Block(rngs), nnx.Linear(16, 10, rngs=rngs)

        def __call__(self, x):
            x = self.patches(x)
            x = x.reshape(x.shape[0], 16, 16) + self.positions[...]
            return self.out(jnp.mean(self.a(x), 1))

    class Recurrent(nnx.Module):
        def __init__(self, cell, states, rngs):
            self.layer, self.out = nnx.RNN(cell(6, 8, rngs=rngs)), nnx.Linear(8, 3, rngs=rngs)
            self.states = states

        def __call__(self, x):
            zeros = jnp.zeros((x.shape[0], 8))
            return self.out(self.layer(x, initial_carry=(zeros, zeros) if self.states == 2 else zeros))

    image = [("B", 32, 32, 3)]
    models = {
        "perceptron": (Perceptron, [("B", 12)]),
        "convolutional": (Convolutional, image), "residual": (Residual, image),
        "vision_transformer": (VisionTransformer, image),
        "transformer": (Transformer, [jax.ShapeDtypeStruct((2, 9), jnp.int32)]),
        "transformer_open": (Transformer, "tokens"),
        "lstm": (lambda rngs: Recurrent(nnx.OptimizedLSTMCell, 2, rngs), [("B", 7, 6)]),
        "gru": (lambda rngs: Recurrent(nnx.GRUCell, 1, rngs), [("B", 7, 6)]),
    }

    def writer(make, inputs):
        def write(path):
            given = inputs
            if given == "tokens":
                batch, length = jax.export.symbolic_shape("B, T")
                given = [jax.ShapeDtypeStruct((batch, length), jnp.int32)]
            onnx.save(to_onnx(make(nnx.Rngs(7)), given), path)

        return write

    return [Case(name, writer(make, inputs)) for name, (make, inputs) in models.items()]


# ---- skl2onnx ----


def sklearn_cases():
    from skl2onnx import to_onnx
    from sklearn import (cluster, decomposition, ensemble, linear_model, naive_bayes, neural_network, pipeline,
                         preprocessing, tree)
    from sklearn.base import is_classifier

    rng = np.random.default_rng(7)
    x = rng.normal(0, 1, (200, 8)).astype(np.float32)
    classes, targets = (x[:, 0] + x[:, 1] > 0).astype(int) + (x[:, 2] > 1), x @ rng.normal(0, 1, 8)
    models = {
        "logistic_regression": linear_model.LogisticRegression(),
        "linear_regression": linear_model.LinearRegression(),
        "random_forest": ensemble.RandomForestClassifier(10, random_state=7),
        "forest_regressor": ensemble.RandomForestRegressor(10, random_state=7),
        "gradient_boosting": ensemble.GradientBoostingClassifier(n_estimators=10, random_state=7),
        "hist_boosting": ensemble.HistGradientBoostingRegressor(max_iter=10, random_state=7),
        "decision_tree": tree.DecisionTreeClassifier(random_state=7),
        "perceptron": neural_network.MLPClassifier((16,), random_state=7, max_iter=50),
        "naive_bayes": naive_bayes.GaussianNB(), "k_means": cluster.KMeans(4, random_state=7, n_init=3),
        "scaled_pca": pipeline.make_pipeline(preprocessing.StandardScaler(), decomposition.PCA(3),
                                             linear_model.LogisticRegression()),
        "polynomial": pipeline.make_pipeline(preprocessing.PolynomialFeatures(2), linear_model.Ridge()),
    }

    def writer(model):
        def write(path):
            model.fit(x, classes if is_classifier(model) else targets)
            options = {id(model): {"zipmap": False}} if is_classifier(model) else None
            path.write_bytes(to_onnx(model, x[:1], options=options, target_opset=18).SerializeToString())

        return write

    return [Case(name, writer(model)) for name, model in models.items()]
