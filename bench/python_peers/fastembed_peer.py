"""fastembed_peer.py FOLDER PORT THREADS PROCESSES: fastembed behind FastAPI, one text a request, as its documentation
calls it: texts of several requests share no batch."""

import os
import sys

import fastapi
import uvicorn
from fastembed import TextEmbedding
from fastembed.common.model_description import ModelSource, PoolingType

app = fastapi.FastAPI()


if __name__ == "fastembed_peer":  # in each process of the server, whose main module is this file under another name
    TextEmbedding.add_custom_model(model="minilm", pooling=PoolingType.MEAN, normalization=True, sources=ModelSource(url="none"),
                                   dim=384, model_file="onnx/model.onnx")
    model = TextEmbedding("minilm", specific_model_path=os.environ["MODEL"], threads=int(os.environ["THREADS"]))


@app.post("/v1/embeddings")
def embeddings(body: dict):
    texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
    data = [{"object": "embedding", "index": i, "embedding": vector.tolist()} for i, vector in enumerate(model.embed(texts))]
    return {"object": "list", "model": "minilm", "data": data}


if __name__ == "__main__":
    folder, port, threads, processes = sys.argv[1:]
    os.environ |= {"MODEL": folder, "THREADS": threads}
    uvicorn.run("fastembed_peer:app", port=int(port), workers=int(processes), log_level="error", loop="uvloop", http="httptools")
