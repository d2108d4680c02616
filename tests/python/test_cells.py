"""Cells and the functions that unfold requests into them, in Python."""

import numpy as np
import pytest
from conftest import onnx_file
from onnx import TensorProto

import chairlift

FLOATS = TensorProto.FLOAT


@pytest.fixture(scope="module")
def pair(folder):
    """both = left + 2 right; largest = the largest of each row of both."""
    value = [FLOATS, ["batch", 4]]
    return onnx_file(folder / "pair.onnx",
                     [("Mul", ["right", "two"], ["doubled"]), ("Add", ["left", "doubled"], ["both"]),
                      ("ReduceMax", ["both"], ["largest"], {"axes": [1]})],
                     [("left", *value), ("right", *value)], [("both", *value), ("largest", FLOATS, ["batch", 1])],
                     [("two", np.array(2, np.float32))])


def load(pair, unfold, outputs=None, **settings):
    return chairlift.load_cells({"pair": pair}, unfold, inputs={"x": ("float32", ["length", 4])},
                                outputs=outputs or {"y": ("float32", ["?", 4])}, **settings)


def pairwise(x):
    rows = list(x)
    while len(rows) > 1:
        pairs = []
        for left, right in zip(rows[::2], rows[1::2]):
            node = yield chairlift.cell("pair", left=left, right=right)
            pairs.append(node["both"])
        rows = pairs + rows[2 * len(pairs):]
    return {"y": rows}


def folded(x):
    rows = list(x)
    while len(rows) > 1:
        pairs = [left + 2 * right for left, right in zip(rows[::2], rows[1::2])]
        rows = pairs + rows[2 * len(pairs):]
    return rows[0]


def test_requests_of_several_shapes_share_batches(pair):
    model = load(pair, pairwise)
    rng = np.random.default_rng(0)
    xs = [rng.standard_normal((length, 4), np.float32) for length in (1, 2, 3, 8, 13, 40) * 10]
    futures = [model.submit(x) for x in xs]
    for x, future in zip(xs, futures):
        np.testing.assert_allclose(future.result(), folded(x)[np.newaxis], rtol=1e-5)
    stats = model.stats()
    assert stats["inference_count"] == 60 and max(stats["batches"]) > 1


def test_what_follows_may_depend_on_what_was_computed(pair):
    def until_large(x):
        state = x[0]
        steps = 0
        while True:
            node = yield chairlift.cell("pair", left=state, right=x[0])
            state = node["both"]
            steps += 1
            largest = yield node["largest"]
            if largest[0] > 10:
                both = yield node
                assert both["largest"][0] == both["both"].max() and not both["both"].flags.writeable
                return {"y": [state], "steps": np.array([steps])}

    model = load(pair, until_large, {"y": ("float32", [1, 4]), "steps": ("int64", [1])})
    answers = [model.submit(np.full((1, 4), start, np.float32)) for start in (1, 2, 4, 20)]
    assert [int(answer.result()["steps"][0]) for answer in answers] == [5, 3, 1, 1]
    assert answers[0].result()["y"].tolist() == [[11] * 4]


def test_nodes_of_many_rows(pair):
    def whole(x):
        node = yield chairlift.cell("pair", {"left": x, "right": x}, rows=len(x))
        assert len(node["both"]) == len(x)
        last = yield chairlift.cell("pair", left=node["both"][-1], right=node["both"][0])
        spread = yield chairlift.cell("pair", left=node["both"], right=last["both"], rows=len(x))
        return {"y": spread["both"]}

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_allclose(load(pair, whole)(x), 3 * x + 2 * (3 * x[-1] + 6 * x[0]))


