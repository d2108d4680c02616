"""Prints which modules an interpreter lacks: `python3 _packages.py FILE MODULE...`. It checks the given modules, and those
that the Python file FILE imports at its top. It imports none of them."""

import ast
import importlib.util
import os
import sys

MAX_FILE_BYTES = 4 << 20


def imported(file):
    """Top-level names of the imported modules. Empty if the file cannot be read; the worker reports that."""
    try:
        with open(file, "rb") as source:
            tree = ast.parse(source.read(MAX_FILE_BYTES))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module.partition(".")[0]


def is_there(name, folder):
    if name in sys.builtin_module_names or name in getattr(sys, "stdlib_module_names", ()) or name == "chairlift":
        return True
    if any(os.path.exists(os.path.join(folder, name + end)) for end in ("", ".py")):
        return True
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def main():
    file, *named = sys.argv[1:]
    missing = ["python>=3.10"] if sys.version_info < (3, 10) else []
    for name in dict.fromkeys([*named, *imported(file)]):
        if not is_there(name, os.path.dirname(file)):
            missing.append(name)
    print("missing:", *missing, "end", sep="\n")


main()
