#!/usr/bin/env python3
"""What the scheduler takes of each cell node's time, against 0.5 µs.

`ratio` is the aim over the time: above 1 where the scheduler is faster than asked.
"""

import json
import subprocess

import harness

AIM_US_PER_NODE = 0.5


def main():
    args = harness.arguments("scheduler")
    harness.build_programs("scheduler_cost")
    report = harness.Report("scheduler", args.output, [1])
    text = subprocess.run([harness.BUILD / "bench" / "scheduler_cost"], capture_output=True, check=True, text=True)
    for row in json.loads(text.stdout)["rows"]:
        us = row["ns_per_node"] / 1000
        report.add(row["row"], us, "µs", peer=AIM_US_PER_NODE, ratio=AIM_US_PER_NODE / us, aim=1.0,
                   spread_percent=row["spread_percent"])
    report.save()


if __name__ == "__main__":
    main()
