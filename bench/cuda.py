#!/usr/bin/env python3
"""Measures an NVIDIA GPU: encoders on packed tokens, recurrent cells, cellular batching, and memory-bound kernels.

Cellular batching is compared with padding in buckets and with PyTorch. Each row is compared with the GPU's measured
peak rates."""

import json
import pathlib
import subprocess
import sys
import tempfile

import harness
import load

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cuda_models

AIMS = {"packed / peer": 1.3, "cellular / bucketed": 1.3, "rows": 85}
PARTS = ["rows", "packed", "step", "wmt"]
BERT_FLOPS = lambda length: 12 * (24 * length * 768**2 + 4 * length**2 * 768)  # noqa: E731
HIDDEN = 1024
WORKERS = 4


class Programs:
    def __init__(self, folder, device):
        self.folder, self.device = folder, device

    def rates(self, *words):
        out = subprocess.run([self.folder / "device_rates", *map(str, words)], capture_output=True, text=True)
        if out.returncode != 0:
            raise SystemExit(f"device_rates {' '.join(map(str, words))}: {out.stderr.strip()}")
        return json.loads(out.stdout)

    def load(self, model, policy, most, lengths, folder, vocabulary, precision):
        return load.Load(policy, [model, policy, most, WORKERS], lengths, folder, vocabulary, programs=self.folder,
                         device=[self.device, precision])


def measure_rows(report, programs, peaks, seconds):
    for name in ("Softmax", "LayerNormalization"):
        for precision, columns in (("bfloat16", 768), ("float32", 768), ("bfloat16", 256), ("float32", 4096)):
            rows = (256 << 20) // columns
            got = programs.rates("rows", name, rows, columns, programs.device, precision, seconds)["gb_per_s"]
            percent = 100 * got / peaks["copy_gb_per_s"]
            report.add(f"{name} {columns} {precision}", got, "GB/s", peaks["copy_gb_per_s"], percent / 100, percent,
                       AIMS["rows"] / 100)


def measure_packed(report, programs, peaks, peers, folder, seconds):
    """BERT-base, RTE's lengths: bare, at several sizes, and through the engine."""
    model = cuda_models.write(folder, "bert_base")
    lengths = cuda_models.lengths_of("glue_rte_train_bert", 1024)
    shapes = folder / "rte.txt"
    shapes.write_text("\n".join(map(str, lengths)) + "\n")
    flops = sum(map(BERT_FLOPS, lengths)) / sum(lengths)
    for precision in ("bfloat16", "float16", "tf32"):
        peak = peaks[{"bfloat16": "bf16_tflops", "float16": "bf16_tflops", "tf32": "tf32_tflops"}[precision]]
        peer = peers.get(f"bert_{precision}")
        for tokens in (4096, 16384):
            got = programs.rates("packed", model, shapes, tokens, programs.device, precision, seconds)["tokens_per_s"]
            report.add(f"BERT-base {precision}, {tokens} tokens, bare", got, "tok/s", peer,
                       got / peer if peer else None, 100 * got * flops / peak / 1e12,
                       AIMS["packed / peer"] if peer else None)
        ours = programs.load(model, "packed", 0, lengths, folder, cuda_models.VOCABULARY, precision)
        ours.ask(f"closed 1024 {seconds}")
        got = ours.ask(f"closed 1024 {4 * seconds}")["tokens_per_s"]
        ours.close()
        report.add(f"BERT-base {precision}, engine", got, "tok/s", peer, got / peer if peer else None,
                   100 * got * flops / peak / 1e12, AIMS["packed / peer"] if peer else None)


def measure_step(report, programs, peaks, peers, folder, seconds):
    """One LSTM step, its input projected: a product [rows, 1024] x [1024, 4096] and the gates."""
    model = cuda_models.write(folder, "lstm_1024")
    for precision in ("float32", "tf32"):
        peak = peaks["fp32_tflops" if precision == "float32" else "tf32_tflops"]
        for rows in (64, 512):
            got = programs.rates("step", model, rows, programs.device, precision, seconds)["us_per_step"]
            flops = 2 * rows * HIDDEN * 4 * HIDDEN
            moved = 4 * (4 * HIDDEN * HIDDEN + rows * HIDDEN * (4 + 4))  # weights; xw, h, c, h', c'
            bound = max(flops / peak / 1e6, moved / peaks["copy_gb_per_s"] / 1e3)
            peer = peers.get(f"lstm_cell_{precision}_{rows}")
            report.add(f"LSTM 1024 step, b={rows} {precision}", got, "us", peer, peer / got if peer else None,
                       100 * bound / got)


