#!/usr/bin/env python3
"""Compares small networks of BENCH=staged with ONNX Runtime, whole and in stages. Both must give the same bits."""

import argparse
import pathlib
import sys
import tempfile

import numpy as np
import onnxruntime

from compare import TOLERANCE, error, run_offline

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "examples"))
from models import builder, vision  # noqa: E402

NETWORKS = {  # name: (build, shape of the input but for the batch)
    "resnet152": (lambda: vision.resnet152(size=64, base=8, blocks=(2, 2, 3, 2)), (3, 64, 64)),
    "early_exit": (lambda: vision.early_exit(size=64, base=8, blocks=(2, 2, 2, 2)), (3, 64, 64)),
    "vgg19": (lambda: vision.vgg19(size=32, base=8, dense=64), (3, 32, 32)),
    "linknet": (lambda: vision.linknet(height=64, width=96, base=8), (3, 64, 96)),
    "unet": (lambda: vision.unet(size=32, base=4), (3, 32, 32)),
    "unet_2015": (lambda: vision.unet_2015(size=188, base=4), (1, 188, 188)),
}
BATCH = 2


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chairlift", required=True)
    args = parser.parse_args()
    worst, failed = 0.0, []
    for name, (build, shape) in NETWORKS.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            path = folder / name / "1" / "model.onnx"
            builder.save(build(), path)
            (folder / name / "model.yaml").write_text("stages: 4\n")
            inputs = {"image": np.random.default_rng(5).standard_normal((BATCH, *shape)).astype(np.float32)}
            peer = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
            (folder / "whole").mkdir()
            whole = run_offline(args.chairlift, path, inputs, folder / "whole")
            staged = run_offline(args.chairlift, folder / name, inputs, folder)
            for output, want in zip(peer.get_outputs(), peer.run(None, inputs)):
                worst = max(worst, error(want, whole(output.name)))
                if not error(want, whole(output.name)) <= TOLERANCE:
                    failed.append(f"{name} {output.name}: off by {error(want, whole(output.name)):.1e} of its range")
                if not np.array_equal(whole(output.name), staged(output.name)):
                    failed.append(f"{name} {output.name}: differs in stages")
    print(f"{len(NETWORKS)} networks, whole and in stages: largest error {worst:.1e} of the output's range")
    for failure in failed:
        print(f"FAILED {failure}")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
