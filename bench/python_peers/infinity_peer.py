"""infinity_peer.py ARGUMENT...: infinity_emb's command line. Its optimum engine names a local model's file by its whole path,
which the optimum it installs with does not take."""

import pathlib

from infinity_emb import cli
from infinity_emb.transformer.embedder import optimum

optimum.get_onnx_files = lambda **_: pathlib.Path("model.onnx")

if __name__ == "__main__":
    cli.cli()
