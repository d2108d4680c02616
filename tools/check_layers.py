#!/usr/bin/env python3
"""Checks that includes follow the layers of docs/concepts/architecture.md.

Fails if an include points up the stack, or if a public header includes a private one. Fails too if the layers that are
built or documented differ from those listed here.
"""

import argparse
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
    "python": ["base", "tensor", "device", "ops", "graph", "runtime", "batching", "engine", "server", "cli"],
}
# Folders of a layer that may include of it only themselves and those listed.
BELOW_IN_LAYER = {
    "server/protocol": [],
    "engine/requests": [],
    "engine/costs": [],
    "engine/programs": ["engine/requests", "engine/costs"],
    "engine/execution": ["engine/requests", "engine/costs", "engine/programs"],
    "engine/repository": ["engine/requests", "engine/costs", "engine/programs", "engine/execution"],
}
INCLUDE = re.compile(r'^\s*#include\s+"([^"]+)"', re.MULTILINE)


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    root = pathlib.Path(__file__).resolve().parent.parent
    errors = []
    built = re.search(r"set\(CHAIRLIFT_LAYERS ([^)]*)\)", (root / "src/CMakeLists.txt").read_text())[1].split()
    shown = re.findall(r"^src/(\w+)/", (root / "docs/concepts/architecture.md").read_text(), re.MULTILINE)
    for place, layers in {"src/CMakeLists.txt": built, "docs/concepts/architecture.md": shown[::-1]}.items():
        if layers != list(BELOW):
            errors.append(f"{place}: the layers are {layers}, here {list(BELOW)}")
    for path in sorted(path for kind in ("h", "cc", "cu", "cuh") for path in (root / "src").rglob(f"*.{kind}")):
        layer = path.relative_to(root / "src").parts[0]
        for include in INCLUDE.findall(path.read_text()):
            target = include.split("/")[0]
            if target in BELOW and target != layer and target not in BELOW[layer]:
                errors.append(f"{path.relative_to(root)}: {layer} may not include {include}")
            folder = "/".join(path.relative_to(root / "src").parts[:2])
            target = "/".join(include.split("/")[:2]) if include.count("/") > 1 else include
            if include.startswith(f"{layer}/") and folder in BELOW_IN_LAYER:
                if target not in [folder, *BELOW_IN_LAYER[folder]]:
                    errors.append(f"{path.relative_to(root)}: {folder} may not include {include}")
    for path in sorted((root / "include").rglob("*.h")):
        for include in INCLUDE.findall(path.read_text()):
            if not include.startswith(("chairlift/", "absl/")):
                errors.append(f"{path.relative_to(root)}: a public header may not include {include}")
    print("\n".join(errors) if errors else "layers: every include points down")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
