"""Loading models: supported files and settings, and refusals."""

import asyncio
import shutil
import subprocess

import numpy as np
import onnx
import pytest
from conftest import onnx_file
from models import cells as cell_models
from onnx import TensorProto

import chairlift

ONE = np.ones((1, 4), np.float32)


def test_a_model_says_what_it_is(doubling):
    assert doubling.inputs == [chairlift.TensorSpec("x", "float32", (None, 4))]
    assert doubling.outputs[0].name == "y"
    assert "rows apart" in doubling.diagnosis
    assert repr(doubling) == f"<chairlift.Model '{doubling.name}' (x: float32[?, 4]) -> (y: float32[?, 4])>"


def test_statistics_count(doubling_file):
    with chairlift.load(doubling_file) as model:
        model(np.ones((3, 4), np.float32))
        stats = model.stats()
        assert stats["inference_count"] == 3 and stats["success"]["count"] == 1 and stats["failures"] == {}
        assert stats["batches"][3]["count"] == 1


def test_one_file_may_be_loaded_again(doubling_file):
    first, second = chairlift.load(doubling_file), chairlift.load(str(doubling_file))
    assert first.name != second.name
    first.close()
    assert second(ONE)[0, 0] == 2
    with pytest.raises(chairlift.Error, match=first.name):
        first(ONE)
    first.close()


@pytest.fixture
def repository(tmp_path, doubling_file):
    for name in ("one", "two"):
        (tmp_path / name / "1").mkdir(parents=True)
        shutil.copy(doubling_file, tmp_path / name / "1" / "model.onnx")
    (tmp_path / "two" / "model.yaml").write_text("max_batch_size: 5\n")
    return tmp_path


def test_a_repository_gives_its_models_by_name(repository):
    models = chairlift.load_repository(repository)
    assert list(models) == ["one", "two"]
    for model in models.values():
        assert model(ONE)[0, 0] == 2
    assert "up to 5 rows" in models["two"].diagnosis


def test_a_model_of_a_repository_keeps_its_settings(repository):
    assert "up to 5 rows" in chairlift.load(repository / "two").diagnosis
    assert "up to 7 rows" in chairlift.load(repository / "two", max_batch_size=7).diagnosis
    assert chairlift.load(repository / "two" / "1").version == "1"


def test_a_folder_of_models_is_no_model(repository):
    with pytest.raises(chairlift.InvalidArgument, match="folder of models"):
        chairlift.load(repository)
    with pytest.raises(chairlift.InvalidArgument, match="one model's folder"):
        chairlift.load_repository(repository / "one")


def test_a_repository_without_models_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "missing"):
        with pytest.raises(chairlift.NotFound, match=f"{folder}' holds no models"):
            chairlift.load_repository(tmp_path / folder)


def test_a_path_with_a_zero_byte_is_none(doubling_file):
    with pytest.raises(chairlift.InvalidArgument, match="zero byte"):
        chairlift.load(f"{doubling_file}\0x")


def test_cells_of_a_user_are_a_model(tmp_path):
    cells, manifest = cell_models.tree_lstm(hidden=8, vocabulary=10, classes=3)
    (tmp_path / "tree" / "1").mkdir(parents=True)
    (tmp_path / "tree" / "model.yaml").write_text(manifest)
    for name, cell in cells.items():
        onnx.save(cell, tmp_path / "tree" / "1" / f"{name}.onnx")
    model = chairlift.load(tmp_path / "tree")
    assert [spec.name for spec in model.inputs] == ["tokens", "children"]
    tree = np.array([1, 2, 0]), np.array([[-1, -1], [-1, -1], [0, 1]])
    trees = [model.submit(*tree) for _ in range(10)]  # which share batches
    for future in trees:
        np.testing.assert_allclose(future.result(), model(*tree), rtol=1e-5, atol=1e-6)
    assert model(*tree).shape[-1] == 3


def test_a_function_is_a_model(tmp_path):
    (tmp_path / "third.py").write_text(
        "import numpy as np\nfrom chairlift import Ragged\ndef predict(x: np.ndarray) -> np.ndarray:\n"
        "    if x[0, 0] < 0:\n        raise ValueError('below zero')\n    return x / 3\n")
    model = chairlift.load(f"{tmp_path / 'third.py'}:predict")
    assert model(np.full((2, 2), 6, np.float32)).tolist() == [[2, 2], [2, 2]]
    with pytest.raises(chairlift.Internal, match="ValueError: below zero"):
        model(np.full((1, 2), -1, np.float32))


@pytest.mark.parametrize("settings, says", [
    ({"max_batch_size": -1}, "max_batch_size is '-1'"), ({"max_batch_sizes": 1}, "no setting 'max_batch_sizes'"),
    ({"policy": "bus"}, "bus"),
])
def test_settings_are_checked(doubling_file, settings, says):
    with pytest.raises(chairlift.InvalidArgument, match=says):
        chairlift.load(doubling_file, **settings)


