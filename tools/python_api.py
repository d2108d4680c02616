#!/usr/bin/env python3
"""Prints docs/reference/python-api.md: the names of `chairlift.__all__`, with the docstrings of python/chairlift.

`make reference` runs it. It reads the package and does not import it, so that no build is necessary.
"""

import argparse
import ast
import inspect
import pathlib
import re
import sys

PACKAGE = pathlib.Path(__file__).resolve().parents[1] / "python/chairlift"
INTRODUCTION = """# Python API

Every function and class of the package `chairlift`. This page is generated from the docstrings: `make reference` writes
it again. [python-and-cpp.md](../guides/python-and-cpp.md) is the guide, with examples.

```python
import chairlift

model = chairlift.load("model.onnx")
print(model.inputs, model.outputs)
```
"""


def exported():
    """Yields (name, definition) for each name of `__all__`, in the order of the imports."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if not isinstance(node, ast.ImportFrom) or node.level == 0 or node.module == "_core":
            continue
        module = ast.parse((PACKAGE / f"{node.module}.py").read_text(encoding="utf-8"))
        defined = {one.name: one for one in module.body if hasattr(one, "name")}
        for alias in node.names:
            yield alias.name, defined[alias.name]


def docstring(node):
    """Returns a docstring as Markdown. A line `name: text` becomes a list item, and an indented block becomes code."""
    text = inspect.cleandoc(ast.get_docstring(node) or "")
    out, code = [], False
    for line in text.split("\n"):
        named = re.match(r"(\w+(?:, \w+)*): (.*)", line)
        if line.startswith("    ") and (code or not out or not out[-1]):
            out += [] if code else ["```python"]
            code = True
            out.append(line[4:])
            continue
        if code and line.strip():
            while not out[-1]:
                out.pop()
            out += ["```", ""]
            code = False
        if named and not line.startswith(" "):
            if out and out[-1] and not out[-1].startswith(("* ", "  ")):
                out.append("")
            names = ", ".join(f"`{name}`" for name in named[1].split(", "))
            out.append(f"* {names}: {named[2]}")
        elif line.startswith(" ") and out and out[-1].startswith(("* ", "  ")):
            out.append("  " + line.strip())
        else:
            out.append(line)
    return "\n".join(out + (["```"] if code else []))


def signature(name, node):
    arguments = ast.unparse(node.args).removeprefix("self, ").removeprefix("self")
    arguments = arguments.removeprefix("/, ") if arguments.startswith("/") else arguments
    returns = f" -> {ast.unparse(node.returns)}" if node.returns and ast.unparse(node.returns) != "None" else ""
    start = "async def " if isinstance(node, ast.AsyncFunctionDef) else "def "
    text = f"{start}{name}({arguments}){returns}"
    if len(text) > 118:
        text = f"{start}{name}(\n    " + re.sub(r", (?=\*?\*?\w+[:=]|\*)", ",\n    ", arguments) + f",\n){returns}"
    return f"```python\n{text}: ...\n```"


def entry(name, node, level, within=""):
    """Returns the Markdown of a function, or of a class with its public members."""
    heading = "#" * level + f" {within}{name}"
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        kinds = {ast.unparse(one) for one in node.decorator_list}
        if "property" in kinds:
            returns = f"`{within}{name}` is `{ast.unparse(node.returns)}`." if node.returns else ""
            return [heading, returns, docstring(node)]
        return [heading, signature(name, node), docstring(node)]
    parts = [heading, docstring(node)]
    bases = [ast.unparse(base) for base in node.bases]
    if "NamedTuple" in bases:
        rows = [f"| `{one.target.id}` | `{ast.unparse(one.annotation)}` |".replace(" | None`", " or None`")
                for one in node.body if isinstance(one, ast.AnnAssign)]
        parts.append("\n".join(["| field | type |", "|---|---|", *rows]))
    elif bases and not within:
        parts.append("Derives from " + ", ".join(f"`{base}`" for base in bases) + ".")
    for member in node.body:
        named = getattr(member, "name", "_")
        if named == "__init__" and isinstance(member, ast.FunctionDef):
            parts.append(signature(name, member).replace("def ", "", 1).replace(": ...", ""))
        if named == "__call__":
            parts += [f"{'#' * (level + 1)} Call", signature("model", member).replace("def ", "", 1).replace(": ...", ""),
                      docstring(member)]
        elif not named.startswith("_"):
            parts += entry(named, member, level + 1, f"{name}.")
    return parts


def page():
    tree = list(exported())
    named = ast.literal_eval(re.search(r"__all__ = (\[.*?\])", (PACKAGE / "__init__.py").read_text(), re.DOTALL)[1])
    if sorted(named) != sorted(name for name, _ in tree):
        sys.exit("tools/python_api.py: __all__ and the imports of __init__.py differ")
    is_error = lambda node: isinstance(node, ast.ClassDef) and any(
        ast.unparse(base) in ("Error", "Exception") for base in node.bases)
    parts = [INTRODUCTION.rstrip("\n"), "## Functions"]
    for name, node in tree:
        if not isinstance(node, ast.ClassDef):
            parts += entry(name, node, 3)
    parts.append("## Classes")
    for name, node in tree:
        if isinstance(node, ast.ClassDef) and not is_error(node):
            parts += entry(name, node, 3)
    rows = ["| exception | also a | meaning |", "|---|---|---|"]
    for name, node in tree:
        if is_error(node):
            also = ", ".join(f"`{ast.unparse(base)}`" for base in node.bases if ast.unparse(base) != "Error")
            rows.append(f"| `{name}` | {also} | {' '.join((ast.get_docstring(node) or '').split())} |")
    parts += ["## Exceptions", "\n".join(rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    print(page(), end="")
