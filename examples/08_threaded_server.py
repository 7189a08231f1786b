"""One model behind a server with a fixed number of threads, all of which run it at once.

    python examples/08_threaded_server.py                  # compiles a small model and asks itself
    python examples/08_threaded_server.py net.so 8080      # serves a compiled model until Ctrl-C

A request is a POST of the input as a .npy file, the answer the first output as one. Python's lock
is not held while the model computes, so threads run side by side; each run takes a workspace of
its own from the module, and the weights are there once. Threads, waiting requests and the size of
a request are all bounded: what is too much is refused at once, not kept in memory.
"""

import io
import queue
import sys
import tempfile
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer

import numpy as np
import onnx.parser

import minitvm

WORKERS, WAITING = 4, 16
MODEL = """
    <ir_version: 8, opset_import: ["": 17]>
    net (float[8, 256] x) => (float[8, 256] y) <int64[2] size = {256, 256}>
    { w = ConstantOfShape <value = float[1] {0.125}> (size) z = MatMul (x, w) y = Relu (z) }
"""


class Handler(BaseHTTPRequestHandler):
    timeout = 10  # seconds that a client may take to send

    def do_POST(self):
        module = self.server.module
        info, answer = module.inputs[0], io.BytesIO()
        try:
            length = int(self.headers.get("Content-Length", 0))
            if length > info.size_bytes + 1024:
                return self.send_error(413)
            array = np.load(io.BytesIO(self.rfile.read(length)), allow_pickle=False)
            np.save(answer, next(iter(module.run({info.name: array}).values())))
        except (ValueError, EOFError, minitvm.MinitvmError) as error:  # a sentence for the client
            return self.send_error(400, str(error).splitlines()[0])
        self.send_response_only(200)  # and nothing in a log
        self.send_header("Content-Length", str(answer.tell()))
        self.end_headers()
        self.wfile.write(answer.getvalue())


class Server(HTTPServer):
    def __init__(self, library, port):
        super().__init__(("127.0.0.1", port), Handler)
        self.module, self.waiting = minitvm.load(library), queue.Queue(WAITING)
        for _ in range(WORKERS):
            threading.Thread(target=self.work, daemon=True).start()

    def process_request(self, request, client_address):
        try:
            self.waiting.put_nowait((request, client_address))
        except queue.Full:
            request.sendall(b"HTTP/1.0 503 Service Unavailable\r\n\r\n")
            self.shutdown_request(request)

    def work(self):
        while True:
            request, address = self.waiting.get()
            try:
                self.finish_request(request, address)
            except Exception:  # such as a client that is gone
                self.handle_error(request, address)
            self.shutdown_request(request)


def ask(port, number):
    body = io.BytesIO()
    np.save(body, np.full((8, 256), number, np.float32))
    with urllib.request.urlopen(f"http://127.0.0.1:{port}", body.getvalue()) as answer:
        return (np.load(io.BytesIO(answer.read())) == 32 * number).all()


def main():
    if len(sys.argv) > 1:
        Server(sys.argv[1], int(sys.argv[2])).serve_forever()
    with tempfile.TemporaryDirectory() as folder:
        minitvm.compile(onnx.parser.parse_model(MODEL), export=f"{folder}/net.so")
        server = Server(f"{folder}/net.so", 0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with ThreadPoolExecutor(WORKERS) as clients:
        answers = clients.map(lambda number: ask(server.server_port, number), range(40))
        print(f"{sum(answers)} of 40 answers right, by {WORKERS} threads")


if __name__ == "__main__":
    main()
