"""Inputs and outputs of a call: types, layouts, shapes, names, and ownership of memory."""

import array
import gc
import threading

import ml_dtypes
import numpy as np
import pytest
from conftest import onnx_file
from onnx import TensorProto

import chairlift

TYPES = {"float32": TensorProto.FLOAT, "float64": TensorProto.DOUBLE, "float16": TensorProto.FLOAT16,
         "bfloat16": TensorProto.BFLOAT16, "int8": TensorProto.INT8, "int16": TensorProto.INT16,
         "int32": TensorProto.INT32, "int64": TensorProto.INT64, "uint8": TensorProto.UINT8,
         "uint16": TensorProto.UINT16, "uint32": TensorProto.UINT32, "uint64": TensorProto.UINT64,
         "bool": TensorProto.BOOL}
FOUR = np.arange(12, dtype=np.float32).reshape(3, 4)


def identity(folder, name, shape, type_name="float32"):
    value = (TYPES[type_name], shape)
    return chairlift.load(onnx_file(folder / f"{name}.onnx", [("Identity", ["x"], ["y"])], [("x", *value)],
                                    [("y", *value)]))


@pytest.mark.parametrize("name", TYPES)
def test_every_element_type_goes_in_and_out(folder, name):
    model = identity(folder, name, ["n", "m"], name)
    dtype = np.dtype(ml_dtypes.bfloat16) if name == "bfloat16" else np.dtype(name)
    x = np.array([[0, 1, 2], [3, 100, 1]]).astype(dtype)
    y = model(x)
    assert y.dtype == dtype and y.tolist() == x.tolist()
    assert model.inputs == [("x", name, (None, None))]
    numbers = [[True, False]] if name == "bool" else [[1, 0], [5, 7]]
    assert model(numbers).dtype == dtype
    assert model(numbers).tolist() == numbers


@pytest.mark.parametrize("call", [lambda m: m(x=FOUR), lambda m: m(FOUR), lambda m: m({"x": FOUR}),
                                  lambda m: m.submit(FOUR).result(), lambda m: m.stream(x=FOUR).result()])
def test_an_only_output_is_an_array(doubling, call):
    np.testing.assert_array_equal(call(doubling), FOUR * 2)


def test_several_outputs_are_a_dict_in_the_order_of_the_model(several):
    answer = several(a=FOUR, b=2 * FOUR)
    assert list(answer) == ["sum", "difference", "same"]
    np.testing.assert_array_equal(answer["difference"], -FOUR)


def test_wanted_outputs_are_a_dict(several, doubling):
    assert list(several(FOUR, FOUR, outputs=["same", "sum"])) == ["same", "sum"]
    assert list(doubling(FOUR, outputs=["y"])) == ["y"]
    with pytest.raises(chairlift.InvalidArgument, match="outputs is 'y'; it must be a list") as refused:
        doubling(FOUR, outputs="y")
    assert refused.type.__module__ == "chairlift"  # as tracebacks name it
    with pytest.raises(chairlift.Error, match="'z'"):
        doubling(FOUR, outputs=["z"])


@pytest.mark.parametrize("x", [
    FOUR[::2], FOUR[:, ::-1], np.asfortranarray(FOUR), np.broadcast_to(FOUR[:1], (5, 4)), FOUR.astype(">f4"),
    np.frombuffer(b"\0" + FOUR.tobytes(), np.float32, offset=1).reshape(3, 4), np.ma.masked_array(FOUR),
    memoryview(FOUR), memoryview(FOUR)[::2],
], ids=["steps", "backwards", "fortran", "broadcast", "byteswapped", "unaligned", "subclass", "buffer", "buffer_steps"])
def test_layouts(doubling, x):
    np.testing.assert_array_equal(doubling(x), np.asarray(x) * 2)


def test_read_only_arrays_are_taken(doubling):
    x = FOUR.copy()
    x.flags.writeable = False
    np.testing.assert_array_equal(doubling(x), x * 2)


def test_buffers_of_others_are_taken(folder):
    model = identity(folder, "flat", ["n"], "float64")
    assert model(array.array("d", [1, 2, 3])).tolist() == [1, 2, 3]


class Foreign:
    """Another library's array, with DLPack alone."""

    def __init__(self, array, in_host_memory=True):
        self.array, self.in_host_memory = array, in_host_memory

    def __dlpack__(self, **keywords):
        if not self.in_host_memory:
            raise BufferError("it is elsewhere")
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


def test_dlpack_in_and_out(doubling):
    np.testing.assert_array_equal(doubling(Foreign(FOUR.copy())), FOUR * 2)
    np.testing.assert_array_equal(np.from_dlpack(Foreign(doubling(FOUR))), FOUR * 2)
    with pytest.raises(chairlift.InvalidArgument, match="FP64; the model takes FP32: convert"):
        doubling(Foreign(FOUR.astype(np.float64)))
    with pytest.raises(chairlift.InvalidArgument, match="'x' is a Foreign .*it is elsewhere.* the host's memory"):
        doubling(Foreign(FOUR.copy(), in_host_memory=False))


def test_scalars(folder):
    model = identity(folder, "scalar", [])
    for x in (np.float32(2.5), np.array(2.5, np.float32), 2.5):
        y = model(x)
        assert y.shape == () and y == 2.5


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (0, 0)])
def test_arrays_without_elements(folder, shape):
    model = identity(folder, f"empty{shape[0]}{shape[1]}", ["n", "m"])
    assert model(np.empty(shape, np.float32)).shape == shape


def test_lists_without_elements_get_the_type_of_the_input(folder):
    assert identity(folder, "empty_list", ["n"], "int64")([]).dtype == np.int64


