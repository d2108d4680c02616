"""Every block of code of every page: commands run, Python runs, YAML, JSON and config.pbtxt are read.

A block that cannot run here says so, with a reason (pages.REASONS); its commands are then read: commands, flags, routes,
make targets and files must be there.
"""

import ast
import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import tempfile

import downloads
import pages
import pytest
import sandbox
import wrappers
import yaml
from pages import ROOT, Block
from sandbox import ending

PAGES = pages.pages()
LANGUAGES = {"bash", "console", "python", "yaml", "json", "protobuf", "text", "cpp", "cmake", "ini"}
# Parts of the reference that the program writes: their blocks are its help.
GENERATED = {"docs/reference/command-line.md"}
LIMIT_S = 120


def all_blocks(*languages):
    return [block for page in PAGES for block in pages.blocks(page) if block.language in languages]


def by_page(*languages):
    found = {}
    for block in all_blocks(*languages):
        if not block.not_run:
            found.setdefault(block.page, []).append(block)
    return found


def test_every_block_says_its_language_and_why_it_is_not_run():
    wrong = []
    for page in PAGES:
        for block in pages.blocks(page):
            if block.language not in LANGUAGES:
                wrong.append(f"{block}: language '{block.language}'; it must be one of {', '.join(sorted(LANGUAGES))}")
            if block.not_run and not block.not_run.startswith(pages.REASONS):
                wrong.append(f"{block}: not run: {block.not_run}; a reason begins with one of {', '.join(pages.REASONS)}")
            if block.language == "text" and page not in GENERATED:
                for line in block.text.split("\n"):
                    if re.match(r"(\$ )?(chairlift|curl|make|docker|pip) ", line):
                        wrong.append(f"{block}: a command in a block of text: {line}")
        if page not in GENERATED:
            for number, line in enumerate(pages.prose(page), 1):
                before = pages.prose(page)[number - 2] if number > 1 else ""
                if re.match(r"    \S", line) and not before.strip():
                    wrong.append(f"{page}:{number}: an indented block: fence it, with its language")
    assert not wrong, "\n".join(wrong)


# --- commands ------------------------------------------------------------------------------------