def measure_wmt(report, programs, peers, folder, seconds):
    """WMT's lengths through one LSTM of 1024: cellular against padding in buckets of 10."""
    model = cuda_models.write(folder, "lstm_1024")
    lengths = cuda_models.lengths_of("wmt15_newstest2015_en", 4096)
    for precision in ("float32", "tf32"):
        results = {}
        for policy, most in (("bucketed", 512), ("cellular", 512)):
            side = programs.load(model, policy, most, lengths, folder, 1000, precision)
            side.ask(f"closed 2048 {seconds}")
            results[policy] = side, side.ask(f"closed 2048 {3 * seconds}")
        ours, padded = results["cellular"][1], results["bucketed"][1]
        peer = peers.get(f"lstm_{precision}")
        report.add(f"WMT LSTM 1024 {precision}, peak", ours["requests_per_s"], "req/s", padded["requests_per_s"],
                   ours["requests_per_s"] / padded["requests_per_s"], None, AIMS["cellular / bucketed"])
        if peer:
            report.add(f"WMT LSTM 1024 {precision}, PyTorch", ours["requests_per_s"], "req/s", peer,
                       ours["requests_per_s"] / peer)
        rate = padded["requests_per_s"] / 2
        half = {policy: side.ask(f"open {rate:.1f} {3 * seconds} 1") for policy, (side, _) in results.items()}
        report.add(f"WMT LSTM 1024 {precision}, half load p90", half["cellular"]["p90_ms"], "ms",
                   half["bucketed"]["p90_ms"], half["bucketed"]["p90_ms"] / half["cellular"]["p90_ms"], None, 5.0)
        for side, _ in results.values():
            side.close()


def measure_peers(folder, seconds):
    """(peaks, peers) of bench/cuda_peers.py, a process of its own."""
    out = subprocess.run([sys.executable, harness.ROOT / "bench" / "cuda_peers.py", "--seconds", str(seconds)],
                         capture_output=True, text=True)
    peaks, peers = {}, {}
    for line in out.stdout.splitlines():
        if line.startswith("{"):
            row = json.loads(line)
            (peaks if row.get("part") == "peaks" else peers)[row["name"]] = row["value"]
            print("  peer:", line, flush=True)
    if not peaks:
        raise SystemExit(f"cuda_peers.py: {out.stderr.strip()[-2000:]}")
    return peaks, peers


def main():
    args = harness.arguments(
        "cuda", quick=dict(action="store_true", help="short rounds"),
        seconds=dict(type=float, default=2.0, help="of a measurement"), device=dict(default="cuda"),
        parts=dict(nargs="*", default=PARTS, choices=PARTS),
        programs=dict(type=pathlib.Path, default=harness.BUILD / "bench", help="where device_rates and sequence_load are"))
    if args.quick:
        args.seconds = 0.7
    if args.programs == harness.BUILD / "bench":
        harness.build_programs("device_rates", "sequence_load", "chairlift_cuda")
    programs = Programs(args.programs, args.device)
    report = harness.Report("cuda", args.output, [0])
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        peaks, peers = measure_peers(folder, 10 * args.seconds)
        report.head.update(device=peaks.pop("device", ""), peaks=peaks, peers=peers)
        if "rows" in args.parts:
            measure_rows(report, programs, peaks, args.seconds / 2)
        if "packed" in args.parts:
            measure_packed(report, programs, peaks, peers, folder, args.seconds)
        if "step" in args.parts:
            measure_step(report, programs, peaks, peers, folder, args.seconds / 2)
        if "wmt" in args.parts:
            measure_wmt(report, programs, peers, folder, args.seconds)
        report.save()


if __name__ == "__main__":
    main()
