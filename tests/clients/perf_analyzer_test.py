"""Triton's load generator, which reads metadata, configuration and statistics before it sends."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import unittest

ADDRESS = os.environ["CHAIRLIFT_ADDRESS"]
PROGRAM = pathlib.Path(sys.executable).parent / "perf_analyzer"
# Linked against CUDA's runtime, which it does not call for tensors sent in bodies.
CUDA = pathlib.Path(sysconfig.get_path("purelib")) / "nvidia" / "cuda_runtime" / "lib"


def analyze(model, *flags):
    """Returns the program's output. The run is as short as possible: three windows of 20 requests, taken as stable."""
    command = [PROGRAM, "-m", model, "-u", ADDRESS, "--measurement-mode", "count_windows",
               "--measurement-request-count", "20", "-s", "999", "-r", "3", *flags]
    done = subprocess.run(command, env={**os.environ, "LD_LIBRARY_PATH": str(CUDA)}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    if done.returncode != 0 or "throughput: " not in done.stdout:
        raise AssertionError(done.stdout)
    return done.stdout


def number(name, text):
    return int(re.search(rf"{name}: (\d+)", text).group(1))


class PerfAnalyzer(unittest.TestCase):
    def test_batches_of_a_plain_model(self):
        printed = analyze("identity", "-b", "8")
        self.assertEqual(number("Inference count", printed), 8 * number("Execution count", printed))

    def test_json_from_several_at_once(self):
        analyze("identity", "--concurrency-range", "4", "--input-tensor-format", "json",
                "--output-tensor-format", "json")

    def test_batches_of_packed_sequences(self):
        shapes = []
        for name in ["input_ids", "attention_mask", "token_type_ids"]:
            shapes += ["--shape", f"{name}:7"]
        analyze("minilm", "-b", "2", "--input-data", "zero", *shapes)