def run(command, box, **variables):
    cwd = box
    if downloads.USED.search(command):
        cwd = pathlib.Path(tempfile.mkdtemp(dir=box))  # where nothing is but what the block gets
    (box / "ports.json").write_text((box / "all.json").read_text())
    shell = ["bash", "-e", "-o", "pipefail", "-c", command]
    process = ending.start(shell, cwd=cwd, env={**sandbox.environment(box), **variables}, text=True, errors="replace",
                           start_new_session=True,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        out, err = process.communicate(timeout=LIMIT_S)
        return subprocess.CompletedProcess(shell, process.returncode, out, err)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left behind, or what takes too long
        end_server(box)


def end_server(box):
    """The server that a block started: a session of its own, since its commands go on after `chairlift serve`."""
    running = box / "serving.pid"
    if running.exists():
        (box / f"stop.{running.read_text()}").touch()
        running.unlink()


@pytest.mark.parametrize("page", by_page("bash"))
def test_commands_run(page, box):
    wrong = []
    sandbox.write_files(page, box)
    for block in by_page("bash")[page]:
        ran = run(block.text, box)
        if ran.returncode != 0:
            wrong.append(f"{block}: status {ran.returncode}\n{block.text}\n{ran.stdout[-600:]}\n{ran.stderr[-1500:]}")
    assert not wrong, "\n\n".join(wrong)


def expected_pattern(text):
    """… stands for anything, a line of it alone for any lines."""
    out = []
    for line in text.strip("\n").split("\n"):
        out.append(".*" if line.strip() == "…" else ".*".join(re.escape(part) for part in line.rstrip().split("…")))
    return re.compile("\n".join(out), re.DOTALL)


@pytest.mark.parametrize("page", by_page("console"))
def test_consoles_print_what_is_shown(page, box):
    wrong = []
    for block in by_page("console")[page]:
        marker = "---printed---"
        steps = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
        commands, shown = [], []
        for step in steps:
            lines = step.split("\n")
            count = 1
            while lines[count - 1].endswith("\\"):
                count += 1
            commands.append("\n".join(lines[:count]))
            shown.append("\n".join(lines[count:]))
        ran = run(f"\necho; echo {marker}\n".join(commands), box, DOCS_ERRORS_ARE_SHOWN="1")
        printed = ran.stdout.split(f"{marker}\n")
        if ran.returncode != 0 or len(printed) != len(commands):
            wrong.append(f"{block}: status {ran.returncode}\n{block.text}\n{ran.stdout[-600:]}\n{ran.stderr[-1500:]}")
            continue
        for command, want, got in zip(commands, shown, printed):
            got = "\n".join(line.rstrip() for line in got.strip("\n").split("\n"))
            if want.strip() and not expected_pattern(want).fullmatch(got.strip()):
                wrong.append(f"{block}: $ {command}\nthe page shows\n{want}\nit printed\n{got[:2000]}")
    assert not wrong, "\n\n".join(wrong)


# --- what is not run is read ---------------------------------------------------------------------


def flags_of_commands():
    """By command, from the reference that the program writes."""
    found, command = {"": set()}, ""
    for line in pages.read("docs/reference/command-line.md").split("\n"):
        heading = re.match(r"## chairlift (\w+)", line)
        if heading:
            command = heading[1]
            found[command] = set()
        row = re.match(r"\| `([^`]*)` \|", line)
        if row:
            found[command].update(re.findall(r"-{1,2}[\w-]+", row[1]))
    return found


FLAGS = flags_of_commands()
ROUTES = yaml.safe_load(pages.read("docs/reference/openapi.yaml"))["paths"]
TARGETS = set(re.findall(r"^([\w-]+):", pages.read("Makefile"), re.MULTILINE))


def command_lines(text):
    """The simple commands of a block, as lists of words."""
    text = re.sub(r"\\\n\s*", " ", text)
    for line in text.split("\n"):
        line = line.removeprefix("$ ")
        try:
            words = shlex.split(line, comments=True)
        except ValueError:
            continue  # a quotation of several lines
        command = []
        for word in words:
            if word in ("&&", "|", ";", "||"):
                yield command
                command = []
            else:
                command.append(word)
        yield command


def check_command(words):
    """What is wrong with it, or None."""
    while words and (re.match(r"\w+=", words[0]) or words[0] in ("sudo", "export")):
        words = words[1:]
    if not words:
        return None
    name = words[0].rsplit("/", 1)[-1]
    if name == "docker" and "serve" in words:
        name, words = "chairlift", ["chairlift", *words[words.index("serve"):]]
    if name == "chairlift":
        command = words[1] if len(words) > 1 and not words[1].startswith("-") else ""
        if command not in FLAGS:
            return f"there is no command 'chairlift {command}'"
        for word in words[1:]:
            flag = word.split("=")[0]
            if re.match(r"--?[a-zA-Z]", word) and flag not in FLAGS[command] | {"--help", "-h"}:
                return f"`chairlift {command}` has no flag {flag}"
    elif name == "curl":
        for word in words[1:]:
            target = re.match(r"(?:https?://)?(?:localhost|127\.0\.0\.1):(\d+)(/[^?\s]*)?", word)
            if target and not route_exists(target[2] or "/"):
                return f"there is no route {target[2]}"
    elif name == "make":
        for word in words[1:]:
            if "=" not in word and not word.startswith("-") and word not in TARGETS:
                return f"there is no target '{word}' in the Makefile"
    elif words[0].startswith(("examples/", "tools/", "tests/")) and not (ROOT / words[0]).exists():
        return f"there is no {words[0]}"
    elif shutil.which(name) is None and name not in ("docker", "systemctl", "optimum-cli", "apt", "systemd-analyze",
                                                     "pip", "python", "cmake", "embed", "hf", "git", "kubectl"):
        return f"an unknown command: {name}"
    return None


def route_exists(path):
    for route in ROUTES:
        if re.fullmatch(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(route)), path.rstrip("/") or "/"):
            return True
    return False


