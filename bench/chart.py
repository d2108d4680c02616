#!/usr/bin/env python3
"""Draws docs/images/benchmarks.svg: throughput beside ONNX Runtime, OpenVINO and other servers.

`make chart` measures what it needs into build/chart, and draws it. The JSON files that `make bench` writes into
build/bench have the same rows: `bench/chart.py --results build/bench`.

A panel whose benchmark has not run is left out. If a peer was driven in several ways, its fastest one is drawn.
"""

import argparse
import html
import json
import pathlib
import sys
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
WIDTH, LEFT, BARS, ROW = 800, 232, 380, 24


class Panel(typing.NamedTuple):
    title: str
    benchmark: str  # its JSON is <benchmark>.json
    prefix: str     # of its rows, before the peer's name
    note: str
    peers: dict     # what a row's name begins with after the prefix, and the name in the chart; the first that fits
    requests: int = 0  # rows of milliseconds for this many requests; 0: rows of requests per second


PANELS = [
    Panel("Sentence embeddings", "packed", "minilm_l6 batch of 32: ",
          "MiniLM-L6, 32 sentence pairs at once, in one process; requests per second",
          {"best ort": "ONNX Runtime, its fastest", "ort, sorted": "ONNX Runtime, sorted batches",
           "ort, padded": "ONNX Runtime, padded batch", "best openvino": "OpenVINO", "best ctranslate2": "CTranslate2"},
          requests=32),
    Panel("Embeddings over HTTP", "python", "/v1/embeddings, RTE: ",
          "MiniLM-L6, one sentence pair per request, 32 clients; requests per second",
          {"infinity-emb": "infinity (like TEI)", "fastembed": "fastembed + FastAPI"}),
    Panel("Python model over HTTP", "python", "http, 64 clients: ",
          "a trivial function, one row per request, 64 clients; requests per second",
          {"pytriton": "Triton, Python backend", "mosec": "Mosec", "litserve": "LitServe", "bentoml": "BentoML"}),
]


def style():
    """The one of all pictures."""
    text = (ROOT / "src" / "cli" / "picture_style.inc").read_text()
    return text.removeprefix('R"css(').rstrip().removesuffix(')css"')


def bars_of(panel, rows):
    """[(name, requests per second, ours / theirs)], ours first, then the fastest row of each peer, the fastest first."""
    rate = (lambda ms: 1e3 * panel.requests / ms) if panel.requests else (lambda value: value)
    peers, ours = {}, 0.0
    for row in rows:
        label = row["row"].removeprefix(panel.prefix)
        name = next((shown for key, shown in panel.peers.items() if label.startswith(key)), None)
        if label == row["row"] or row.get("peer") is None or name is None:
            continue
        ours = max(ours, rate(row["value"]))
        if name not in peers or rate(row["peer"]) > peers[name][0]:
            peers[name] = (rate(row["peer"]), row["ratio"])
    listed = sorted(((name, value, ratio) for name, (value, ratio) in peers.items()), key=lambda bar: -bar[1])
    return [("Chairlift", ours, 1.0), *listed] if listed else []


def text(x, y, words, kind="", anchor="start"):
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(words)}</text>\n'


def draw(panels, caption):
    """`panels`: [(panel, its bars)]."""
    y, parts = 74, []
    for panel, bars in panels:
        parts.append(text(16, y, panel.title, "head"))
        parts.append(text(LEFT, y, panel.note, "note"))
        y += 12
        most = max(value for _, value, _ in bars)
        for name, value, ratio in bars:
            ours = name == "Chairlift"
            width = max(2.0, BARS * value / most)
            parts.append(text(LEFT - 10, y + 13, name, "strong" if ours else "", "end"))
            parts.append(f'<rect class="{"f0" if ours else "peer"}" x="{LEFT}" y="{y}" width="{width:.1f}" height="17"/>\n')
            amount = f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
            parts.append(text(round(LEFT + width + 8, 1), y + 13, amount if ours else f"{amount} (Chairlift {ratio:.3g}×)",
                              "strong" if ours else "note"))
            y += ROW
        y += 30
    height = y + 16 * len(caption)
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img">\n<title>Throughput of Chairlift and other servers</title>\n<style>{style()}</style>\n'
            f'<rect class="page" width="100%" height="100%"/>\n'
            + text(16, 26, "Throughput: higher is better", "title")
            + text(16, 46, "each peer in the same run on the same machine, in the fastest way that it was driven", "note"))
    foot = "".join(text(16, y + 16 * i - 8, line, "note") for i, line in enumerate(caption))
    return head + "".join(parts) + foot + "</svg>\n"


def chart(results):
    """The SVG from a folder of results. SystemExit if there is nothing to draw, or if machines differ."""
    panels, machines, commits = [], set(), []
    for panel in PANELS:
        file = results / f"{panel.benchmark}.json"
        if not file.exists():
            continue
        result = json.loads(file.read_text())
        bars = bars_of(panel, result["rows"])
        if not bars:
            continue
        panels.append((panel, bars))
        machines.add((result["cpu"], tuple(result["threads"])))
        commit = f"commit {result['commit']}, {result['date'][:10]}"
        if commit not in commits:
            commits.append(commit)
    if not panels:
        names = ", ".join(sorted({f"{panel.benchmark}.json" for panel in PANELS}))
        raise SystemExit(f"chart.py: {results} has no results to draw ({names}): run `make chart`, which measures them")
    if len({cpu for cpu, _ in machines}) > 1:
        raise SystemExit(f"chart.py: the results are of different CPUs ({', '.join(sorted(c for c, _ in machines))}): "
                         "measure all of them on one machine with `make chart`")
    cpu = next(iter(machines))[0]
    threads = max(count for _, counts in machines for count in counts)
    return draw(panels, [f"{cpu}, {threads} cores; " + "; ".join(commits)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build" / "chart")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "images" / "benchmarks.svg")
    args = parser.parse_args()
    svg = chart(args.results)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(svg)
    print(f"drawn to {args.output}")


if __name__ == "__main__":
    sys.exit(main())
