"""Old names of arguments and settings, which work for one version."""

import numpy as np
import pytest

import chairlift
from chairlift import _model


def test_each_old_argument_of_an_engine_works_and_warns():
    for old, new in _model._RENAMED.items():
        with pytest.warns(DeprecationWarning, match=f"'{old}' is now '{new}'"):
            chairlift.Engine(workers=1, **{old: False}).close()


def test_other_arguments_of_an_engine_are_refused():
    with pytest.raises(TypeError, match="unexpected keyword argument 'treads'"):
        chairlift.Engine(treads=1)


def test_an_old_setting_works_and_warns(doubling_file, capfd):
    with chairlift.load(doubling_file, names={"x": "input"}) as model:
        assert np.array_equal(model(input=np.ones((1, 4), np.float32)), 2 * np.ones((1, 4), np.float32))
    assert "`names` is now `tensor_names`" in capfd.readouterr().err