def test_what_is_not_run_is_right_as_far_as_it_can_be_read():
    wrong = [f"{block}: {said}" for block in all_blocks("bash", "console") if block.not_run
             for words in command_lines(block.text) if (said := check_command(words))]
    assert not wrong, "\n".join(wrong)


def test_make_knows_how_to_make_the_targets_that_are_not_run():
    """`make --dry-run`: every prerequisite exists or has a rule."""
    targets = {word for block in all_blocks("bash") if block.not_run for words in command_lines(block.text)
               if words[:1] == ["make"] for word in words[1:] if "=" not in word}
    assert {"run", "test", "deb", "image"} <= targets
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    ran = subprocess.run(["make", "--dry-run", "HTTP_PORT=0", "METRICS_PORT=0", *sorted(targets)], cwd=ROOT, env=own,
                         capture_output=True, text=True, timeout=LIMIT_S)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="the machine has no systemd")
def test_the_unit_and_the_limits_of_the_page_are_read_by_systemd(tmp_path):
    unit = (ROOT / "packaging/debian/chairlift.service").read_text()
    unit = unit.replace("/usr/bin/chairlift", str(sandbox.PROGRAM)).replace("/etc/chairlift", str(ROOT / "packaging/debian"))
    (tmp_path / "chairlift.service").write_text(unit)
    limits = [block.text for block in all_blocks("ini") if block.page == "docs/deploy/systemd.md"]
    assert len(limits) == 1
    changes = tmp_path / "chairlift.service.d"
    changes.mkdir()
    (changes / "limits.conf").write_text(limits[0])
    ran = subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", tmp_path / "chairlift.service"],
                         capture_output=True, text=True, timeout=LIMIT_S)
    assert ran.returncode == 0, ran.stderr


def test_commands_within_prose_and_help_exist():
    """`chairlift …` and `make …` in running text, in tables and in the help of the reference."""
    wrong = []
    for page in PAGES:
        for number, line in enumerate(pages.prose(page), 1):
            for code in re.findall(r"`((?:chairlift|make) [^`]*)`", line):
                code = re.sub(r"[…|].*", "", code)
                for words in command_lines(code):
                    words = [word for word in words if re.match(r"[\w./=:*@%+,-]+$", word)]
                    if words[1:2] and words[1].isupper():
                        continue  # `chairlift COMMAND --help`
                    if said := check_command(words):
                        wrong.append(f"{page}:{number}: {said}")
    for block in all_blocks("text"):
        if block.page in GENERATED:
            for words in command_lines(block.text):
                if words and words[0] == "chairlift":
                    words = [word for word in words if "[" not in word]
                    if said := check_command(cut_comment(words)):
                        wrong.append(f"{block}: {said}")
    assert not wrong, "\n".join(wrong)


def cut_comment(words):
    """A line of help is a command and, after it, what it does: flags end with the last word that begins with '-'."""
    last = max((i for i, word in enumerate(words) if word.startswith("-")), default=1)
    return words[:last + 1]


# --- other languages -----------------------------------------------------------------------------


def interpreter(block):
    return sandbox.CLIENTS if re.search(r"import (openai|tritonclient)|from openai", block.text) else sandbox.PYTHON


# Pages whose Python blocks are one program, in their order.
ONE_PROGRAM = {"docs/guides/python-and-cpp.md", "docs/guides/batched-service.md"}


