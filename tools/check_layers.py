#!/usr/bin/env python3
"""Fails where an include points up the stack of docs/architecture.md, or a public header includes a private one."""

import pathlib
import re
import sys

# A layer may include itself and those listed.
BELOW = {
    "base": [],
    "tensor": ["base"],
    "device": ["base", "tensor"],
    "ops": ["base", "tensor", "device"],
    "graph": ["base", "tensor", "device", "ops"],
    "runtime": ["base", "tensor", "device", "ops", "graph"],
    "batching": ["base"],
    "engine": ["base", "tensor", "device", "ops", "graph", "runtime", "batching"],
    "server": ["base", "tensor", "engine"],
    "cli": ["base", "tensor", "device", "ops", "graph", "runtime", "batching", "engine", "server"],
}
INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    errors = []
    for path in sorted((root / "src").rglob("*.h")) + sorted((root / "src").rglob("*.cc")):
        layer = path.relative_to(root / "src").parts[0]
        for include in INCLUDE.findall(path.read_text()):
            target = include.split("/")[0]
            if target in BELOW and target != layer and target not in BELOW[layer]:
                errors.append(f"{path.relative_to(root)}: {layer} may not include {include}")
    for path in sorted((root / "include").rglob("*.h")):
        for include in INCLUDE.findall(path.read_text()):
            if not include.startswith(("chairlift/", "absl/")):
                errors.append(f"{path.relative_to(root)}: a public header may not include {include}")
    print("\n".join(errors) if errors else "layers: every include points down")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
