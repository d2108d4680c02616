#!/usr/bin/env python3
"""The models of `make bench BENCH=zoo`: name, family, builder, and inputs of common sizes.

    zoo_models.py FOLDER [--only SUBSTRING]     writes FOLDER/<name>.onnx where it is missing, or <name>.error

The architectures are those of torchvision, timm, transformers and zoo_networks.py. They have seeded weights and fitting
normalisations, and are exported by PyTorch's TorchScript exporter (opset 17, dynamic batch). The pretrained models in
the examples' packages are added. Text encoders have at most 30,522 rows of embeddings, because a run reads only the
rows of its tokens.
"""

import argparse
import dataclasses
import pathlib
import sys
import traceback
import warnings
from typing import Callable

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "examples"))

OPSET = 17
SEED = 7
WORDS = 30522
REPARAMETERIZED = ("mobileone_s0", "repvit_m0_9", "repvgg_a0")  # branches that are merged before export


@dataclasses.dataclass
class Model:
    """`cases`: {label: {input: function of a random generator that draws it}}."""

    name: str
    family: str
    make: Callable  # a torch module, or write(path)
    cases: dict
    exported: bool = True

    def inputs(self, label):
        rng = np.random.default_rng(SEED)
        return {name: draw(rng) for name, draw in self.cases[label].items()}


# ---- inputs ----


def normal(*shape):
    return lambda rng: rng.standard_normal(shape).astype(np.float32)


def integers(*shape, low=0, high, dtype=np.int64):
    return lambda rng: rng.integers(low, high, shape).astype(dtype)


def constant(value, *shape, dtype=np.int64):
    return lambda rng: np.full(shape, value, dtype)


def page(height, width):
    """Dark bars the size of words on a bright page: on noise a text detector answers nothing but zeros."""

    def draw(rng):
        image = np.full((1, 3, height, width), 2.0, np.float32)
        for top in range(8, height - 24, 36):
            left = 8
            while left < width - 100:
                word = int(rng.integers(20, 90))
                image[:, :, top : top + 20, left : left + word : 4] = -2.0
                left += word + 14
        return image + rng.normal(0, 0.05, image.shape).astype(np.float32)

    return draw


def shown(shape):
    return "x".join(str(n) for n in shape)


def tensor(*shape, name="image"):
    return {shown(shape): {name: normal(*shape)}}


def image(size, width=None):
    return tensor(1, 3, size, width or size)


def tokens(*names, lengths=(16, 128), words=WORDS):
    kinds = {
        "input_ids": lambda n: integers(1, n, low=1000, high=words - 100),
        "attention_mask": lambda n: constant(1, 1, n),
        "token_type_ids": lambda n: constant(0, 1, n),
    }
    return {f"1x{n}": {name: kinds[name](n) for name in names} for n in lengths}


# ---- what makes them; packages are imported when a model is made ----


def timm(name, **more):
    def make():
        from timm import create_model

        return create_model(name, pretrained=False, exportable=True, **more)

    return make


def torchvision(name, **more):
    def make():
        from torchvision import models

        return getattr(models, name)(weights=None, **more)

    return make


def segmenter(name):
    def make():
        import zoo_networks as networks
        from torchvision.models import segmentation

        model = getattr(segmentation, name)(weights=None, weights_backbone=None)
        return networks.Picked(model, lambda model, x: model(x)["out"])

    return make


def ssdlite():
    import zoo_networks as networks
    from torchvision.models import detection

    def heads(model, x):
        found = model.head(list(model.backbone(x).values()))
        return found["bbox_regression"], found["cls_logits"]

    return networks.Picked(detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None), heads)


def retinanet():
    import zoo_networks as networks
    from torchvision.models import detection

    backbone = detection.backbone_utils.mobilenet_backbone(
        backbone_name="mobilenet_v3_large", weights=None, fpn=True, trainable_layers=6)
    anchors = detection.anchor_utils.AnchorGenerator(((32, 64, 128),) * 3, ((0.5, 1.0, 2.0),) * 3)

    def heads(model, x):
        found = model.head(list(model.backbone(x).values()))
        return found["bbox_regression"], found["cls_logits"]

    return networks.Picked(detection.RetinaNet(backbone, 91, anchor_generator=anchors), heads)


