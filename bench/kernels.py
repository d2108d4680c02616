#!/usr/bin/env python3
"""Every kernel of the hot path on one thread, against its bound: max(FLOPs / measured peak, bytes / measured bandwidth).

The shapes are those of tests/ops/kernel_cases.h, which the tests compare with float64. Where an implementation does not
take a case, the reason stands in its place.
"""

import json
import subprocess

import harness

ROUNDS = 9


def main():
    args = harness.arguments("kernels", quick=dict(action="store_true", help="a short look"),
                             only=dict(default=".", help="kernels whose name matches this expression"))
    harness.build_programs("kernels")
    report = harness.Report("kernels", args.output, [1])
    text = subprocess.run(
        [harness.BUILD / "bench" / "kernels", "--benchmark_format=json", f"--benchmark_filter={args.only}",
         f"--benchmark_repetitions={3 if args.quick else ROUNDS}", "--benchmark_report_aggregates_only=true",
         f"--benchmark_min_time={0.005 if args.quick else 0.02}", "--benchmark_enable_random_interleaving=true"],
        check=True, capture_output=True, text=True).stdout
    rows = sorted(json.loads(text)["benchmarks"], key=lambda row: row["family_index"])
    spreads = {row["run_name"]: 100 * row["real_time"] for row in rows if row.get("aggregate_name") == "cv"}
    for row in rows:
        if row.get("error_occurred"):
            report.refuse(row["run_name"], row["error_message"])
        elif row["aggregate_name"] == "median":
            report.add(row["run_name"], row["real_time"], "µs", bound_percent=100 * row["bound_us"] / row["real_time"],
                       spread_percent=spreads[row["run_name"]])
    report.save()


if __name__ == "__main__":
    main()