@pytest.mark.parametrize("page", by_page("python"))
def test_python_runs(page, box, tmp_path):
    found = by_page("python")[page]
    if page == "docs/reference/python-api.md":
        for block in found[1:]:
            if block.text.endswith(": ..."):
                ast.parse(block.text.removeprefix("async "))
        found = found[:1]
    if page in ONE_PROGRAM:
        files = [block for block in found if re.match(r"# \w+\.py\n", block.text)]
        program = Block(page, found[0].line, "python", "\n".join(b.text for b in found if b not in files))
        found = [*files, program]
        (tmp_path / "models").symlink_to(box / "models")
        sandbox.doubling(tmp_path / "model.onnx", width=4)
    wrong = []
    for block in found:
        (box / "ports.json").write_text((box / "all.json").read_text())
        text = wrappers.at_ports(block.text, box)
        named = re.match(r"# (\w+\.py)\n", text)
        path = box / named[1] if named else tmp_path / "block.py"
        path.write_text(text)
        environment = {**sandbox.environment(box), "PYTHONPATH": str(box)}
        if named:  # a file that the next commands serve: imported, as a worker does
            command = [interpreter(block), "-c", f"import importlib; importlib.import_module('{path.stem}')"]
        else:
            command = [interpreter(block), path]
        where = tmp_path if page in ONE_PROGRAM and not named else box
        ran = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        if ran.returncode != 0:
            wrong.append(f"{block}:\n{ran.stdout[-500:]}{ran.stderr[-2500:]}")
    assert not wrong, "\n\n".join(wrong)


