#!/usr/bin/env python3
"""Installs a wheel in an empty virtual environment of a bare Debian, and calls a model there.

    bare_root.py WHEEL NUMPY_WHEEL MODEL

The bare root has only the files of python3-venv, dash and libstdc++6 (which every Debian has), and of the packages that
they depend on. It has no packages for building (tools/packages.txt). Needs root, or user namespaces.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ASK = """
import concurrent.futures, pathlib, subprocess, sys
import numpy as np
import chairlift

model = chairlift.load("/trial/model.onnx")
x = np.arange(8, dtype=np.float32).reshape(2, 4)
assert (model(x) == 2 * x).all() and (model.submit(x).result() == 2 * x).all()
assert [y.tolist() for y in model([x[0], x[1]])] == (2 * x).tolist()
pathlib.Path("/trial/third.py").write_text(
    "import numpy as np\\ndef predict(x: np.ndarray) -> np.ndarray:\\n    return x / 3\\n")
assert (chairlift.load("/trial/third.py:predict")(3 * x) == x).all()
assert "diagnosis:" in chairlift.inspect("/trial/model.onnx")
with chairlift.Server("/trial/model.onnx", http_port=0, metrics_port=-1) as server:
    import json, urllib.request
    body = json.dumps({"inputs": [{"name": "x", "shape": [2, 4], "datatype": "FP32", "data": x.ravel().tolist()}]})
    with urllib.request.urlopen(server.url + "/v2/models/model/infer", body.encode()) as answer:
        assert json.load(answer)["outputs"][0]["data"] == (2 * x).ravel().tolist()
print("libraries:", len({line.split()[-1] for line in open("/proc/self/maps") if "chairlift" in line}),
      "of the wheel's are in use;", "of the system:", *sorted(
          {line.split()[-1].rpartition("/")[2] for line in open("/proc/self/maps")
           if ".so" in line and not line.split()[-1].startswith("/env")
           and "python3" not in line and "libpython" not in line}))
"""


def query(*arguments):
    return subprocess.run(["dpkg-query", *arguments], capture_output=True, text=True, check=True).stdout


def closure(packages):
    """Returns the packages and their installed dependencies. If there are alternatives, takes the installed one."""
    installed = {}
    provided = {}
    for line in query("-W", "-f=${db:Status-Status}\\t${Package}\\t${Provides}\\t${Pre-Depends}, ${Depends}\\n").splitlines():
        status, name, provides, depends = line.split("\t")
        if status != "installed":
            continue
        installed[name] = [[re.split(r"[ (:]", one.strip())[0] for one in group.split("|")]
                           for group in depends.split(",") if group.strip()]
        for one in provides.split(","):
            provided.setdefault(re.split(r"[ (]", one.strip())[0], name)
    found, left = set(), list(packages)
    while left:
        name = left.pop()
        if name in found:
            continue
        found.add(name)
        for group in installed[name]:
            chosen = next((one for one in group if one in installed), None) or next(
                (provided[one] for one in group if one in provided), None)
            if chosen is None:
                sys.exit(f"{name} depends on {' | '.join(group)}, which is not installed")
            left.append(chosen)
    return sorted(found)


def copy(root, packages):
    for name in packages:
        for line in query("-L", name).splitlines():
            source = pathlib.Path(line)
            if line.startswith(("/usr/share/doc", "/usr/share/man", "/usr/share/locale")) or not line.startswith("/"):
                continue
            # /lib is a link to /usr/lib.
            to = root / str(source.parent.resolve() / source.name).lstrip("/")
            if source.is_symlink():
                to.parent.mkdir(parents=True, exist_ok=True)
                if not to.is_symlink() and not to.exists():
                    to.symlink_to(os.readlink(source))
            elif source.is_file():
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(source, to)
    for name in ("bin", "sbin", "lib", "lib64"):
        if pathlib.Path("/", name).is_symlink() and not (root / name).exists():
            (root / name).symlink_to(os.readlink(f"/{name}"))
    for name in ("proc", "tmp", "dev", "trial"):
        (root / name).mkdir(exist_ok=True)
    (root / "dev/null").touch()
    if not (root / "usr/bin/sh").exists():
        (root / "usr/bin/sh").symlink_to("dash")


def main():
    wheel, numpy, model = map(pathlib.Path, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="bare") as folder:
        root = pathlib.Path(folder)
        packages = closure(["python3-venv", "dash", "libstdc++6"])
        unwanted = {line.strip() for line in (pathlib.Path(__file__).parents[2] / "tools/packages.txt").open()}
        unwanted -= {"python3", "python3-venv", "ca-certificates", "python3-pip"}
        if unwanted & set(packages):
            sys.exit(f"the bare root would have {unwanted & set(packages)}")
        copy(root, packages)
        for file, name in ((wheel, wheel.name), (numpy, numpy.name), (model, "model.onnx")):
            shutil.copy(file, root / "trial" / name)
        (root / "trial/ask.py").write_text(ASK)
        inside = "\n".join([
            "set -e", f"mount -t proc proc {root}/proc",
            f"exec chroot {root} /bin/sh -e -c '",
            "export HOME=/tmp PATH=/usr/bin:/bin",
            "python3 -m venv /env",
            f"/env/bin/pip install -q --no-index --disable-pip-version-check /trial/{wheel.name} /trial/{numpy.name}",
            "/env/bin/chairlift --version",
            "cd /tmp; exec /env/bin/python /trial/ask.py'"])
        namespaces = ["--mount", "--pid", "--fork", *([] if os.geteuid() == 0 else ["--map-root-user"])]
        done = subprocess.run(["unshare", *namespaces, "bash", "-c", inside])
        print(f"{wheel.name}: {'works' if done.returncode == 0 else 'FAILS'} on a root of {len(packages)} Debian packages: "
              f"{' '.join(packages)}")
        sys.exit(done.returncode)


if __name__ == "__main__":
    main()
