#!/usr/bin/env python3
"""Starts the results of `make image` and `make deb` and sends requests: image_test.py IMAGE DEB MODEL

The image's files are unpacked into a folder and mounted read-only. They run with the image's user, entry point and
environment, and a /tmp of their own. The Debian package is unpacked over the same root's libraries. Needs root. MODEL
computes y = x + x, [batch, 4].
"""

import contextlib
import gzip
import io
import json
import pathlib
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.request

PYTHON_MODEL = "import numpy as np\nimport jinja2, tokenizers\n\ndef predict(x: np.ndarray) -> np.ndarray:\n    return x / 2\n"


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def unpack(image, root):
    """Unpacks the image and returns its configuration. Checks that the digest of every blob equals its name."""
    import hashlib
    with tarfile.open(image) as archive:
        blobs = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}
    for name, data in blobs.items():
        assert not name.startswith("blobs/") or name == "blobs/sha256/" + hashlib.sha256(data).hexdigest(), name
    blob = lambda said: blobs["blobs/" + said["digest"].replace(":", "/")]
    manifest = json.loads(blob(json.loads(blobs["index.json"])["manifests"][0]))
    config = json.loads(blob(manifest["config"]))
    layer = gzip.decompress(blob(manifest["layers"][0]))
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        files.extractall(root, numeric_owner=True)
    return config["config"]


@contextlib.contextmanager
def serving(root, config, models, port, flags):
    mounts = (f"mount --bind {root} {root}; mount --bind {models} {root}/models; mount -o remount,bind,ro {root}; "
              f"mount -t tmpfs tmp {root}/tmp; mount --bind /dev {root}/dev; mount --bind /proc {root}/proc; "
              f"exec env -i {' '.join(config['Env'])} /usr/sbin/chroot --userspec={config['User']} {root} \"$@\"")
    command = ["unshare", "--mount", "bash", "-ec", mounts, "image", *config["Entrypoint"], *flags]
    server = subprocess.Popen(command)
    try:
        for _ in range(600):
            with contextlib.suppress(OSError):
                if urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=5).status == 200:
                    break
            assert server.poll() is None, "the server ended"
            time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(60)


def ask(url, model):
    body = json.dumps({"inputs": [{"name": "x", "shape": [1, 4], "datatype": "FP32", "data": [2, 4, 6, 8]}]})
    with urllib.request.urlopen(f"{url}/v2/models/{model}/infer", body.encode(), timeout=60) as answer:
        return json.load(answer)["outputs"][0]["data"]


def main():
    image, deb, model = map(pathlib.Path, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="image") as folder:
        root, models = pathlib.Path(folder, "root"), pathlib.Path(folder, "models")
        root.mkdir()
        (models / "double/1").mkdir(parents=True)
        (models / "double/1/model.onnx").write_bytes(model.read_bytes())
        (models / "half/1").mkdir(parents=True)
        (models / "half/1/half.py").write_text(PYTHON_MODEL)
        (models / "half/model.yaml").write_text("python: half.py:predict\n")
        subprocess.run(["chmod", "-R", "a+rX", folder], check=True)
        (root / "proc").mkdir()
        (root / "dev").mkdir(exist_ok=True)
        config = unpack(image, root)
        assert config["User"].split(":")[0] not in ("", "0", "root")
        for what in ("the image", "the package"):
            if what == "the package":  # its program in place of the image's
                (root / "usr/bin/chairlift").unlink()
                subprocess.run(["dpkg-deb", "-x", deb, root], check=True)
            port = free_port()
            flags = [*config["Cmd"], "--http-port", str(port), "--metrics-port", "-1", "--allow-plugins"]
            with serving(root, config, models, port, flags) as url:
                assert ask(url, "double") == [4, 8, 12, 16]
                assert ask(url, "half") == [1, 2, 3, 4]
            print(f"{what}: starts as user {config['User']} on a read-only root and answers")
    listed = subprocess.run(["dpkg-deb", "-c", deb], capture_output=True, text=True, check=True).stdout
    for path in ("./usr/bin/chairlift", "./usr/share/man/man1/chairlift-serve.1.gz", "./lib/systemd/system/chairlift.service",
                 "./etc/chairlift/serve.env", "./usr/share/bash-completion/completions/chairlift",
                 "./usr/lib/sysusers.d/chairlift.conf"):
        assert path in listed, f"the package has no {path}"


if __name__ == "__main__":
    main()