def network(build):
    """`build` is given zoo_networks and timm's create_model."""

    def make():
        import zoo_networks as networks
        from timm import create_model

        return build(networks, create_model)

    return make


def hugging(kind, output=0, part=None, config=None, **sizes):
    """A model of transformers: `kind`Model of `kind`Config, its result at place `output`."""

    def make():
        import transformers
        import zoo_networks as networks

        config_of = getattr(transformers, (config or kind.split("For")[0]) + "Config")
        name = kind if "For" in kind else kind + "Model"
        model = getattr(transformers, name)(config_of(attn_implementation="eager", **sizes))
        model = part(model) if part else model
        return networks.Picked(model, lambda model, *args: model(*args)[output])

    return make


def encoder(kind, *names, lengths=(16, 128), **sizes):
    """A text encoder; its inputs are handed over by name."""

    def make():
        import transformers
        import zoo_networks as networks

        config = getattr(transformers, kind.replace("Encoder", "") + "Config")
        usual = {"vocab_size": WORDS, "attn_implementation": "eager"}
        model = getattr(transformers, kind + "Model")(config(**{**usual, **sizes}))
        return networks.Picked(model, lambda model, *args: model(**dict(zip(names, args)))[0])

    return make, tokens(*names, lengths=lengths)


def pretrained(name):
    def write(path):
        import build_models
        from models import builder

        if name == "minilm":
            builder.save(build_models.minilm(), path)
        else:
            path.write_bytes(build_models.package_file(*build_models.PRETRAINED[name]).read_bytes())

    return write


# ---- the table ----