def test_what_cannot_be_loaded(tmp_path, folder):
    with pytest.raises(chairlift.NotFound, match="no file or folder 'nothing.onnx'"):
        chairlift.load("nothing.onnx")
    (tmp_path / "text.onnx").write_text("this is no model")
    with pytest.raises(chairlift.InvalidArgument):
        chairlift.load(tmp_path / "text.onnx")
    value = (TensorProto.FLOAT, [1])
    unknown = onnx_file(tmp_path / "unknown.onnx", [("Fold", ["x"], ["y"])], [("x", *value)], [("y", *value)])
    with pytest.raises(chairlift.Error, match="Fold"):
        chairlift.load(unknown)
    with pytest.raises(TypeError):
        chairlift.load(3)


def test_an_engine_of_one_s_own(doubling_file):
    with chairlift.Engine(workers=1) as engine:
        assert engine.workers == 1
        model = engine.load(doubling_file)
        assert model(ONE)[0, 0] == 2
    with pytest.raises(chairlift.Unavailable, match="closed"):
        model(ONE)
    with pytest.raises(chairlift.Unavailable, match="closed"):
        engine.load(doubling_file)
    with pytest.raises(chairlift.InvalidArgument, match="max_requests"):
        chairlift.Engine(max_requests=0)


def test_a_full_engine_refuses(tmp_path, gate):
    with chairlift.Engine(max_requests=1) as engine:
        model = engine.load(f"{tmp_path / 'gated.py'}:predict")
        first = model.submit(ONE)
        with pytest.raises(chairlift.ResourceExhausted):
            model(ONE)
        gate.open()
        first.result()


@pytest.fixture
def steps(repository):
    """Beside the models of a repository: a function, and a pipeline of pipelines."""
    (repository / "third" / "1").mkdir(parents=True)
    (repository / "third" / "1" / "third.py").write_text(
        "import numpy as np\ndef predict(x: np.ndarray) -> np.ndarray:\n    return x / 3\n")
    (repository / "third" / "model.yaml").write_text("python: third.py:predict")
    (repository / "all").mkdir()  # before its steps in the order of names
    (repository / "all" / "model.yaml").write_text("steps: [{model: two, outputs: {y: z}}, {model: both, inputs: {x: z}}]")
    (repository / "both").mkdir()
    (repository / "both" / "model.yaml").write_text("steps: [{model: one, outputs: {y: z}}, {model: third, inputs: {x: z}}]")
    return repository


def test_functions_and_pipelines_of_a_repository(steps):
    models = chairlift.load_repository(steps, allow_plugins=True, max_batch_size=16)
    assert list(models) == ["all", "both", "one", "third", "two"]
    np.testing.assert_allclose(models["all"](x=6 * ONE), 6 * ONE * 2 * 2 / 3)
    assert "up to 16 rows" in models["one"].diagnosis
    # From another copy, though the names are the same.
    (steps / "third" / "1" / "third.py").write_text("import numpy as np\ndef predict(x: np.ndarray) -> np.ndarray:\n    return -x\n")
    again = chairlift.load_repository(steps, allow_plugins=True)
    np.testing.assert_allclose(models["all"](x=ONE), ONE * 2 * 2 / 3)
    np.testing.assert_allclose(again["all"](x=ONE), -4 * ONE)
    # A pipeline keeps its steps.
    only = again["all"]
    del again
    np.testing.assert_allclose(only(x=ONE), -4 * ONE)


def test_what_cannot_be_loaded_of_a_repository_is_left_out(steps):
    with pytest.warns(UserWarning) as warned:
        models = chairlift.load_repository(steps)
    assert list(models) == ["one", "two"]
    said = {str(warning.message).partition(" ")[0]: str(warning.message) for warning in warned}
    assert list(said) == ["all", "both", "third"]
    assert all("allow_plugins=True" in message for message in said.values())
    with pytest.raises(chairlift.InvalidArgument, match="allow_plugins=True"):
        chairlift.load(steps / "third")
    assert chairlift.load(steps / "third", allow_plugins=True)(ONE)[0, 0] == np.float32(1 / 3)
    with pytest.raises(chairlift.InvalidArgument, match="is a pipeline"):
        chairlift.load(steps / "both")


