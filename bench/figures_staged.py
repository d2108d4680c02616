#!/usr/bin/env python3
"""Draws the figures of DVABatch's evaluation (USENIX ATC 2022, §8), simulated and as measured here.

The simulation uses cost curves like a GPU's. The published numbers are beside the results. The paper's figures are
images, and it publishes only two curves of operators (its Figure 5). So the curves follow its text: an operator takes
constant time up to its preferred batch, and proportional time beyond it.

Two numbers are calibrated on published ones. The first is the overhead of a stage (0.29 ms a query over four stages,
§8.8). The second is DelayBatch's delay: its mean at low load must be 1.3 times ZeroBatch's, as the published cuts say.
docs/concepts/simulation.md discusses this.
"""

import argparse
import concurrent.futures
import json
import pathlib
import statistics
import subprocess
import tempfile

import figures
import harness
import plots
from figures import IDEAL, MERGED, OTHER, OURS, PADDED

OBJECTIVE_MS = 200
MAX_BATCH = 64
BATCH_MS = 90  # of 64 rows, in the end: two batches fit into the objective
STAGE_MS = 0.29 / 4  # more for every stage of a batch: §8.8
OPERATORS = 40  # of a model
STAGES = 4
MEASURED = harness.ROOT / "bench" / "data" / "measured" / "staged.json"
SHARES = {"low": 1 / 4, "medium": 3 / 5, "high": 9 / 10}
RATES = [50, 100, 200, 300, 400, 450, 500, 525, 550, 575, 600, 625, 650, 675, 700, 725, 750]

# Preferred batch sizes of operators in the order in which they run, by share of the time of a batch of 64 (§3.2, Figure 6: the
# former part of Unet prefers more than 32, the latter less than 8; §8.2: VGG-19 and ResNet-152 show load diversity only).
MODELS = {
    "ResNet152": [(1.0, 8)],
    "VGG19": [(1.0, 8)],
    "LinkNet": [(0.5, 32), (0.5, 4)],
    "Unet": [(0.5, 32), (0.5, 4)],
}
# Mean over the document's six models: by baseline and load, cuts of the mean and of p99.
PUBLISHED = {
    ("ZeroBatch", "low"): (16.1, 16.9), ("ZeroBatch", "medium"): (39.0, 27.4), ("ZeroBatch", "high"): (57.7, 53.7),
    ("DelayBatch", "low"): (35.4, 45.2), ("DelayBatch", "medium"): (47.3, 45.1), ("DelayBatch", "high"): (48.5, 29.2),
}
# At low load: what is left of ZeroBatch's mean, over what is left of DelayBatch's (§8.2).
DELAY_OF_ZERO = (1 - 0.161) / (1 - 0.354)
COLOURS = {"ZeroBatch": PADDED, "DelayBatch": MERGED, "staged": OURS, "staged, late": plots.SERIES[3], "cellular": OTHER,
           "none": IDEAL}


def operator_ms(model, rows):
    """For each operator in turn."""
    out = []
    for share, preferred in MODELS[model]:
        count = round(share * OPERATORS)
        out += [share * BATCH_MS / count * max(rows, preferred) / max(MAX_BATCH, preferred)] * count
    return out


def write_costs(path, model, stages):
    """As one, and in stages of equal times at 64 rows."""
    lines = []
    edges = [round(i * OPERATORS / stages) for i in range(stages + 1)]
    for rows in (1, 2, 4, 8, 16, 32, 48, MAX_BATCH):
        of = operator_ms(model, rows)
        lines.append(f"whole,{rows},{1e3 * (sum(of) + STAGE_MS)}")
        for stage in range(stages):
            lines.append(f"stage{stage + 1},{rows},{1e3 * (sum(of[edges[stage]:edges[stage + 1]]) + STAGE_MS)}")
    path.write_text("\n".join(lines) + "\n")
    return path


