#!/usr/bin/env python3
"""Draws docs/images/benchmarks.svg: throughput beside ONNX Runtime, OpenVINO and other servers, from the JSON that
`make bench` writes. `make chart` measures and draws.

  bench/chart.py [--results build/bench] [--output docs/images/benchmarks.svg]

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
    unit: str
    note: str


PANELS = [
    Panel("Sentence embeddings, engine", "ragged", "minilm_l6 RTE full load: ", "requests/s",
          "MiniLM-L6, sentences of real lengths, in one process"),
    Panel("Sentence embeddings, HTTP", "python", "/v1/embeddings, RTE: ", "requests/s",
          "MiniLM-L6, one sentence per request, 64 clients"),
    Panel("Python model, HTTP", "python", "http, 64 clients: ", "requests/s",
          "a trivial function, one row per request, 64 clients"),
]

# What a row's name begins with, and the name in the chart. A row of another peer is not drawn.
PEERS = {
    "ort": "ONNX Runtime",
    "openvino": "OpenVINO",
    "ctranslate2": "CTranslate2",
    "our naive": "padded batches, same kernels",
    "infinity-emb": "infinity (like TEI)",
    "fastembed": "fastembed + FastAPI",
    "pytriton": "Triton, Python backend",
    "mosec": "Mosec",
    "litserve": "LitServe",
    "bentoml": "BentoML",
}


def style():
    """The one of all pictures."""
    text = (ROOT / "src" / "cli" / "picture_style.inc").read_text()
    return text.removeprefix('R"css(').rstrip().removesuffix(')css"')


def bars_of(panel, rows):
    """[(name, value, ours / value)], ours first, then the fastest of each peer, the fastest peer first."""
    peers, ours = {}, None
    for row in rows:
        label = row["row"].removeprefix(panel.prefix)
        if label == row["row"] or row.get("peer") is None:
            continue
        name = next((shown for key, shown in PEERS.items() if label.startswith(key)), None)
        if name is None:
            continue
        ours = row["value"] if ours is None else max(ours, row["value"])
        if name not in peers or row["peer"] > peers[name][0]:
            peers[name] = (row["peer"], row["ratio"])
    listed = sorted(((name, value, ratio) for name, (value, ratio) in peers.items()), key=lambda bar: -bar[1])
    return [("Chairlift", ours, 1.0), *listed] if listed else []


def text(x, y, words, kind="", anchor="start"):
    return f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(words)}</text>\n'


def draw(panels, caption):
    """`panels`: [(panel, its bars)]."""
    y, parts = 74, []
    for panel, bars in panels:
        parts.append(text(16, y, panel.title, "head"))
        parts.append(text(LEFT, y, f"{panel.note}; {panel.unit}", "note"))
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
    lines = [caption[i] for i in range(len(caption))]
    height = y + 16 * len(lines)
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'role="img">\n<title>Throughput of Chairlift and other servers</title>\n<style>{style()}</style>\n'
            f'<rect class="page" width="100%" height="100%"/>\n'
            + text(16, 26, "Throughput: higher is better", "title")
            + text(16, 46, "all peers on the same machine in the same run, each in its fastest mode", "note"))
    foot = "".join(text(16, y + 16 * i - 8, line, "note") for i, line in enumerate(lines))
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
        commit = f"{panel.benchmark} at {result['commit']}, {result['date'][:10]}"
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
    return draw(panels, [f"{cpu}, {threads} threads", "; ".join(commits)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build" / "bench")
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs" / "images" / "benchmarks.svg")
    args = parser.parse_args()
    svg = chart(args.results)
    args.output.parent.mkdir(parents=True, exist_ok=True)
    args.output.write_text(svg)
    print(f"drawn to {args.output}")


if __name__ == "__main__":
    sys.exit(main())
