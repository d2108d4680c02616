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
    return {"row": name, "value": ours, "peer": peer, "ratio": ours / peer}


def write(folder, name, rows, **head):
    (folder / f"{name}.json").write_text(json.dumps({"name": name, **HEAD, **head, "rows": rows}))


def texts(svg):
    return [element.text for element in ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_a_panel_has_ours_and_the_fastest_way_of_each_peer_in_order(tmp_path):
    write(tmp_path, "ragged", [
        row("minilm_l6 RTE full load: openvino, one by one", 120.0, 60.0),
        row("minilm_l6 RTE full load: ort, padded", 120.0, 40.0),
        row("minilm_l6 RTE full load: ort, sorted buckets of 8", 120.0, 80.0),
        row("minilm_l6 RTE full load: our length_dp", 120.0, 110.0),  # not a peer of the chart
        row("bert_base RTE full load: ort, padded", 7.0, 5.0),
        {"row": "minilm_l6 RTE full load: mosec", "refused": "does not run"},
    ])
    found = texts(chart.chart(tmp_path))
    assert found[2:] == [
        "Sentence embeddings, engine", "MiniLM-L6, sentences of real lengths, in one process; requests/s",
        "Chairlift", "120", "ONNX Runtime", "80 (Chairlift 1.5×)", "OpenVINO", "60 (Chairlift 2×)",
        "Some CPU <2.0 GHz>, 2 threads", "ragged at 0123abc, 2026-11-27"]


def test_bars_are_in_proportion(tmp_path):
    write(tmp_path, "python", [row("http, 64 clients: litserve", 1000.0, 10.0), row("http, 64 clients: mosec, 16", 1000.0, 500.0)])
    svg = chart.chart(tmp_path)
    widths = [float(width) for width in re.findall(r'<rect class="(?:f0|peer)"[^>]* width="([\d.]+)"', svg)]
    assert widths == [chart.BARS, chart.BARS / 2, pytest.approx(chart.BARS / 100, abs=0.1)]
    assert "prefers-color-scheme:dark" in svg


def test_nothing_to_draw_or_other_machines_are_refused(tmp_path):
    with pytest.raises(SystemExit, match="no results to draw .*make chart"):
        chart.chart(tmp_path)
    write(tmp_path, "ragged", [row("minilm_l6 RTE full load: ort, padded", 2.0, 1.0)])
    write(tmp_path, "python", [row("http, 64 clients: mosec, 16", 2.0, 1.0)], cpu="Another CPU")
    with pytest.raises(SystemExit, match="different CPUs .*Another CPU"):
        chart.chart(tmp_path)


def test_every_colour_of_light_pages_has_one_of_dark_pages():
    light, dark = chart.style().split("@media")
    named = set(re.findall(r"\.?(\w+)\{[^}]*#", light))
    assert named == set(re.findall(r"\.?(\w+)\{[^}]*#", dark)) and len(named) > 20
