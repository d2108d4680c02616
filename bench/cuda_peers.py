"""Measures the best rates of PyTorch on this GPU, and the GPU's peak rates. Prints one line of JSON for each.

    python3 bench/cuda_peers.py --seconds 20
"""

import argparse
import json
import statistics
import time

import torch

from cuda_models import lengths_of

TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16, "tf32": torch.float32, "float32": torch.float32}


def tell(part, name, value, **more):
    print(json.dumps({"part": part, "name": name, "value": value, **more}), flush=True)


def seconds_of(run, budget):
    """The median of repeated runs, by events, for about `budget` seconds after two that warm up."""
    for _ in range(2):
        run()
    torch.cuda.synchronize()
    times, begin = [], time.perf_counter()
    while time.perf_counter() - begin < budget or len(times) < 3:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    return statistics.median(times)


def set_precision(name):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = name == "tf32"


def peaks(budget):
    tell("peaks", "device", torch.cuda.get_device_name())
    for name, precision, size in (("bf16_tflops", "bfloat16", 8192), ("tf32_tflops", "tf32", 8192),
                                  ("fp32_tflops", "float32", 8192)):
        set_precision(precision)
        a, b = (torch.randn(size, size, device="cuda", dtype=TYPES[precision]) for _ in range(2))
        tell("peaks", name, 2 * size**3 / seconds_of(lambda: a @ b, budget) / 1e12)
    source = torch.randn(1 << 29, device="cuda")
    target = torch.empty_like(source)
    tell("peaks", "copy_gb_per_s", 2 * source.nbytes / seconds_of(lambda: target.copy_(source), budget) / 1e9)


def bert(budget):
    """Requests of RTE's lengths, sorted and padded in batches, eager and compiled; all weights random."""
    from transformers import BertConfig, BertModel

    lengths = sorted(lengths_of("glue_rte_train_bert", 1024))
    for precision in ("bfloat16", "float16", "tf32"):
        set_precision(precision)
        model = BertModel(BertConfig(), add_pooling_layer=False).eval().cuda().to(TYPES[precision])
        ways = {"eager": model}
        if precision == "bfloat16":
            ways["compiled"] = torch.compile(model, dynamic=True)
        best = {}
        for way, module in ways.items():
            for size in (32, 64, 128, 256):
                batches = []
                for at in range(0, len(lengths), size):
                    batch = torch.tensor(lengths[at:at + size], device="cuda")
                    places = torch.arange(int(batch.max()), device="cuda")
                    mask = (places[None, :] < batch[:, None]).long()
                    batches.append((torch.randint(0, 30000, mask.shape, device="cuda") * mask, mask))

                def run(batches=batches, module=module):
                    for ids, mask in batches:
                        module(input_ids=ids, attention_mask=mask)

                with torch.inference_mode():
                    best[f"{way}, padded batches of {size}"] = sum(lengths) / seconds_of(run, budget)
        way = max(best, key=best.get)
        tell("peers", f"bert_{precision}", best[way], way=way, all={k: round(v) for k, v in best.items()})


def lstm(budget, hidden=1024):
    """One layer behind an embedding: sequences of WMT's lengths, sorted, padded in batches; and single steps in a graph."""
    lengths = sorted(lengths_of("wmt15_newstest2015_en", 4096))
    for precision in ("float32", "tf32"):
        set_precision(precision)
        embedding = torch.nn.Embedding(1000, hidden, device="cuda")
        layer = torch.nn.LSTM(hidden, hidden, batch_first=True, device="cuda")
        best = {}
        for size in (64, 256, 512):
            batches = [torch.randint(0, 1000, (len(lengths[at:at + size]), max(lengths[at:at + size])), device="cuda")
                       for at in range(0, len(lengths), size)]

            def run(batches=batches):
                for tokens in batches:
                    layer(embedding(tokens))

            with torch.inference_mode():
                best[f"padded batches of {size}"] = len(lengths) / seconds_of(run, budget)
        way = max(best, key=best.get)
        tell("peers", f"lstm_{precision}", best[way], way=way, all={k: round(v) for k, v in best.items()})
        cell = torch.nn.LSTMCell(hidden, hidden, device="cuda")
        for rows in (64, 512):
            x, h, c = (torch.randn(rows, hidden, device="cuda") for _ in range(3))
            with torch.inference_mode():
                for _ in range(3):
                    cell(x, (h, c))
                torch.cuda.synchronize()
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    state = (h, c)
                    for _ in range(32):
                        state = cell(x, state)
                tell("peers", f"lstm_cell_{precision}_{rows}", seconds_of(graph.replay, budget) / 32 * 1e6,
                     way="LSTMCell with its input's product, 32 steps in a CUDA graph")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20, help="of all together, about")
    parser.add_argument("--parts", nargs="*", default=["peaks", "bert", "lstm"])
    args = parser.parse_args()
    each = args.seconds / 40
    for name, part in (("peaks", peaks), ("bert", bert), ("lstm", lstm)):
        if name in args.parts:
            part(each)


if __name__ == "__main__":
    main()
