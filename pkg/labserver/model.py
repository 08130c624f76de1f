"""A small embedding model behind OpenAI's API: model.py JAR PORT. The jar holds one .onnx and one tokenizer.json."""

import http.server
import json
import sys
import zipfile

import numpy
import onnxruntime
import tokenizers

jar = zipfile.ZipFile(sys.argv[1])
name = next(n for n in jar.namelist() if n.endswith(".onnx"))
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 2
model = onnxruntime.InferenceSession(jar.read(name), options, providers=["CPUExecutionProvider"])
tokenizer = tokenizers.Tokenizer.from_buffer(jar.read(next(n for n in jar.namelist() if n.endswith("tokenizer.json"))))
tokenizer.enable_truncation(512)
tokenizer.enable_padding()
inputs = {i.name for i in model.get_inputs()}
first = name.startswith("bge")  # these models take the first token's vector, the others the mean


def embed(texts):
    encoded = tokenizer.encode_batch(texts)
    mask = numpy.array([e.attention_mask for e in encoded], dtype=numpy.int64)
    given = {
        "input_ids": numpy.array([e.ids for e in encoded], dtype=numpy.int64),
        "attention_mask": mask,
        "token_type_ids": numpy.zeros_like(mask),
    }
    hidden = model.run(None, {k: v for k, v in given.items() if k in inputs})[0]
    pooled = hidden[:, 0] if first else (hidden * mask[:, :, None]).sum(1) / mask.sum(1)[:, None]
    return pooled / numpy.linalg.norm(pooled, axis=1, keepdims=True)


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        texts = asked["input"] if isinstance(asked["input"], list) else [asked["input"]]
        rows = [{"object": "embedding", "index": i, "embedding": v.tolist()} for i, v in enumerate(embed(texts))]
        body = json.dumps({"object": "list", "model": name, "data": rows, "usage": {"prompt_tokens": 0, "total_tokens": 0}}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
