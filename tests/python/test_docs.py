"""The code blocks of the pages about Python, one after the other, as one program in a folder with their model."""

import pathlib
import re

import pytest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["guides/python-and-cpp.md", "guides/batched-service.md"])
def test_the_blocks_run(page, doubling_file, tmp_path, monkeypatch):
    blocks = re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.DOTALL | re.MULTILINE)
    # Without those that need models other than this one.
    blocks = [block for block in blocks if not re.search(r"^# |models/|encoder\(|gpt2|from_torch", block)]
    assert len(blocks) >= 2
    (tmp_path / "model.onnx").write_bytes(doubling_file.read_bytes())
    monkeypatch.chdir(tmp_path)
    exec(compile("\n".join(blocks), page, "exec"), {"__name__": "tour"})
