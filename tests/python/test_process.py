"""The process around the engine: its end, forks, signals."""

import subprocess
import sys
import textwrap

import pytest


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
        import os, signal, sys, threading
        import numpy as np
        import chairlift
        model = chairlift.load(sys.argv[1] + ":predict", max_batch_size=1)
        x = np.ones((1, 2), np.float32)
        running = [model.submit(x), model.submit(x)]  # the call waits in the queue
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            {call}
        except KeyboardInterrupt:
            print("ended", model.stats()["failures"])
        """, tmp_path / "never.py")
    assert done.stdout.startswith("ended"), done.stderr
    if "model(" in call:
        assert "'cancelled'" in done.stdout


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
