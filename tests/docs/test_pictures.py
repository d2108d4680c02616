"""Pictures of `inspect --svg`: no label lies on another or on a box."""

import itertools
import re
import subprocess
import xml.etree.ElementTree as ET

import pytest
import sandbox

SVG = "{http://www.w3.org/2000/svg}"
CHARACTER, HEIGHT = 5.6, 10  # at least, of a label


def label_areas(svg):
    for text in svg.iter(SVG + "text"):
        if text.get("class") == "note small halo":
            x, y, width = float(text.get("x")), float(text.get("y")), CHARACTER * len(text.text)
            left = {"start": x, "middle": x - width / 2, "end": x - width}[text.get("text-anchor")]
            yield text.text, (left, y - HEIGHT, left + width, y)


def box_areas(svg):
    for box in svg.iter(SVG + "rect"):
        if "box" in box.get("class", "").split():
            x, y = float(box.get("x")), float(box.get("y"))
            yield "a box", (x, y, x + float(box.get("width")), y + float(box.get("height")))


def overlap(a, b):
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


MODELS = ["g2p_en", "language_model", "lstm_classifier", "pronouncer", "translator", "treelstm"]


@pytest.mark.parametrize("model", MODELS)
def test_labels_are_apart(model, tmp_path):
    picture = tmp_path / "picture.svg"
    subprocess.run([sandbox.PROGRAM, "inspect", sandbox.EXAMPLES / model, "--svg", picture], check=True,
                   stdout=subprocess.DEVNULL, timeout=60)
    svg = ET.parse(picture).getroot()
    labels, boxes = list(label_areas(svg)), list(box_areas(svg))
    assert labels and boxes
    for (name, a), (other, b) in [*itertools.combinations(labels, 2), *itertools.product(labels, boxes)]:
        assert not overlap(a, b), f"'{name}' lies on {other}"
    grounds = [(float(r.get("x")), float(r.get("y")), float(r.get("x")) + float(r.get("width")),
                float(r.get("y")) + float(r.get("height"))) for r in svg.iter(SVG + "rect")
               if r.get("class") == "page" and r.get("height") != "100%"]  # not the page itself
    for text in svg.iter(SVG + "text"):
        if text.get("class") == "note small halo" and text.get("text-anchor") == "middle":
            x, y = float(text.get("x")), float(text.get("y")) - 4
            half = CHARACTER * len(text.text) / 2
            assert any(a <= x - half and x + half <= c and b <= y <= d for a, b, c, d in grounds), \
                f"an arrow goes through '{text.text}'"
    width = float(re.match(r"[\d.]+", svg.get("width"))[0])
    assert all(0 <= area[0] and area[2] <= width for _, area in labels)