@pytest.mark.parametrize("x, says", [
    (FOUR.astype(np.float64), "FP64; the model takes FP32: convert"),
    (FOUR.astype(np.complex64), "type complex64; it takes float32"),
    (FOUR.astype(np.longdouble), "it takes float32"),
    (np.zeros(3, "datetime64[s]"), "it takes float32"),
    (np.zeros(3, [("a", "f4")]), "it takes float32"),
    (np.array([[1, None]], object), "elements that are Python objects; it takes float32"),
    (None, "elements that are Python objects"),
    (np.array([["a"]]), "is text; it takes float32"),
    ("text", "is text; it takes float32"),
    (b"text", "is text; it takes float32"),
    ([[1, 2], [3]], "equal lengths"),
    ([[True, False, True, True]], "BOOL; the model takes FP32"),
    (np.zeros((1, 5), np.float32), r"dimension 1 of input 'x' is 5"),
    (np.zeros(4, np.float32), r"input 'x'"),
    (np.broadcast_to(np.float32(1), (1 << 36, 4)), "the limit is"),
], ids=lambda value: None if isinstance(value, str) else type(value).__name__)
def test_what_is_not_taken_is_refused_by_name(doubling, x, says):
    with pytest.raises(chairlift.InvalidArgument, match=says) as refused:
        doubling(x=x)
    assert "'x'" in str(refused.value)
    assert isinstance(refused.value, ValueError)


def test_numbers_that_do_not_fit_are_refused(folder):
    model = identity(folder, "bytes", ["n"], "uint8")
    with pytest.raises(chairlift.InvalidArgument, match="'x'"):
        model([1, 256])
    with pytest.raises(chairlift.InvalidArgument, match="FP64"):
        model([1.5])


@pytest.mark.parametrize("call, says", [
    (lambda m: m(z=FOUR), "no input 'z'"), (lambda m: m(), "'x' is missing"), (lambda m: m(FOUR, FOUR), "2 arrays"),
    (lambda m: m(FOUR, x=FOUR), "'x' is given twice"), (lambda m: m({"x": FOUR}, x=FOUR), "given twice"),
])
def test_wrong_names(doubling, call, says):
    with pytest.raises(chairlift.InvalidArgument, match=says):
        call(doubling)
    with pytest.raises(TypeError):
        doubling({1: FOUR})


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon"])
def test_timeouts_are_numbers_of_seconds(doubling, timeout):
    with pytest.raises(chairlift.InvalidArgument, match="timeout is"):
        doubling(FOUR, timeout=timeout)
    np.testing.assert_array_equal(doubling(FOUR, timeout=1e300), FOUR * 2)


def test_inputs_are_let_go_of_with_the_answer(folder):
    model = identity(folder, "let_go", ["n"])
    x = array.array("f", [1, 2])
    answer = model(x)
    x.append(3)  # raises while its buffer is in use
    with pytest.raises(chairlift.InvalidArgument):
        model(x=x, z=x)
    x.append(4)
    assert answer.tolist() == [1, 2]


def test_answers_own_their_memory(doubling_file):
    x = np.random.default_rng(0).standard_normal((1000, 4), np.float32)
    model = chairlift.load(doubling_file)
    answers = [model(x) for _ in range(10)]
    futures = [model.submit(x) for _ in range(10)]
    answers += [future.result() for future in futures]
    del model, futures
    gc.collect()
    for answer in answers:
        np.testing.assert_array_equal(answer, x * 2)
        answer += 1  # each is its holder's alone
    np.testing.assert_array_equal(answers[-1], x * 2 + 1)


def test_writing_to_an_answer_changes_nothing_else(several, folder):
    a = FOUR.copy()
    for answer in (several(a, a), several.submit(a, a).result()):
        answer["same"] += 1
        np.testing.assert_array_equal(a, FOUR)
    value = (TensorProto.FLOAT, [2])
    constant = chairlift.load(onnx_file(
        folder / "constant.onnx", [("Identity", ["c"], ["y"]), ("Identity", ["c"], ["z"]), ("Neg", ["x"], ["n"])],
        [("x", *value)], [("y", *value), ("z", *value), ("n", *value)], [("c", np.array([1, 2], np.float32))]))
    answer = constant(np.zeros(2, np.float32))
    answer["y"] += 5
    assert answer["z"].tolist() == [1, 2]
    assert constant(np.zeros(2, np.float32))["y"].tolist() == [1, 2]


def test_many_threads_share_a_model(doubling):
    wrong = []

    def ask(seed):
        x = np.random.default_rng(seed).standard_normal((seed + 1, 4), np.float32)
        for _ in range(50):
            if not np.array_equal(doubling(x), x * 2):
                wrong.append(seed)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_seed_determines_random_numbers(folder):
    value = [TensorProto.FLOAT, ["batch", "n"]]
    model = chairlift.load(onnx_file(
        folder / "noisy.onnx", [("RandomNormalLike", ["x"], ["noise"]), ("Add", ["x", "noise"], ["y"])],
        [("x", *value)], [("y", *value)]))
    assert [name for name, *_ in model.inputs] == ["x"]
    first = model(FOUR, seed=7)
    np.testing.assert_array_equal(model(FOUR, seed=7), first)
    np.testing.assert_array_equal(model(FOUR[:1], seed=7), first[:1])
    assert not np.array_equal(model(FOUR, seed=8), first)
    assert not np.array_equal(model(FOUR), model(FOUR))
    with pytest.raises(chairlift.InvalidArgument, match="input 'seed' is float"):
        model(FOUR, seed=0.5)