def vision():
    at = image(224)
    families = {
        "mobile": [
            ("mobilenet_v1", timm("mobilenetv1_100"), at), ("mobilenet_v2", torchvision("mobilenet_v2"), at),
            ("mobilenet_v3_small", torchvision("mobilenet_v3_small"), at),
            ("mobilenet_v3_large", torchvision("mobilenet_v3_large"), at),
            ("mobilenet_v4_conv_small", timm("mobilenetv4_conv_small"), at),
            ("efficientnet_b0", torchvision("efficientnet_b0"), at),
            ("efficientnet_b1", torchvision("efficientnet_b1"), image(240)),
            ("efficientnet_lite0", timm("efficientnet_lite0"), at),
            ("mnasnet1_0", torchvision("mnasnet1_0"), at),
            ("shufflenet_v2_x0_5", torchvision("shufflenet_v2_x0_5"), at),
            ("shufflenet_v2_x1_0", torchvision("shufflenet_v2_x1_0"), at),
            ("ghostnet", timm("ghostnet_100"), at), ("fbnetc", timm("fbnetc_100"), at),
            ("lcnet", timm("lcnet_100"), at),
            ("mobileone_s0", timm("mobileone_s0"), at), ("repvit_m0_9", timm("repvit_m0_9"), at),
            ("mobilevit_xs", timm("mobilevit_xs"), image(256)),
            ("mobilevit_v2_050", timm("mobilevitv2_050"), image(256)),
            ("edgenext_small", timm("edgenext_small"), image(256)),
            ("efficientformer_l1", timm("efficientformer_l1"), at),
            ("fastvit_t8", timm("fastvit_t8"), image(256)), ("repghostnet_050", timm("repghostnet_050"), at),
            ("mobilenet_v4_conv_medium", timm("mobilenetv4_conv_medium"), at),
        ],
        "residual": [
            ("resnet18", torchvision("resnet18"), at), ("resnet34", torchvision("resnet34"), at),
            ("resnet50", torchvision("resnet50"), at), ("resnet26d", timm("resnet26d"), at),
            ("repvgg_a0", timm("repvgg_a0"), at), ("darknet53", timm("darknet53"), image(256)),
        ],
        "grouped": [
            ("resnext50_32x4d", torchvision("resnext50_32x4d"), at),
            ("regnet_x_800mf", torchvision("regnet_x_800mf"), at),
            ("regnet_y_400mf", torchvision("regnet_y_400mf"), at), ("seresnext26d", timm("seresnext26d_32x4d"), at),
            ("resnest14d", timm("resnest14d"), at), ("regnet_y_1_6gf", torchvision("regnet_y_1_6gf"), at),
            ("nf_regnet_b0", timm("nf_regnet_b0"), image(192)),
        ],
        "dense": [
            ("densenet121", torchvision("densenet121"), at), ("vovnet19b_dw", timm("ese_vovnet19b_dw"), at),
            ("hgnetv2_b0", timm("hgnetv2_b0"), at),
            ("dla34", timm("dla34"), at), ("hrnet_w18_small", timm("hrnet_w18_small"), at),
        ],
        "inception": [
            ("googlenet", torchvision("googlenet", aux_logits=False, init_weights=False), at),
            ("inception_v3", torchvision("inception_v3", aux_logits=False, init_weights=False), image(299)),
            ("inception_next_tiny", timm("inception_next_tiny"), at),
        ],
        "squeezenet": [
            ("squeezenet1_0", torchvision("squeezenet1_0"), at), ("squeezenet1_1", torchvision("squeezenet1_1"), at),
        ],
        "convnext": [
            ("convnext_atto", timm("convnext_atto"), at), ("convnext_v2_atto", timm("convnextv2_atto"), at),
            ("convnext_tiny", torchvision("convnext_tiny"), at), ("poolformer_s12", timm("poolformer_s12"), at),
        ],
        "vision transformer": [
            ("vit_tiny", timm("vit_tiny_patch16_224"), at), ("vit_small", timm("vit_small_patch16_224"), at),
            ("deit_tiny_distilled", timm("deit_tiny_distilled_patch16_224"), at),
            ("dinov2_small", timm("vit_small_patch14_dinov2", img_size=224), at),
            ("swin_tiny", timm("swin_tiny_patch4_window7_224"), at), ("levit_128s", timm("levit_128s"), at),
            ("pvt_v2_b0", timm("pvt_v2_b0"), at), ("xcit_nano", timm("xcit_nano_12_p16_224"), at),
            ("eva02_tiny", timm("eva02_tiny_patch14_224"), at), ("resmlp_12", timm("resmlp_12_224"), at),
        ],
    }
    for family, rows in families.items():
        for name, make, cases in rows:
            yield Model(name, family, make, cases)