class Simulator:
    """Runs `chairlift simulate` on one of the models."""

    def __init__(self, folder, requests):
        self.folder, self.requests = pathlib.Path(folder), requests
        self.pool = concurrent.futures.ThreadPoolExecutor(2)
        self.runs = 0

    def __call__(self, model, policy, rates, *flags, stages=STAGES):
        """A future of one row a rate."""
        self.runs += 1
        out = self.folder / f"{self.runs}.json"
        costs = write_costs(self.folder / f"{self.runs}.csv", model, stages)
        command = [harness.BUILD / "bin" / "chairlift", "simulate", "--application", "stages", "--stages", stages, "--costs", costs,
                   "--policy", policy, "--max-batch-size", MAX_BATCH, "--json", out, "--requests", self.requests, "--rate", ",".join(f"{rate:.6g}" for rate in rates), *flags]

        def run():
            subprocess.run([str(c) for c in command], check=True, stdout=subprocess.DEVNULL)
            return json.loads(out.read_text())["rows"]

        return self.pool.submit(run)


def peak_of(rows):
    """The highest rate within the objective."""
    return max((row["rate"] for row in rows
                if row["latency_ms"][99] <= OBJECTIVE_MS and row["throughput"] >= 0.97 * row["rate"]), default=0)


def sides_of(simulate, model):
    """The peak of both baselines, and side → (policy, flags)."""
    zero = simulate(model, "window", RATES).result()
    low = [SHARES["low"] * peak_of(zero)]
    mean = simulate(model, "window", low).result()[0]["latency_mean_ms"]
    delays = {ms: simulate(model, "window", low, "--queue-delay-us", 1000 * ms) for ms in range(1, 40)}
    delay = min(delays, key=lambda ms: abs(delays[ms].result()[0]["latency_mean_ms"] / mean - DELAY_OF_ZERO))
    return peak_of(zero), {
        "ZeroBatch": ("window", ()), "DelayBatch": ("window", ("--queue-delay-us", 1000 * delay)), "none": ("none", ()),
        "staged": ("staged", ()), "staged, late": ("staged", ("--join-window-us", 1000 * OBJECTIVE_MS // 2)),
        "cellular": ("cellular", ()),
    }


def bars(axes, groups, values, title, unit):
    """A bar for each side of each group."""
    sides = list(values)
    for i, side in enumerate(sides):
        at = [g + (i - (len(sides) - 1) / 2) * 0.8 / len(sides) for g in range(len(groups))]
        axes.bar(at, values[side], 0.8 / len(sides), label=side, color=COLOURS.get(side, plots.SERIES[3]))
    axes.set_xticks(range(len(groups)), groups)
    axes.set_title(title)
    axes.set_ylabel(unit)
    axes.grid(axis="y")
    axes.set_axisbelow(True)


def latencies(simulate, page):
    """Figures 14, 15 and 16."""
    cuts, peaks, at_loads = {}, {}, {}
    for model in MODELS:
        peak, sides = sides_of(simulate, model)
        rates = [share * peak for share in SHARES.values()]
        runs = {side: simulate(model, policy, rates, *flags) for side, (policy, flags) in sides.items()}
        steps = {side: simulate(model, policy, RATES, *flags) for side, (policy, flags) in sides.items()}
        at_loads[model] = {side: rows.result() for side, rows in runs.items()}
        peaks[model] = {side: peak_of(rows.result()) for side, rows in steps.items()}
    for figure, name, of in (("fig14", "mean", lambda row: row["latency_mean_ms"]), ("fig16", "p99", lambda row: row["latency_ms"][99])):
        drawn, axes = plots.panels(3)
        for i, load in enumerate(SHARES):
            bars(axes[i], list(MODELS), {side: [of(at_loads[model][side][i]) for model in MODELS]
                                         for side in COLOURS if side != "none"},
                 f"Fig. {figure[3:]}: {load} load, simulated", f"{name} latency, ms")
        page.save(drawn, figure)
        for side in ("staged", "staged, late", "cellular"):
            for (baseline, load), published in PUBLISHED.items():
                i = list(SHARES).index(load)
                cut = statistics.fmean(1 - of(at_loads[model][side][i]) / of(at_loads[model][baseline][i]) for model in MODELS)
                cuts[figure, side, baseline, load] = cut
                page.compare(f"Fig. {figure[3:]}", f"{side}, {load} load: {name} less than {baseline}'s, %", 100 * cut,
                             published[name == "p99"])
    drawn, axes = plots.panels(1)
    bars(axes[0], list(MODELS), {side: [peaks[model][side] for model in MODELS] for side in COLOURS},
         "Fig. 15: highest rate with p99 within 200 ms, simulated", "requests/s")
    page.save(drawn, "fig15")
    for side in ("staged", "staged, late", "cellular"):
        ratio = statistics.fmean(peaks[model][side] / peaks[model]["DelayBatch"] for model in MODELS)
        page.compare("Fig. 15", f"{side}: peak over DelayBatch's, of models without input diversity", ratio, 1.0)


def split_only(simulate, page):
    """Figure 18."""
    drawn, axes = plots.panels(2)
    less = []
    for ax, model in zip(axes, ("LinkNet", "Unet")):
        peak, sides = sides_of(simulate, model)
        rates = [share * peak for share in SHARES.values()]
        runs = {"staged": simulate(model, "staged", rates, *sides["staged"][1]),
                "split only": simulate(model, "staged", rates, "--meta-operations", "split"),
                "DelayBatch": simulate(model, "window", rates, *sides["DelayBatch"][1])}
        rows = {side: [row["latency_mean_ms"] for row in of.result()] for side, of in runs.items()}
        bars(ax, list(SHARES), rows, f"Fig. 18: {model}, simulated", "mean latency, ms")
        less.append(1 - rows["split only"][2] / rows["DelayBatch"][2])
    page.save(drawn, "fig18")
    page.compare("Fig. 18", "split only, high load: mean less than DelayBatch's, %", 100 * statistics.fmean(less), 15.0)


def buffer_pairs(simulate, page):
    """Figure 19."""
    counts = (1, 2, 3, 4)
    drawn, axes = plots.panels(1)
    best = {}
    for i, model in enumerate(MODELS):
        peak, _ = sides_of(simulate, model)
        runs = [simulate(model, "staged", [0.95 * peak], "--buffer-pairs", pairs) for pairs in counts]
        means = [run.result()[0]["latency_mean_ms"] for run in runs]
        # Some curves are the same: the later ones are thinner.
        axes[0].plot(counts, means, marker="o", ms=9 - 2 * i, lw=5.5 - 1.4 * i, color=plots.SERIES[i], label=model)
        best[model] = counts[means.index(min(means))]
        print(f"Fig. 19   {model}: mean ms by buffer pairs {dict(zip(counts, (round(m, 1) for m in means)))}; published: 2 is best")
    axes[0].set_title("Fig. 19: 95% of the peak, simulated")
    axes[0].set_xlabel("buffer pairs")
    axes[0].set_xticks(counts)
    axes[0].set_ylabel("mean latency, ms")
    axes[0].set_ylim(bottom=0)
    axes[0].grid(axis="y")
    page.save(drawn, "fig19")


def stage_counts(simulate, page):
    """Figure 20."""
    counts = (2, 4, 6, 8, 12, 20)
    drawn, axes = plots.panels(4)
    for column, model in enumerate(("LinkNet", "ResNet152")):
        peak, _ = sides_of(simulate, model)
        for policy, wide in (("staged", 4), ("cellular", 1.6)):  # they are nearly the same
            high = [simulate(model, policy, [0.9 * peak], stages=count) for count in counts]
            steps = [simulate(model, policy, RATES, stages=count) for count in counts]
            means = [run.result()[0]["latency_mean_ms"] for run in high]
            peaks = [peak_of(run.result()) for run in steps]
            for row, values in enumerate((means, peaks)):
                axes[2 * row + column].plot(counts, values, marker="o", ms=2 * wide, lw=wide, color=COLOURS[policy], label=policy)
            print(f"Fig. 20   {model}, {policy}: mean ms by stages {dict(zip(counts, (round(m, 1) for m in means)))}, "
                  f"peaks {dict(zip(counts, peaks))}; published: 4 is best, 20 bad")
        for row, what in enumerate(("mean latency at 90%, ms", "peak, requests/s")):
            ax = axes[2 * row + column]
            ax.set_title(f"Fig. 20: {model}, simulated")
            ax.set_xlabel("stages")
            ax.set_xticks(counts)
            ax.set_ylabel(what)
            ax.set_ylim(0, 1.1 * ax.get_ylim()[1])
            ax.grid(axis="y")
    page.save(drawn, "fig20")


def on_this_cpu(_, page):
    """Figures 14 to 16 as `make bench BENCH=staged` measured them."""
    if not MEASURED.exists():
        print(f"measured: nothing in {MEASURED}")
        return
    measured = json.loads(MEASURED.read_text())
    models = {name: of for name, of in measured["models"].items() if "loads" in of}
    names = {"zero": "ZeroBatch", "delay": "DelayBatch", "none": "none", "staged": "staged", "cellular": "cellular"}
    ours = lambda sides, side: "packed" if side in ("staged", "cellular") and "packed" in sides else side  # noqa: E731
    for figure, key in (("fig14_measured", "mean"), ("fig16_measured", "p99")):
        drawn, axes = plots.panels(3)
        for ax, load in zip(axes, SHARES):
            held = [name for name in models if load in models[name]["loads"]]
            bars(ax, held, {label: [models[name]["loads"][load][ours(models[name]["loads"][load], side)][key] for name in held]
                            for side, label in names.items()}, f"{load} load, {measured['cpu'][:24]}", f"{key} latency, ms")
            ax.set_yscale("log")
        page.save(drawn, figure)
    peaks = {name: of["peaks"] for name, of in measured["models"].items() if "peaks" in of}
    drawn, axes = plots.panels(1)
    bars(axes[0], list(peaks), {label: [of[ours(of, side)] for of in peaks.values()] for side, label in names.items()},
         f"Highest rate with p99 within 200 ms, {measured['cpu'][:24]}", "requests/s")
    axes[0].set_yscale("log")
    page.save(drawn, "fig15_measured")


def early_exits(simulate, page):
    """Not in the document: half of the queries leave after the first of four stages."""
    for policy in ("staged", "cellular"):
        ratios = []
        for model in MODELS:
            peak, _ = sides_of(simulate, model)
            with_exits, without = (simulate(model, policy, [0.6 * peak], *flags).result()[0]["latency_mean_ms"]
                                   for flags in (("--exit-after", 1, "--exit-percent", 50), ()))
            ratios.append(with_exits / without)
        print(f"exits     {policy}: mean with half of the queries leaving after stage 1 of 4, over that without exits, at medium load: "
              f"{', '.join(f'{m} {r:.2f}' for m, r in zip(MODELS, ratios))}")


PARTS = {"latencies": latencies, "split_only": split_only, "buffer_pairs": buffer_pairs, "stage_counts": stage_counts, "early_exits": early_exits,
         "on_this_cpu": on_this_cpu}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=harness.ROOT / "docs" / "images" / "dvabatch")
    parser.add_argument("--requests", type=int, default=10_000, help="requests in each run")
    parser.add_argument("--only", choices=PARTS, nargs="*", default=list(PARTS), help="of the figures, these")
    args = parser.parse_args()
    harness.build_programs("chairlift")
    page = figures.Page(args.output)
    print(f"{'':9} {'':58} {'ours':>9} {'published':>9} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        simulate = Simulator(folder, args.requests)
        for part in args.only:
            PARTS[part](simulate, page)
    print(f"drawn in {args.output}")


if __name__ == "__main__":
    main()
