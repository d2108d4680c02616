#!/usr/bin/env python3
"""Writes build/image/chairlift-VERSION.tar, an OCI image of build/deb/chairlift_*.deb.

`docker load` and `podman load` read it. The root has the files of the package and of the Debian packages that it
depends on. It also has python3 with numpy and jinja2, for text and Python models. The Python package tokenizers is not
in Debian, so it is copied from .venv. The image has no shell and no package manager. It runs as user 10001, and only
/tmp must be writable.
"""

import argparse
import gzip
import hashlib
import io
import json
import pathlib
import re
import subprocess
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
PYTHON = ["python3-minimal", "python3-numpy", "python3-jinja2"]
# Files that the image does not need: documentation, tests, modules for databases, mail, consoles and building.
EXCLUDED = [
    "/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/lintian/*", "/usr/share/bug/*", "/usr/share/perl*",
    "/usr/lib/*/perl*", "/usr/bin/perl*", "/usr/lib/python3.11/dist-packages/numpy*", "/usr/lib/python3/dist-packages/numpy/*/tests/*",
    "/usr/lib/python3/dist-packages/numpy/f2py/*", "/usr/lib/python3/dist-packages/numpy/distutils/*",
    *(f"/usr/lib/python3.11/{name}/*" for name in ("test", "pydoc_data", "lib2to3", "idlelib", "ensurepip", "distutils", "sqlite3", "dbm")),
    *(f"/usr/lib/*/{name}*" for name in ("libhwy_contrib", "libdb-5", "libsqlite3", "libkrb5", "libgssapi", "libk5crypto", "libonnx.so")),
    *(f"/usr/lib/python3.11/{name}*" for name in ("turtle", "tkinter", "curses", "xmlrpc", "pydoc.py")),
    *(f"/lib/*/lib{name}*" for name in ("mvec", "ncurses", "tinfo")), *(f"/usr/lib/*/lib{name}*" for name in ("form", "menu", "panel", "tic")),
    "/usr/lib/python3/dist-packages/numpy/*/lib/*.a", "/usr/lib/python3/dist-packages/pkg_resources/*", "/usr/bin/dpkg*",
    "/usr/lib/*/gconv/*", "*/__pycache__/*"]


def depends(deb):
    said = subprocess.run(["dpkg-deb", "-f", deb, "Depends"], capture_output=True, text=True, check=True).stdout
    names = [re.split(r"[ (:|]", one.strip())[0] for one in said.split(",")]
    return [name for name in names if name and name != "systemd"]  # only the service needs it


def make_root(deb, tokenizers, to):
    hooks = [f"dpkg-deb -x {deb} \"$1\"",
             "rm -rf \"$1\"/usr/share/bash-completion \"$1\"/usr/share/zsh \"$1\"/usr/share/fish \"$1\"/lib/systemd "
             "\"$1\"/usr/share/man \"$1\"/usr/share/doc \"$1\"/var/lib/dpkg \"$1\"/var/lib/apt \"$1\"/var/cache/* \"$1\"/var/log/*",
             "mkdir -p \"$1\"/models \"$1\"/tmp && chmod 1777 \"$1\"/tmp",
             "printf 'root:x:0:0:root:/:\\nchairlift:x:10001:10001::/tmp:\\n' > \"$1\"/etc/passwd",
             "printf 'root:x:0:\\nchairlift:x:10001:\\n' > \"$1\"/etc/group"]
    # Links that Debian's alternatives would make in scripts of packages.
    hooks += [f"ln -s {name}/lib{name}.so.3 \"$1\"/usr/lib/x86_64-linux-gnu/lib{name}.so.3" for name in ("blas", "lapack")]
    hooks += [f"cp -r {part} \"$1\"/usr/lib/python3/dist-packages/" for part in tokenizers]
    hooks += ["find \"$1\" -name __pycache__ -prune -exec rm -r {} +"]
    hooks += [f"dpkg-deb --fsys-tarfile {deb} | tar -xO ./usr/share/doc/chairlift/copyright > \"$1\"/LICENSE"]
    subprocess.run(["mmdebstrap", "--quiet", "--variant=extract", f"--include={','.join(depends(deb) + PYTHON)}",
                    *(f"--dpkgopt=path-exclude={glob}" for glob in EXCLUDED),
                    *(f"--extract-hook={hook}" for hook in hooks), "bookworm", to], check=True)


def add(archive, name, data):
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))


def digest(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def write_image(root, version, to):
    plain = root.read_bytes()
    layer = gzip.compress(plain, 9, mtime=0)
    config = json.dumps({
        "architecture": "amd64", "os": "linux",
        "config": {
            "User": "10001:10001", "Entrypoint": ["/usr/bin/chairlift"],
            "Cmd": ["serve", "--address", "0.0.0.0", "--model-repository", "/models"],
            "Env": ["PATH=/usr/bin:/bin", "HOME=/tmp", "XDG_CACHE_HOME=/tmp", "PYTHONDONTWRITEBYTECODE=1"],
            "ExposedPorts": {"8000/tcp": {}, "8002/tcp": {}}, "WorkingDir": "/models", "StopSignal": "SIGTERM",
            "Labels": {"org.opencontainers.image.title": "Chairlift", "org.opencontainers.image.version": version,
                       "org.opencontainers.image.licenses": "Apache-2.0"}},
        "rootfs": {"type": "layers", "diff_ids": [digest(plain)]}, "history": [{"created_by": "make image"}]}).encode()
    described = lambda kind, data: {"mediaType": kind, "digest": digest(data), "size": len(data)}
    manifest = json.dumps({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("application/vnd.oci.image.config.v1+json", config),
        "layers": [described("application/vnd.oci.image.layer.v1.tar+gzip", layer)]}).encode()
    tag = f"chairlift:{version}"
    index = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json", "manifests": [
        {**described("application/vnd.oci.image.manifest.v1+json", manifest), "platform": {"architecture": "amd64", "os": "linux"},
         "annotations": {"io.containerd.image.name": f"docker.io/library/{tag}", "org.opencontainers.image.ref.name": version}}]}).encode()
    blob = lambda data: "blobs/sha256/" + hashlib.sha256(data).hexdigest()
    # For versions of docker that cannot read OCI's layout.
    docker = json.dumps([{"Config": blob(config), "RepoTags": [tag], "Layers": [blob(layer)]}]).encode()
    with tarfile.open(to, "w") as archive:
        add(archive, "oci-layout", b'{"imageLayoutVersion": "1.0.0"}')
        for data in (config, layer, manifest):
            add(archive, blob(data), data)
        add(archive, "index.json", index)
        add(archive, "manifest.json", docker)
    return len(plain), len(layer)


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    debs = [deb for deb in (ROOT / "build/deb").glob("chairlift_*.deb")]
    if len(debs) != 1:
        sys.exit("no package in build/deb: `make deb` builds it")
    version = debs[0].name.split("_")[1]
    found = list((ROOT / ".venv").glob("lib/python3*/site-packages/tokenizers*"))
    if not found:
        sys.exit("no package tokenizers in .venv: `make .venv/.installed` installs it")
    folder = ROOT / "build/image"
    folder.mkdir(parents=True, exist_ok=True)
    root = folder / "root.tar"
    root.unlink(missing_ok=True)
    make_root(debs[0], found, root)
    image = folder / f"chairlift-{version}.tar"
    plain, packed = write_image(root, version, image)
    print(f"{image.relative_to(ROOT)}: {plain / 1e6:.0f} MB of files, {packed / 1e6:.0f} MB compressed")


if __name__ == "__main__":
    main()
