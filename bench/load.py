"""Runs one model under load with bench/sequence_load: in process, or over HTTP on a separate server."""

import json
import pathlib
import shutil
import statistics
import subprocess

import harness

WORKERS = 2


class Load:
    """A process of bench/sequence_load; `kind` names it in the report. `device`: its last arguments, if any."""

    def __init__(self, kind, arguments, shapes, folder, vocabulary, build=harness.BUILD, programs=None, device=()):
        file = pathlib.Path(folder) / f"shapes-{abs(hash(tuple(shapes)))}.txt"
        file.write_text("\n".join(map(str, shapes)) + "\n")
        self.kind = kind
        self.process = subprocess.Popen(
            [(programs or build / "bench") / "sequence_load", *map(str, arguments), file, str(vocabulary), *device],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        if self.process.stdout.readline().strip() != "ready":
            raise SystemExit("sequence_load did not start")

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        out = json.loads(self.process.stdout.readline())
        if out["failed"]:
            raise SystemExit(f"{self.kind}: {out['failed']} requests failed")
        return out

    def batch(self, count, rounds):
        """Seconds that the first `count` shapes take together, in each round."""
        self.process.stdin.write(f"batch {count} {rounds}\n")
        return [float(ms) * 1e-3 for ms in self.process.stdout.readline().split()]

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


# `max_rows`, of a task or (of policies that batch whole graphs) requests in a batch; 0: as the engine chooses.
def in_process(kind, model, policy, max_rows, shapes, folder, vocabulary, build=harness.BUILD):
    return Load(kind, [model, policy, max_rows, WORKERS], shapes, folder, vocabulary, build)


class OverHttp(Load):
    """The same against `chairlift serve`, which has the cores that the client leaves it."""

    def __init__(self, kind, model, policy, max_rows, connections, shapes, folder, vocabulary):
        repository = pathlib.Path(folder) / f"http-{policy}"
        (repository / "model" / "1").mkdir(parents=True)
        shutil.copyfile(model, repository / "model" / "1" / "model.onnx")
        (repository / "model" / "model.yaml").write_text(
            f"policy: {policy}\nmax_queue_size: 65536\nmax_queue_wait_us: 0\n" + (f"max_batch_size: {max_rows}\n" if max_rows else ""))
        port = harness.free_port()
        self.server = subprocess.Popen(
            [harness.BUILD / "bin" / "chairlift", "serve", "--model-repository", repository, "--http-port", str(port),
             "--metrics-port", "-1", "--log-level", "warning", "--workers", str(WORKERS), "--max-requests", "65536"])
        harness.wait_until_ready(port)
        super().__init__(kind, [f"http://127.0.0.1:{port}", "model", connections, WORKERS], shapes, folder, vocabulary)

    def close(self):
        super().close()
        self.server.terminate()
        self.server.wait(timeout=60)


def middle(results, key):
    return statistics.median(result[key] for result in results)


def add_factors(report, label, results, loop, bound, useful=None):
    """The parts of a load's results, by medians. kernel: the cells in a bare loop at full batches (`loop`, tokens a
    second), to the machine's bound. padding: the share of rows that belong to a request. busy: of the workers' time.
    batch: what is left, what smaller batches and going from one to the next make of the bare loop."""
    useful = middle(results, "useful") if useful is None else useful
    busy = min(1.0, middle(results, "busy"))
    report.add_factors(
        label, rows_a_task=middle(results, "mean_rows"), kernel=loop / bound, padding=useful,
        batch=middle(results, "tokens_per_s") / max(loop * useful * busy, 1e-9), busy=busy)


def add_latencies(report, label, runs, ours, baselines, aim, rate):
    """Rows for p90 and p99 against the better baseline of each round. `runs`: side → results of its rounds."""
    for quantile in ("p90_ms", "p99_ms"):
        mine = [result[quantile] for result in runs[ours]]
        better = [min(results) for results in zip(*([r[quantile] for r in runs[side]] for side in baselines))]
        report.add(f"{label}: {quantile[:3]}", statistics.median(mine), "ms", peer=statistics.median(better),
                   ratio=harness.median_ratio(better, mine), aim=aim, spread_percent=harness.spread(mine), rate=rate)
