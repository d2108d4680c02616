#!/usr/bin/env python3
"""Checks that sources which are compiled together keep their meaning (cmake/layer.cmake, chairlift_unity).

A function or constant in an unnamed namespace hides one of the same name that a header declares. Compiled together, it
does so in the sources after it, too, and where the signatures agree, the compiler says nothing. So such a name is an
error if another source of the same layer uses the header's.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

UNNAMED = re.compile(r"^namespace \{\n(.*?)^\}  // namespace$", re.DOTALL | re.MULTILINE)
SKIPPED = re.compile(r"namespace|struct |class |enum |union |using |typedef |TEST|INSTANTIATE_|HWY_|public|private|protected|friend")
DECLARED = re.compile(r"[\w:&*, ]*?[ &*](\w+)(\(|\[| =|\{|;|$)")
TEMPLATE = re.compile(r"template <.*?> (.*)")
ARGUMENTS = re.compile(r"<[^<>]*>")
LAYERS = ("base", "tensor", "device", "ops", "graph", "runtime", "batching", "engine", "server", "cli", "python")
NO_CODE = re.compile(r"//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"")


def declared(text: str) -> set[str]:
    """Functions and constants that begin in the first column, as clang-format writes those of namespaces."""
    names = set()
    for line in text.split("\n"):
        if template := TEMPLATE.match(line):
            line = template.group(1)
        if not line or not (line[0].isalpha() or line[0] == "[") or SKIPPED.match(line):
            continue
        for _ in range(4):  # nested template arguments
            line = ARGUMENTS.sub("", line)
        found = DECLARED.match(line)
        if found and f"::{found.group(1)}" not in line:
            names.add(found.group(1))
    return names


def below(header: str, layer: str) -> bool:
    """Whether sources of the layer may include the header."""
    return LAYERS.index(header.split("/")[1]) <= LAYERS.index(layer)


def main() -> int:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    root = pathlib.Path(__file__).parents[1]
    files = subprocess.check_output(["git", "ls-files", "src"], cwd=root, text=True).split()
    headers: dict[str, list[str]] = collections.defaultdict(list)
    layers: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for file in files:
        if file.endswith(".h") and not file.endswith("-inl.h"):
            for name in declared((root / file).read_text(encoding="utf-8")):
                headers[name].append(file)
        elif file.endswith(".cc") and not file.endswith("_simd.cc") and "/cuda/" not in file:
            layers[file.split("/")[1]][file] = (root / file).read_text(encoding="utf-8")
    wrong = 0
    for layer, sources in layers.items():
        seen = {name for name, where in headers.items() if any(below(file, layer) for file in where)}
        own = {file: declared("\n".join(UNNAMED.findall(text))) for file, text in sources.items()}
        code = {file: NO_CODE.sub("", text) for file, text in sources.items()}
        for file, names in own.items():
            for name in sorted(names & seen):
                use = re.compile(rf"(?<![\w.>:]){name}(?=\()" if name[0].isupper() else rf"(?<![\w.>:]){name}\b")
                users = [other for other in sources if other != file and name not in own[other] and use.search(code[other])]
                if users:
                    header = next(where for where in headers[name] if below(where, layer))
                    print(f"{file}: '{name}' is also the name in {header} that {users[0]} uses; choose another one")
                    wrong += 1
    print(f"names: {sum(len(s) for s in layers.values())} sources, {wrong} that hide one of a header")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