def dense_vision():
    segformer = dict(num_labels=19, depths=[2, 2, 2, 2], hidden_sizes=[32, 64, 160, 256], decoder_hidden_size=256)
    yolos = dict(hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768,
                 image_size=[512, 512], num_detection_tokens=100, num_labels=91)
    resnet18 = lambda create, *at: create("resnet18", features_only=True, out_indices=at)  # noqa: E731
    families = {
        "segmentation": [
            ("lraspp_mobilenet_v3", segmenter("lraspp_mobilenet_v3_large"), image(512)),
            ("deeplabv3_mobilenet_v3", segmenter("deeplabv3_mobilenet_v3_large"), image(512)),
            ("fast_scnn", network(lambda n, _: n.FastScnn()), image(512)),
            ("segformer_b0", hugging("SegformerForSemanticSegmentation", **segformer), image(256)),
            ("unet_transposed", network(lambda n, _: n.UNet((16, 32, 64, 128, 256))), image(256)),
            ("unet_bilinear", network(lambda n, _: n.UNet((16, 32, 64, 128, 256), transposed=False)), image(256)),
        ],
        "detection": [
            ("yolov8n", network(lambda n, _: n.Yolo(n.C2f, 640)), image(640)),
            ("yolov5n", network(lambda n, _: n.Yolo(n.C3, 640)), image(640)),
            ("yolov3_tiny", network(lambda n, _: n.YoloTiny()), image(416)),
            ("ssdlite_mobilenet_v3", ssdlite, image(320)), ("retinanet_mobilenet_v3", retinanet, image(320)),
            ("centernet_resnet18", network(lambda n, create: n.Deconvolved(
                resnet18(create, 4), 512, (256, 128, 64), (80, 2, 2))), image(512)),
            ("pose_resnet18", network(lambda n, create: n.Deconvolved(
                resnet18(create, 4), 512, (256, 256, 256), (17,))), image(256, 192)),
            ("blazeface", network(lambda n, _: n.BlazeFace()), image(128)),
            ("yolos_tiny", hugging("YolosForObjectDetection", **yolos), image(512)),
        ],
        "ocr": [
            ("dbnet_mobilenet_v3", network(lambda n, create: n.DbNet(
                create("mobilenetv3_large_100", features_only=True, out_indices=(1, 2, 3, 4)), (24, 40, 112, 960), 96)),
                image(640)),
            ("dbnet_resnet18", network(lambda n, create: n.DbNet(
                resnet18(create, 1, 2, 3, 4), (64, 128, 256, 512), 128)), image(640)),
            ("crnn", network(lambda n, _: n.Crnn()), tensor(1, 1, 32, 100) | tensor(1, 1, 32, 320)),
            ("vitstr_tiny", timm("vit_tiny_patch16_224", img_size=(32, 128), patch_size=(4, 8), num_classes=96),
             image(32, 128)),
        ],
        "image to image": [
            ("espcn_x3", network(lambda n, _: n.espcn()), tensor(1, 1, 240, 320)),
            ("srcnn", network(lambda n, _: n.srcnn()), tensor(1, 1, 240, 320)),
            ("fsrcnn_x2", network(lambda n, _: n.fsrcnn()), tensor(1, 1, 240, 320)),
            ("edsr_baseline_x2", network(lambda n, _: n.Edsr()), image(64)),
            ("real_esrgan_compact", network(lambda n, _: n.RealEsrganCompact()), image(96)),
            ("dncnn", network(lambda n, _: n.DnCnn()), tensor(1, 1, 128, 128)),
            ("fast_style", network(lambda n, _: n.fast_style()), image(256)),
        ],
    }
    for family, rows in families.items():
        for name, make, cases in rows:
            yield Model(name, family, make, cases)
    yield Model("ocr_detection", "ocr", pretrained("ocr_detection"), {"1x3x640x640": {"x": page(640, 640)}}, False)
    yield Model("ocr_recognition", "ocr", pretrained("ocr_recognition"), tensor(1, 3, 48, 320, name="x"), False)
    yield Model("ocr_orientation", "ocr", pretrained("ocr_orientation"), tensor(1, 3, 48, 192, name="x"), False)


