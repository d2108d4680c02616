"""The benchmark chart, drawn from a small set of results, and the style that all pictures share."""

import json
import pathlib
import re
import sys
import xml.etree.ElementTree as ET

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
import chart  # noqa: E402

HEAD = {"commit": "0123abc", "cpu": "Some CPU <2.0 GHz>", "threads": [1, 2], "date": "2026-11-27T20:00:00+00:00"}


def row(name, ours, peer):
    lower_is_better = "batch of 32" in name
    return {"row": name, "value": ours, "peer": peer, "ratio": peer / ours if lower_is_better else ours / peer}


def write(folder, name, rows, **head):
    (folder / f"{name}.json").write_text(json.dumps({"name": name, **HEAD, **head, "rows": rows}))


def texts(svg):
    return [element.text for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_panel_has_ours_and_the_fastest_way_of_each_peer_in_order(tmp_path):
    batch = "minilm_l6 batch of 32: "
    write(tmp_path, "packed", [
        row(batch + "best openvino, one by one, latency", 160.0, 320.0),  # milliseconds of 32 requests
        row(batch + "best openvino, another way", 160.0, 400.0),
        row(batch + "best ort, one by one", 160.0, 200.0),
        row(batch + "ort, padded batches of 32", 160.0, 800.0),
        row(batch + "our length_dp", 160.0, 165.0),  # not a peer of the chart
        row("minilm_l6 RTE full load: ort, padded", 7.0, 5.0),
        row("bert_base batch of 32: ort, padded batches of 32", 7.0, 5.0),
        {"row": batch + "best ctranslate2", "refused": "does not run"},
    ])
    found = texts(chart.chart(tmp_path))
    assert found[2:] == [
        "Sentence embeddings", "MiniLM-L6, 32 sentence pairs at once, in one process; requests per second",
        "Chairlift", "200", "ONNX Runtime, its fastest", "160 (Chairlift 1.25×)", "OpenVINO", "100 (Chairlift 2×)",
        "ONNX Runtime, padded batch", "40 (Chairlift 5×)",
        "Some CPU <2.0 GHz>, 2 cores; commit 0123abc, 2026-11-27"]


def test_bars_are_in_proportion(tmp_path):
    write(tmp_path, "python", [row("http, 64 clients: litserve", 1000.0, 10.0), row("http, 64 clients: mosec, 16", 1000.0, 500.0)])
    svg = chart.chart(tmp_path)
    widths = [float(width) for width in re.findall(r'<rect class="(?:f0|peer)"[^>]* width="([\d.]+)"', svg)]
    assert widths == [chart.BARS, chart.BARS / 2, pytest.approx(chart.BARS / 100, abs=0.1)]
    assert "prefers-color-scheme:dark" in svg


def test_nothing_to_draw_or_other_machines_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="no results to draw .*make chart"):
        chart.chart(tmp_path)
    write(tmp_path, "packed", [row("minilm_l6 batch of 32: ort, padded", 2.0, 1.0)])
    write(tmp_path, "python", [row("http, 64 clients: mosec, 16", 2.0, 1.0)], cpu="Another CPU")
    with pytest.raises(SystemExit, match="different CPUs .*Another CPU"):
        chart.chart(tmp_path)


def test_every_colour_of_light_pages_has_one_of_dark_pages():
    light, dark = chart.style().split("@media")
    named = set(re.findall(r"\.?(\w+)\{[^}]*#", light))
    assert named == set(re.findall(r"\.?(\w+)\{[^}]*#", dark)) and len(named) > 20


def test_the_picture_of_the_readme_has_the_style_of_the_others():
    assert chart.style() in (chart.ROOT / "docs/images/idea.svg").read_text()
