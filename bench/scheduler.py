#!/usr/bin/env python3
"""Measures the scheduler: its time per cell node, its growth with workers and models, and the speed of simulations.

The aims are 0.5 µs per node, 1 µs with many workers and models, and 10⁶ simulated cells a second. `peer` is the aim,
and `ratio` is above 1 if we are faster.
"""

import json
import pathlib
import statistics
import subprocess
import tempfile

import harness

DATA = harness.ROOT / "bench" / "data"
AIM_US_PER_NODE = 0.5
AIM_US_PER_NODE_OF_MANY = 1.0  # workers or models
AIM_CELLS_PER_SECOND = 1e6


def simulated_cells_per_second(*flags):
    """Median of five runs at full load, batches of up to 512."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "simulated.json"
        subprocess.run([harness.BUILD / "bin" / "chairlift", "simulate", "--costs", DATA / "costs" / "v100.csv", "--json",
                        out, *flags, "--rate", ",".join(5 * ["18000"])], check=True, stdout=subprocess.DEVNULL)
        rates = [row["cells_per_second"] for row in json.loads(out.read_text())["rows"]]
    return statistics.median(rates), 100 * (max(rates) - min(rates)) / statistics.median(rates)


def main():
    args = harness.arguments("scheduler")
    harness.build_programs("scheduler_cost", "chairlift")
    report = harness.Report("scheduler", args.output, [1])
    text = subprocess.run([harness.BUILD / "bench" / "scheduler_cost"], capture_output=True, check=True, text=True)
    measured = json.loads(text.stdout)

    def add(name, row, aim, **more):
        us = row["ns_per_node"] / 1000
        report.add(name, us, "µs", peer=aim, ratio=aim / us, aim=1.0, spread_percent=row["spread_percent"], **more)

    for row in measured["rows"]:
        add(row["row"], row, AIM_US_PER_NODE)
    for row in measured["growth"]:
        workers, models = row["workers"], row["models"]
        add(f"{row['through']}_{workers}_workers_x_{models}_models", row,
            AIM_US_PER_NODE if workers == models == 1 else AIM_US_PER_NODE_OF_MANY, workers=workers, models=models)
    lengths = DATA / "lengths" / "europarl_v7_fr-en_head_en.json"
    for policy in ("cellular", "bucketed"):
        rate, spread = simulated_cells_per_second("--length-histogram", lengths, "--policy", policy)
        report.add(f"simulate_{policy}", rate / 1e6, "M/s", peer=AIM_CELLS_PER_SECOND / 1e6,
                   ratio=rate / AIM_CELLS_PER_SECOND, aim=1.0, spread_percent=spread)
    report.save()


if __name__ == "__main__":
    main()
