"""The process around the engine: its end, forks, signals."""

import subprocess
import sys
import textwrap

import numpy as np
import onnx
import pytest

import chairlift
from serving import PROGRAM


def run(code, *arguments, **keywords):
    return subprocess.run([sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)], capture_output=True,
                          text=True, timeout=60, **keywords)


def test_a_process_ends_with_requests_in_flight(tmp_path):
    (tmp_path / "never.py").write_text("import time\ndef predict(x):\n    time.sleep(1000)\n")
    done = run("""
        import sys, threading
        import numpy as np
        import chairlift
        model = chairlift.load(sys.argv[1] + ":predict")
        x = np.ones((1, 2), np.float32)
        def end(future):
            print(type(future.exception()).__name__)
        for _ in range(3):
            model.submit(x).add_done_callback(end)
        threading.Thread(target=lambda: model(x), daemon=True).start()
        stream = model.stream(x)
        print("ends")
        """, tmp_path / "never.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["ends"] + ["Unavailable"] * 3


def test_a_child_of_fork_is_refused_and_may_load_its_own(doubling_file):
    done = run("""
        import os, sys
        import numpy as np
        import chairlift
        model = chairlift.load(sys.argv[1])
        x = np.ones((1, 4), np.float32)
        pending = model.submit(x)
        child = os.fork()
        if child == 0:
            for call in (lambda: model(x), lambda: model.submit(x), lambda: model.stats()):
                try:
                    call()
                except chairlift.Unavailable as error:
                    print("forked" in str(error))
            model.close()
            del model
            print(chairlift.load(sys.argv[1])(x)[0, 0])
            print(chairlift.load(sys.argv[1]).submit(x).result()[0, 0])
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), model(x)[0, 0], pending.result()[0, 0])
        """, doubling_file)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"] * 3 + ["2.0", "2.0", "7", "2.0", "2.0"], done.stderr


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_processes_of_multiprocessing(doubling_file, tmp_path, method):
    (tmp_path / "work.py").write_text(textwrap.dedent("""
        import multiprocessing, sys
        import numpy as np
        import chairlift
        def ask(path):
            return float(chairlift.load(path)(np.ones((1, 4), np.float32))[0, 0])
        if __name__ == "__main__":
            model = chairlift.load(sys.argv[1])
            with multiprocessing.get_context(sys.argv[2]).Pool(2) as pool:
                print(pool.map(ask, [sys.argv[1]] * 2))
        """))
    done = subprocess.run([sys.executable, tmp_path / "work.py", doubling_file, method], capture_output=True, text=True,
                          timeout=120)
    assert done.stdout.strip() == "[2.0, 2.0]", done.stderr


def test_the_package_keeps_no_references(doubling_file):
    done = run("""
        import gc, sys, weakref
        import numpy as np
        import chairlift
        model = chairlift.load(sys.argv[1])
        class Array(np.ndarray):
            pass
        def fresh():
            return np.ones((1, 4), np.float32).view(Array)
        kept = []
        for use in (model, lambda x: model.submit(x).result(), lambda x: model.stream(x).result()):
            x = fresh()
            kept.append(weakref.ref(x))
            use(x)
            del x
        model.submit(fresh()).result()  # what events held before it has gone
        for _ in range(10000):
            gc.collect()
            if not any(ref() is not None for ref in kept):
                break
        print([ref() is None for ref in kept])
        """, doubling_file)
    assert done.stdout.strip() == "[True, True, True]", done.stderr


@pytest.mark.parametrize("call", ["model(x)", "model([x[0], x[0]])", "model.submit(x).result()", "next(model.stream(x))"])
def test_ctrl_c_ends_a_call(tmp_path, call):
    (tmp_path / "never.py").write_text("import time\ndef predict(x):\n    time.sleep(1000)\n")
    done = run(f"""
        import os, signal, sys, threading, time
        import numpy as np
        import chairlift
        model = chairlift.load(sys.argv[1] + ":predict", max_batch_size=1)
        x = np.ones((1, 2), np.float32)
        running = [model.submit(x), model.submit(x)]
        while model.stats()["running"] < 2:
            time.sleep(0.001)
        def interrupt():
            while not model.stats()["waiting"]:  # the call waits in the queue
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            {call}
        except KeyboardInterrupt:
            print("ended", model.stats()["failures"])
        """, tmp_path / "never.py")
    assert done.stdout.startswith("ended"), done.stderr
    if "model(" in call:
        assert "'cancelled'" in done.stdout


@pytest.mark.parametrize("layer", ["MatMul", "RNN"])
def test_ctrl_c_ends_a_call_that_nothing_else_runs_beside(tmp_path, layer):
    onnx.save(_seconds(layer), tmp_path / "long.onnx")
    done = run("""
        import os, signal, sys, threading, time
        import numpy as np
        import chairlift
        model = chairlift.load(sys.argv[1])
        rows = np.zeros([5 if dim is None else dim for dim in model.inputs[0].shape], np.float32)
        model(rows)  # from now on it is known how long it takes
        def interrupt():
            while not model.stats()["running"]:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        try:
            model(rows)
        except KeyboardInterrupt:
            while not model.stats()["failures"] and model.stats()["success"]["count"] < 2:
                time.sleep(0.01)  # until its operator has ended
            print("ended", model.stats()["failures"])
        """, tmp_path / "long.onnx")
    assert done.stdout.startswith("ended") and "'cancelled'" in done.stdout, done.stdout + done.stderr


def _seconds(layer):
    """A model that takes long: of 60 products of 1024 x 1024, or of 30,000 steps."""
    floats, of = onnx.TensorProto.FLOAT, onnx.helper
    if layer == "MatMul":
        x, y, weights = [1024, 1024], [1024, 1024], {"w": [1024, 1024]}
        names = ["x", *(f"h{i}" for i in range(59)), "y"]
        nodes = [of.make_node("MatMul", [a, "w"], [b]) for a, b in zip(names, names[1:])]
    else:
        x, y, weights = [30_000, "batch", 256], [1, "batch", 256], {"w": [1, 256, 256], "r": [1, 256, 256]}
        nodes = [of.make_node("RNN", ["x", "w", "r"], ["", "y"], hidden_size=256)]
    initializers = [onnx.numpy_helper.from_array(np.zeros(shape, np.float32), name) for name, shape in weights.items()]
    graph = of.make_graph(nodes, "long", [of.make_tensor_value_info("x", floats, x)], [of.make_tensor_value_info("y", floats, y)],
                          initializers)
    return of.make_model(graph, opset_imports=[of.make_opsetid("", 17)], ir_version=8)


def test_a_file_that_loads_its_own_function_without_a_guard_is_refused(tmp_path):
    for name, other in (("one", "two"), ("two", "one")):  # each by the other's too
        (tmp_path / f"{name}.py").write_text(textwrap.dedent(f"""
            import pathlib, sys
            import numpy as np
            import chairlift
            def predict(x: np.ndarray) -> np.ndarray:
                return x
            model = chairlift.load(str(pathlib.Path(__file__).with_name("{other}.py")) + ":predict")
            """))
    (tmp_path / "mine.py").write_text(textwrap.dedent("""
        import numpy as np
        import chairlift
        def predict(x: np.ndarray) -> np.ndarray:
            return x
        model = chairlift.load(predict)
        """))
    for name in ("mine.py", "one.py"):
        done = subprocess.run([sys.executable, tmp_path / name], capture_output=True, text=True, timeout=60)
        assert done.returncode != 0
        assert 'if __name__ == "__main__"' in done.stderr


def test_a_function_s_file_may_load_another_s(tmp_path):
    (tmp_path / "inner.py").write_text("def predict(x):\n    return x + 1\n")
    (tmp_path / "outer.py").write_text(textwrap.dedent("""
        import pathlib
        import numpy as np
        import chairlift
        inner = chairlift.load(str(pathlib.Path(__file__).with_name("inner.py")) + ":predict")
        def predict(x: np.ndarray) -> np.ndarray:
            return 2 * inner(x)
        """))
    model = chairlift.load(f"{tmp_path / 'outer.py'}:predict")
    assert model(np.ones((1, 2), np.float32)).tolist() == [[4, 4]]
    model.close()


def test_standard_output_is_the_program_s(tmp_path):
    (tmp_path / "prints.py").write_text("import os\nprint('said by the function')\ndef predict(x):\n    os._exit(3)\n")
    done = run("""
        import sys
        import numpy as np
        import chairlift
        try:
            chairlift.load(sys.argv[1] + ":predict")(np.ones((1, 2), np.float32))
        except chairlift.Unavailable:
            print("ended")
        """, tmp_path / "prints.py")
    assert done.stdout == "ended\n"
    assert "said by the function" in done.stderr and "exited with code 3" in done.stderr


@pytest.mark.parametrize("load", ["chairlift.load(sys.argv[1] + ':predict')", "chairlift.load_repository(sys.argv[1])"])
def test_ctrl_c_ends_a_load(tmp_path, load):
    file = tmp_path / "never.py"
    file.write_text("import pathlib, time\npathlib.Path(__file__).with_name('begun').touch()\ntime.sleep(1000)\n")
    path = file
    if "repository" in load:
        path = tmp_path / "models"
        (path / "never" / "1").mkdir(parents=True)
        (path / "never" / "1" / "never.py").symlink_to(file)
        (path / "never" / "model.yaml").write_text("python: never.py:predict")
        load = load.replace(")", ", allow_plugins=True)")
    done = run(f"""
        import os, pathlib, signal, sys, threading, time
        import chairlift
        def interrupt():
            while not list(pathlib.Path(sys.argv[2]).rglob("begun")):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)
        threading.Thread(target=interrupt).start()
        begin = time.monotonic()
        try:
            {load}
        except KeyboardInterrupt:
            print("ended")
        """, path, tmp_path)
    assert done.stdout == "ended\n", done.stderr


def test_output_that_cannot_be_written_is_an_error(doubling_file):
    with open("/dev/full", "w") as full:
        done = subprocess.run([PROGRAM, "inspect", doubling_file], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert "cannot write the output: No space left on device" in done.stderr