@pytest.mark.parametrize("value, says", [
    (lambda x: chairlift.cell("triple", left=x[0], right=x[0]), "no cell 'triple'; the model has: pair"),
    (lambda x: chairlift.cell("pair", left=x[0]), "its input 'right' is missing"),
    (lambda x: chairlift.cell("pair", left=x[0], middle=x[0]), "no input 'middle'; it has: left, right"),
    (lambda x: chairlift.cell("pair", left=x[0], right=x[0, :3]), r"input 'right' takes float32 \[4\]; it got float32 \[3\]"),
    (lambda x: chairlift.cell("pair", left=x[0], right=x[0].astype(np.float64)), "it got float64"),
    (lambda x: chairlift.cell("pair", left=x, right=x, rows=len(x) + 1), r"takes float32 \[3,4\]"),
    (lambda x: chairlift.cell("pair", left=x[:0], right=x[:0], rows=-3), "-3 rows"),
    (lambda x: "pair", "yielded <class 'str'>"),
])
def test_wrong_cells_are_refused_by_name(pair, value, says):
    def unfold(x):
        yield value(x)

    with pytest.raises(chairlift.InvalidArgument, match=says):
        load(pair, unfold)(np.ones((2, 4), np.float32))


def test_errors_name_the_line_and_fail_their_request_alone(pair):
    def picky(x):
        node = yield chairlift.cell("pair", left=x[0], right=x[0])
        both = yield node["both"]
        if both[0] < 0:
            raise ValueError("below zero")
        return {"y": [node["both"]]}

    model = load(pair, picky)
    good = [model.submit(np.ones((1, 4), np.float32)) for _ in range(5)]
    with pytest.raises(chairlift.Internal, match=r"ValueError: below zero \(test_cells.py, line \d+, in picky\)"):
        model(np.full((1, 4), -1, np.float32))
    assert [future.result()[0, 0] for future in good] == [3] * 5


def other_s_node(kept=[]):  # noqa: B006  (shared on purpose)
    def unfold(x):
        node = yield chairlift.cell("pair", left=x[0], right=x[0])
        kept.append(node)
        return {"y": [kept[0]["both"]]}
    return unfold


@pytest.mark.parametrize("unfold, says", [
    (lambda x: x, "not a generator"),
    (other_s_node(), "a node of another request"),
])
def test_functions_that_are_no_unfolders(pair, unfold, says):
    model = load(pair, unfold)
    with pytest.raises(chairlift.InvalidArgument, match=says):
        for _ in range(2):
            model(np.ones((1, 4), np.float32))


def test_answers_are_checked(pair):
    def returning(value):
        def unfold(x):
            node = yield chairlift.cell("pair", left=x[0], right=x[0])
            return value(x, node)
        return load(pair, unfold)

    x = np.ones((1, 4), np.float32)
    assert returning(lambda x, node: x)(x).tolist() == x.tolist()  # an only output needs no name
    for value, says in ((lambda x, node: {"z": x}, "returned no 'y'"), (lambda x, node: [], "empty list"),
                        (lambda x, node: [node["both"], node["largest"]], "its rows are of"),
                        (lambda x, node: 7, r"returned int64 \[\] as output 'y', which is float32"),
                        (lambda x, node: x[:, :3], r"returned float32 \[1,3\] as output 'y'"),
                        (lambda x, node: x[0], r"returned float32 \[4\] as output 'y'"),
                        (lambda x, node: x.astype(np.float64), "returned float64")):
        with pytest.raises(chairlift.InvalidArgument, match=says):
            returning(value)(x)


def test_built_in_unfolders_of_cells_from_python(pair):
    model = chairlift.load_cells({"pair": pair.read_bytes()}, {"chain": {
        "cell": "pair", "tokens": {"input": "right", "request": "x"}, "states": [{"input": "left", "output": "both"}],
        "outputs": [{"name": "y", "output": "both"}]}}, policy="graph_merge")
    assert "graph_merge" in model.diagnosis
    x = np.ones((1, 5, 4), np.float32)
    assert model(x).tolist() == [[10] * 4]


def test_what_load_cells_refuses(pair):
    with pytest.raises(chairlift.InvalidArgument, match="needs the model's inputs and outputs"):
        chairlift.load_cells({"pair": pair}, pairwise)
    with pytest.raises(chairlift.InvalidArgument, match="must be a generator function or a dict"):
        chairlift.load_cells({"pair": pair}, "pairwise")
    with pytest.raises(chairlift.InvalidArgument, match="'../pair' cannot be"):
        chairlift.load_cells({"../pair": pair}, pairwise, {"x": ("float32", ["n", 4])}, {"y": ("float32", [1, 4])})
