"""What can be loaded, under which settings, and what is refused."""

import shutil

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


def test_a_pipeline_does_not_keep_the_rest_of_a_repository(doubling_file, tmp_path):
    (tmp_path / "a/1").mkdir(parents=True)
    shutil.copy(doubling_file, tmp_path / "a/1/model.onnx")
    (tmp_path / "p").mkdir()
    (tmp_path / "p/model.yaml").write_text("steps: [{model: a}]")
    with pytest.warns(UserWarning, match="p was left out: .* is a pipeline"):
        models = chairlift.load_repository(tmp_path)
    assert list(models) == ["a"]
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(chairlift.InvalidArgument, match="is a pipeline"):
        chairlift.load_repository(tmp_path)
