"""The code blocks of docs/python.md are one program that runs."""

import pathlib
import re
import shutil

TEXT = (pathlib.Path(__file__).resolve().parents[2] / "docs" / "python.md").read_text()


def test_the_tour_runs(doubling_file, tmp_path, monkeypatch):
    shutil.copy(doubling_file, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", TEXT, re.MULTILINE | re.DOTALL)
    assert len(blocks) >= 5
    exec(compile("\n".join(blocks), "docs/python.md", "exec"), {"__name__": "tour"})