def test_pipelines_must_end(steps):
    (steps / "both" / "model.yaml").write_text("steps: [{model: all}]")
    (steps / "third" / "model.yaml").write_text("steps: [{model: nobody}]")
    with pytest.warns(UserWarning) as warned:
        assert list(chairlift.load_repository(steps)) == ["one", "two"]
    messages = [str(warning.message) for warning in warned]
    assert "all was left out: model 'all' leads back to itself (all → both → all)" in messages
    assert any(message.startswith("third was left out: model 'third' names model 'nobody', which") for message in messages)
    for name in ("one", "two"):
        shutil.rmtree(steps / name)
    with pytest.raises(chairlift.NotFound, match="model 'all' names model 'two'"):
        chairlift.load_repository(steps)


def test_settings_of_functions(tmp_path, doubling_file):
    (tmp_path / "my.py").write_text("import os\nimport numpy as np\ndef predict(x: np.ndarray) -> np.ndarray:\n"
                                    "    return np.full(len(x), os.getpid(), np.float32)\n")
    model = chairlift.load(f"{tmp_path / 'my.py'}:predict", workers=2, max_batch_size=1)
    assert "2 processes" in model.diagnosis
    with pytest.raises(chairlift.InvalidArgument, match="workers is '0'"):
        chairlift.load(f"{tmp_path / 'my.py'}:predict", workers=0)
    with pytest.raises(chairlift.InvalidArgument, match="'workers' applies only to Python models"):
        chairlift.load(doubling_file, workers=2)


def test_hooks_in_processes_of_their_own(tmp_path):
    (tmp_path / "my.py").write_text("""
import os
import numpy as np
from numpy.typing import NDArray
class Model:
    def __init__(self):
        self.weight = np.float32(2)
    @staticmethod
    def preprocess(text: str) -> NDArray[np.float32]:
        return np.array([len(text), os.getpid()], np.float32)
    def predict(self, batch: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.concatenate([batch * self.weight, np.full((len(batch), 1), os.getpid(), np.float32)], 1)
    def postprocess(self, item: NDArray[np.float32]) -> str:
        return f"{item[0]:.0f} {len({item[1] / 2, item[2], os.getpid()})}"
""")
    path = f"{tmp_path / 'my.py'}:Model"
    assert chairlift.load(path)(["abc", "a"]).tolist() == [b"6 1", b"2 1"]
    model = chairlift.load(path, separate_hooks=["preprocess", "postprocess"], hook_workers=2)
    assert model.inputs[0].name == "text" and model(["abc", "a"]).tolist() == [b"6 3", b"2 3"]
    futures = [model.submit(["x" * i]) for i in range(200)]
    assert [future.result()[0] for future in futures] == [f"{2 * i} 3".encode() for i in range(200)]
    with pytest.raises(chairlift.InvalidArgument, match="separate_hooks"):
        chairlift.load(path, separate_hooks=["predict"])
    (tmp_path / "other.py").write_text((tmp_path / "my.py").read_text().replace(
        "batch: NDArray[np.float32]", "batch: NDArray[np.int64]"))
    with pytest.raises(chairlift.InvalidArgument, match="'batch' is taken as int64 .* and comes .* as float32"):
        chairlift.load(f"{tmp_path / 'other.py'}:Model", separate_hooks=["preprocess"])


def test_texts(tmp_path):
    (tmp_path / "my.py").write_text("def predict(text: list[str]) -> list[str]: return [one.upper() for one in text]\n")
    model = chairlift.load(f"{tmp_path / 'my.py'}:predict")
    assert model.inputs == [chairlift.TensorSpec("text", "bytes", (None,))]
    wanted = ["É".encode(), b"", b"A\0"]
    for texts in (["é", "", b"a\0"], ("é", "", "a\0"), np.array(["é", "", b"a\0"], object)):
        assert model(texts).tolist() == wanted
        assert model.submit(text=texts).result().tolist() == wanted
        assert asyncio.run(model.infer(texts)).tolist() == wanted
        assert model.stream(texts).result().tolist() == wanted
    assert model(np.array(["ab", "c"])).tolist() == model(np.array([b"ab", b"c"])).tolist() == [b"AB", b"C"]
    assert [row.tolist() for row in model([np.array(["a", "b"]), np.array(["c"])])] == [[b"A", b"B"], [b"C"]]
    assert model([]).tolist() == []
    for wrong, says in (("ab", "takes text"), (["a", 1], "a int among its items"), ([["a"]], "of rank 2"),
                        (np.ones(2), "among its items"), (3, "takes text")):
        with pytest.raises(chairlift.InvalidArgument, match=says):
            model(wrong)
    with pytest.raises(UnicodeEncodeError):
        model(["\ud800"])
    with pytest.raises(chairlift.InvalidArgument, match="not UTF-8"):
        model([b"\xff"])


def test_the_version_is_that_of_the_program():
    printed = subprocess.run([chairlift._program.PROGRAM, "--version"], capture_output=True, text=True).stdout
    assert printed.split()[:2] == ["chairlift", chairlift.__version__]