def waves():
    wave = lambda seconds: tensor(1, 16000 * seconds, name="input_values")  # noqa: E731
    features = lambda *shape: tensor(*shape, name="features")  # noqa: E731
    whisper = dict(d_model=384, encoder_layers=4, encoder_attention_heads=6, encoder_ffn_dim=1536, decoder_layers=1,
                   decoder_attention_heads=6)
    spectrogram = dict(hidden_size=192, num_hidden_layers=12, num_attention_heads=3, intermediate_size=768,
                       max_length=128, frequency_stride=16, time_stride=16)
    sew = dict(hidden_size=512, num_hidden_layers=12, num_attention_heads=8, intermediate_size=2048)
    families = {
        "speech": [
            ("wav2vec2_base", hugging("Wav2Vec2ForCTC"), wave(1)),
            ("distilhubert", hugging("Hubert", num_hidden_layers=2), wave(2)),
            ("whisper_tiny_encoder", hugging("Whisper", part=lambda m: m.get_encoder(), **whisper),
             features(1, 80, 3000)),
            ("sew_tiny", hugging("SEW", **sew), wave(2)),
            ("quartznet_5x5", network(lambda n, _: n.QuartzNet()), features(1, 64, 500)),
            ("conformer_s", network(lambda n, _: n.Conformer()), features(1, 80, 500)),
            ("deep_speech2", network(lambda n, _: n.DeepSpeech()), features(1, 1, 161, 200)),
            ("x_vector", network(lambda n, _: n.XVector()), features(1, 30, 300)),
            ("conv_tasnet", network(lambda n, _: n.Separation()), tensor(1, 8000, name="wave")),
            ("hifi_gan_v2", network(lambda n, _: n.HifiGan()), tensor(1, 80, 50, name="mel")),
        ],
        "sound": [
            ("m5", network(lambda n, _: n.m5()), tensor(1, 1, 8000, name="wave")),
            ("panns_cnn6", network(lambda n, _: n.panns()), features(1, 1, 100, 64)),
            ("yamnet", network(lambda n, _: n.yamnet()), features(1, 1, 96, 64)),
            ("vggish", network(lambda n, _: n.vggish()), features(1, 1, 96, 64)),
            ("ds_cnn", network(lambda n, _: n.ds_cnn()), features(1, 1, 49, 10)),
            ("sound_events_crnn", network(lambda n, _: n.SoundEvents()), features(1, 1, 500, 40)),
            ("spectrogram_transformer", hugging("ASTForAudioClassification", config="AST", **spectrogram),
             features(1, 128, 128)),
        ],
    }
    for family, rows in families.items():
        for name, make, cases in rows:
            yield Model(name, family, make, cases)
    state = {"state": lambda rng: rng.normal(0, 0.5, (2, 1, 128)).astype(np.float32), "sr": constant(16000)}
    for name in ("silero_vad", "silero_vad_16k"):
        yield Model(name, "speech", pretrained(name), {"1x576": {"input": normal(1, 576), **state}}, False)


