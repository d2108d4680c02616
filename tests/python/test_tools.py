"""The output of `make run`: one bar or a few lines during the build, and one line if something is missing."""

import os
import pathlib
import pty
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
STEPS = "".join(f"[{i}/140] Building CXX object src/CMakeFiles/{i}.o\n" for i in range(1, 141))


@pytest.fixture
def path(tmp_path):
    """A folder with the only programs that a script can find. `add` writes one."""

    class Path:
        folder = tmp_path / "bin"

        def add(self, name, text=""):
            (self.folder / name).write_text(f"#!/bin/bash\n{text}\n")
            (self.folder / name).chmod(0o755)

        def run(self, script, *arguments, **keywords):
            environment = {"PATH": str(self.folder)}
            return subprocess.run(["/bin/bash", ROOT / "tools" / script, *arguments], env=environment, text=True, timeout=60,
                                  **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **keywords})

    made = Path()
    made.folder.mkdir()
    for name in ("dirname", "tr", "grep", "tail", "cat"):
        (made.folder / name).symlink_to(shutil.which(name))
    return made


def builds(path, output, code=0):
    path.add("cmake", f"cat <<'END'\n{output}END\nexit {code}")


def test_a_build_is_a_few_lines_where_nobody_watches(path):
    builds(path, STEPS)
    done = path.run("build.sh", "release", "2", "chairlift")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.splitlines()[-1].startswith("build: 140 of 140 steps, ") and len(done.stdout.splitlines()) < 20


def test_a_build_is_one_bar_on_a_terminal(path):
    builds(path, STEPS)
    ours, theirs = pty.openpty()
    done = path.run("build.sh", "release", "2", "chairlift", stdout=theirs)
    os.close(theirs)
    shown = b""
    try:
        while more := os.read(ours, 65536):
            shown += more
    except OSError:
        pass  # the end
    assert done.returncode == 0
    assert shown.count(b"\n") == 1 and b"#" * 40 + b"] 140/140" in shown and b"Building" not in shown


def test_a_build_that_fails_says_why(path):
    builds(path, STEPS[:STEPS.index("[9/")] + "FAILED: src/x.o\nx.cc:1:2: error: expected ';'\nninja: build stopped\n", 1)
    done = path.run("build.sh", "release", "2", "chairlift")
    assert done.returncode == 1
    assert "FAILED: src/x.o\nx.cc:1:2: error: expected ';'\n" in done.stdout


def test_a_build_with_nothing_to_do_says_nothing(path):
    builds(path, "ninja: warning: premature end of file; recovering\nninja: no work to do.\n")
    assert path.run("build.sh", "release", "2", "chairlift").stdout == ""


@pytest.mark.parametrize("programs, says", [
    ({"uname": "echo Darwin arm64"}, "this is Darwin arm64; Chairlift builds and runs on Linux x86_64"),
    ({"uname": "echo Linux x86_64"}, "this is no Debian"),
    ({"uname": "echo Linux x86_64", "dpkg-query": "exit 1", "id": "echo 1000"}, "are missing and need root: build-essential"),
    ({"uname": "echo Linux x86_64", "dpkg-query": "exit 1", "id": "echo 0",
      "apt-get": "echo 'W: slow' >&2; echo 'E: Unable to locate package x' >&2; echo 'E: and more' >&2; exit 100"},
     "apt-get update failed: E: Unable to locate package x"),
])
def test_what_is_missing_is_one_line(path, programs, says):
    for name, text in programs.items():
        path.add(name, text)
    done = path.run("install_packages.sh")
    assert done.returncode == 1
    assert says in done.stderr and len(done.stderr.splitlines()) == 1


def test_what_is_there_is_not_installed(path):
    path.add("uname", "echo Linux x86_64")
    path.add("dpkg-query", "echo install ok installed")
    done = path.run("install_packages.sh")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_example_reads_both_ends_of_a_file():
    sys.path.insert(0, str(ROOT / "examples"))
    import file_type

    config = {"block_size": 8, "beg_size": 4, "end_size": 4, "padding_token": 256}
    assert file_type.features(b"  abcdefghijkl \n", config) == [*b"abcd", *b"ijkl"]
    assert file_type.features(b" ab ", config) == [*b"ab ", 256, 256, *b" ab"]