def test_python_that_is_not_run_compiles():
    for block in all_blocks("python"):
        if block.not_run:
            compile(block.text, str(block), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


# --- blocks that need an exporter ------------------------------------------------------------------

# Where `make exporters` has installed these packages. Blocks that need another are not run.
EXPORTERS = pathlib.Path(os.environ.get("CHAIRLIFT_EXPORTERS", ROOT / "build/exporters/venv")) / "bin/python"
INSTALLED = ("python package torch", "python package lightgbm")
# What PyTorch's programs find: small networks in place of pretrained ones, and the variables that the page speaks of.
NETWORKS = """
import pathlib
import sys
import types
import torch
import transformers

pathlib.Path("llama").mkdir()
small = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, vocab_size=61)
transformers.AutoModel.from_pretrained = lambda name: transformers.BertModel(transformers.BertConfig(**small))
transformers.AutoModelForCausalLM.from_pretrained = lambda name: transformers.LlamaForCausalLM(
    transformers.LlamaConfig(num_key_value_heads=2, **small))


def network(*_, **__):
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, stride=4), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1),
                               torch.nn.Flatten(), torch.nn.Linear(8, 10))


sys.modules["torchvision"] = types.SimpleNamespace(models=types.SimpleNamespace(resnet18=network))
sys.modules["timm"] = types.SimpleNamespace(create_model=network)
module, images = network().eval(), torch.zeros(2, 3, 224, 224)
"""


def exporter_blocks():
    return [block for block in all_blocks("python") if block.not_run in INSTALLED]


@pytest.mark.skipif(not EXPORTERS.exists(), reason="`make exporters` installs the packages")
@pytest.mark.parametrize("block", exporter_blocks(), ids=str)
def test_exports_run(block, tmp_path):
    """Each writes files; their requests share batches."""
    package = tmp_path / "package"
    package.mkdir()
    for found in (ROOT / ".venv/lib").glob("python3*/site-packages/chairlift"):
        (package / "chairlift").symlink_to(found)
    text = block.text
    if "chairlift." in text:
        if not (package / "chairlift").exists():
            pytest.skip("`make python` installs the package")
        text = f"import chairlift\n{text}"
    (tmp_path / "block.py").write_text((NETWORKS if "torch" in block.not_run else "") + text)
    environment = {**sandbox.environment(tmp_path), "PYTHONPATH": str(package)}
    ran = subprocess.run([EXPORTERS, "block.py"], cwd=tmp_path, env=environment, capture_output=True, text=True,
                         timeout=2 * LIMIT_S)
    assert ran.returncode == 0, f"{block}:\n{ran.stdout[-500:]}{ran.stderr[-2500:]}"
    written = list(tmp_path.rglob("*.onnx"))
    assert written or "chairlift." in text
    for file in written:
        said = subprocess.run([sandbox.PROGRAM, "inspect", file], capture_output=True, text=True, timeout=LIMIT_S,
                              env=sandbox.environment(tmp_path))
        assert said.returncode == 0, said.stderr
        assert "one by one" not in said.stdout.split("diagnosis:")[1].split("\n")[0], said.stdout


def settings():
    """Names of settings, from the reference that the program writes."""
    return set(re.findall(r"^\| `(\w+)` \|", pages.read("docs/reference/model-yaml.md"), re.MULTILINE))


def test_yaml_is_read_and_settings_exist():
    known = settings() | {"cells", "unfold"}
    wrong = []
    for block in all_blocks("yaml"):
        value = yaml.safe_load(block.text)
        if "# server.yaml" in block.text:
            wrong += [f"{block}: there is no flag --{name}" for name in value if f"--{name}" not in FLAGS["serve"]]
            continue
        is_settings = "model.yaml" in block.text or block.page not in (
            "docs/deploy/kubernetes.md", "docs/deploy/monitoring.md", "docs/reference/metrics.md")
        if is_settings and isinstance(value, dict):
            wrong += [f"{block}: there is no setting '{name}'" for name in value if name not in known]
        if isinstance(value, dict) and "apiVersion" in value:
            wrong += [f"{block}: {said}" for said in check_manifest(value)]
    assert not wrong, "\n".join(wrong)


def check_manifest(value):
    """Containers of Chairlift: their flags and the paths of their probes."""
    if isinstance(value, dict):
        if "args" in value and value["args"][:1] == ["serve"]:
            if said := check_command(["chairlift", *map(str, value["args"])]):
                yield said
        if "httpGet" in value and not route_exists(value["httpGet"]["path"]):
            yield f"there is no route {value['httpGet']['path']}"
        for one in value.values():
            yield from check_manifest(one)
    elif isinstance(value, list):
        for one in value:
            yield from check_manifest(one)


def test_json_is_read():
    for block in all_blocks("json"):
        json.loads(block.text)


@pytest.mark.parametrize("block", all_blocks("protobuf"), ids=str)
def test_config_pbtxt_is_read(block, tmp_path):
    name = re.search(r'name: "(\w+)"', block.text)[1]
    sandbox.doubling(tmp_path / name / "1/model.onnx")
    (tmp_path / name / "config.pbtxt").write_text(block.text)
    ran = subprocess.run([sandbox.PROGRAM, "inspect", tmp_path / name], capture_output=True, text=True, timeout=LIMIT_S,
                         env=sandbox.environment(tmp_path))
    assert ran.returncode == 0, ran.stderr


def test_cpp_uses_what_the_headers_declare():
    """A program is compiled, without its code; the fragments' names are in the headers."""
    headers = "".join(path.read_text() for path in (ROOT / "include").rglob("*.h"))
    for block in all_blocks("cpp"):
        if "int main" in block.text:
            ran = subprocess.run(["g++", "-std=c++20", "-fsyntax-only", f"-I{ROOT / 'include'}", "-x", "c++", "-"],
                                 input=block.text, capture_output=True, text=True, timeout=LIMIT_S)
            assert ran.returncode == 0, f"{block}:\n{ran.stderr[-2000:]}"
        for name in re.findall(r"chairlift::(\w+)", block.text):
            assert re.search(rf"\b{name}\b", headers), f"{block}: {name}"


def test_diagnoses_and_names_of_metrics_exist():
    served = set(re.findall(r"^\| `(chairlift_\w+)` \|", pages.read("docs/reference/metrics.md"), re.MULTILINE))
    wrong = []
    for page in PAGES:
        for number, line in enumerate(pages.read(page).split("\n"), 1):
            for name in re.findall(r"\bchairlift_[a-z_]+[a-z]\b", line):
                plain = re.sub(r"_(bucket|sum|count)$", "", name)
                if plain not in served and name not in ("chairlift_requests", "chairlift_cuda"):
                    wrong.append(f"{page}:{number}: there is no metric {name}")
    assert not wrong, "\n".join(wrong)