def text():
    two, three = ("input_ids", "attention_mask"), ("input_ids", "attention_mask", "token_type_ids")

    def bert(layers, width):
        return dict(num_hidden_layers=layers, hidden_size=width, intermediate_size=4 * width,
                    num_attention_heads=width // 64 if width % 64 == 0 else 12)

    rows = {
        "bert_tiny": encoder("Bert", *three, **bert(2, 128)), "bert_mini": encoder("Bert", *three, **bert(4, 256)),
        "bert_small": encoder("Bert", *three, **bert(4, 512)),
        "tinybert_4": encoder("Bert", *three, **{**bert(4, 312), "intermediate_size": 1200}),
        "bge_small": encoder("Bert", *three, **{**bert(12, 384), "num_attention_heads": 12}),
        "distilbert": encoder("DistilBert", *two), "albert_base": encoder("Albert", *three, **bert(12, 768)),
        "distilroberta": encoder("Roberta", *two, pad_token_id=1, max_position_embeddings=514, **bert(6, 768)),
        "mpnet_base": encoder("MPNet", *two), "electra_small": encoder("Electra", *three, **bert(12, 256)),
        "mobilebert": encoder("MobileBert", *three), "squeezebert": encoder("SqueezeBert", *three),
        "deberta_v3_xsmall": encoder(
            "DebertaV2", *two, **bert(12, 384), relative_attention=True, position_buckets=256,
            norm_rel_ebd="layer_norm", share_att_key=True, pos_att_type=["p2c", "c2p"], position_biased_input=False,
            type_vocab_size=0),
        "roformer_small": encoder("RoFormer", *three, **bert(6, 384), embedding_size=384),
        "modernbert_17m": encoder("ModernBert", *two, hidden_size=256, intermediate_size=384, num_hidden_layers=7,
                                  num_attention_heads=4, pad_token_id=0, cls_token_id=1, sep_token_id=2, bos_token_id=1,
                                  eos_token_id=2),
        "t5_small_encoder": encoder("T5Encoder", *two),
        "clip_text": encoder("CLIPText", *two, lengths=(16, 77), eos_token_id=2),
    }
    for name, (make, cases) in rows.items():
        yield Model(name, "text", make, cases)
    three_of = tokens(*three)
    yield Model("minilm", "text", pretrained("minilm"), three_of, False)
    yield Model("magika", "text", pretrained("magika"),
                {"1x2048": {"bytes": integers(1, 2048, high=257, dtype=np.int32)}}, False)


def tabular():
    plain = lambda n=32: {f"{b}x{n}": {"features": normal(b, n)} for b in (1, 64)}  # noqa: E731
    clicks = {f"{b} rows": {"numbers": normal(b, 13), "categories": integers(b, 26, high=10000)} for b in (1, 64)}
    for name, build, cases in [
        ("mlp", lambda n, _: n.mlp(), plain()), ("sklearn_mlp", lambda n, _: n.sklearn_mlp(), plain(30)),
        ("table_resnet", lambda n, _: n.table_resnet(), plain()), ("tabnet", lambda n, _: n.TabNet(), plain()),
        ("ft_transformer", lambda n, _: n.FtTransformer(), plain()), ("dlrm", lambda n, _: n.Dlrm(), clicks),
        ("dcn_v2", lambda n, _: n.CrossNetwork(), clicks),
    ]:
        yield Model(name, "tabular", network(build), cases)


def models(only=""):
    """Returns the models whose name or family contains `only`."""
    every = [*vision(), *dense_vision(), *waves(), *text(), *tabular()]
    return [model for model in every if only in model.name or only in model.family]


# ---- export ----


def settle(module, arguments):
    """Constant weights become seeded ones, which exporters would merge; normalisations fit what they see."""
    import torch

    for parameter in module.parameters():
        if parameter.numel() > 1 and parameter.min() == parameter.max():
            parameter += 0.02 * torch.randn_like(parameter)
    norms = [m for m in module.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
    if not norms:
        return
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None
        norm.train()
    module(*arguments)
    for norm in norms:
        # The variance of few values may be close to 0, and what is divided by it out of range.
        norm.running_var.clamp_(min=0.1 * float(norm.running_var.mean()))
        norm.eval()


def export(model, path):
    import torch

    torch.manual_seed(SEED)
    torch.backends.mha.set_fastpath_enabled(False)  # one operator for a whole layer, which no exporter writes
    labels = list(model.cases)
    given = model.inputs(labels[-1])
    rng = np.random.default_rng(SEED + 1)
    axes = {name: {0: "batch"} for name in given}
    for name, draw in model.cases[labels[0]].items():
        axes[name] |= {axis: f"length_{axis}" for axis, size in enumerate(draw(rng).shape)
                       if axis and size != given[name].shape[axis]}
    with torch.no_grad():
        module = model.make().eval()
        # Normalisations need more than one row; of small inputs, eight cost little.
        rows = 8 if max(value.size for value in given.values()) < 1e5 else 2
        draws = [{name: draw(rng) for name, draw in model.cases[labels[-1]].items()} for _ in range(rows)]
        settle(module, [torch.from_numpy(np.concatenate([drawn[name] for drawn in draws])) for name in given])
        if model.name in REPARAMETERIZED:
            from timm.utils.model import reparameterize_model

            module = reparameterize_model(module)
        arguments = tuple(torch.from_numpy(value) for value in given.values())
        outputs = module(*arguments)
        count = 1 if isinstance(outputs, torch.Tensor) else len(outputs)
        names = [f"output_{i}" if count > 1 else "output" for i in range(count)]
        torch.onnx.export(module, arguments, str(path), dynamo=False, opset_version=OPSET, input_names=list(given),
                          output_names=names, dynamic_axes=axes)


def write_missing(folder, only):
    """How many could not be written."""
    folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for model in models(only):
        path = folder / f"{model.name}.onnx"
        if path.exists():
            continue
        failure, part = path.with_suffix(".error"), path.with_suffix(".part")
        failure.unlink(missing_ok=True)
        try:
            (export if model.exported else lambda model, path: model.make(path))(model, part)
            part.rename(path)
            print(f"{path}  {path.stat().st_size / 1e6:.1f} MB", flush=True)
        except Exception as error:  # noqa: BLE001: an exporter may fail in any way; the others go on
            traceback.print_exc()
            failure.write_text(f"{type(error).__name__}: {error}")
            failed += 1
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--only", default="", help="models whose name or family holds this")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    sys.exit(1 if write_missing(args.folder, args.only) else 0)


if __name__ == "__main__":
    main()
