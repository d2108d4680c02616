# cmake --install: filled in by the engine's public package.
