"""A model loaded once, then served by several processes that share its memory.

    python examples/09_forking_server.py                   # compiles a small model and asks itself
    python examples/09_forking_server.py net.so 8080       # serves a compiled model until Ctrl-C

The parent loads the library and its weights, opens the port and forks; each child accepts
connections by itself. Code and weights are in memory once, however many processes there are: the
file of weights is mapped read-only. A model may also run before the fork: threads that it started
are not in the child, which starts its own when it first runs with several.
"""

import os
import re
import signal
import socket
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx.parser

import minitvm

PROCESSES, SMAPS = 3, Path("/proc/self/smaps")
MODEL = """
    <ir_version: 8, opset_import: ["": 17]>
    net (float[1, 1024] x) => (float[1, 1024] y) <int64[2] size = {1024, 1024}>
    { w = ConstantOfShape <value = float[1] {0.125}> (size) y = MatMul (x, w) }
"""


def serve(module, listening):
    """A child: reads the bytes of an input, runs the model, answers with its own number, how much
    of the weights it has to itself in KB, and the bytes of the first output."""
    info = module.inputs[0]
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        while True:
            connection, _ = listening.accept()
            with connection, connection.makefile("rb") as stream:
                connection.settimeout(10)  # seconds that a client may take
                array = np.frombuffer(stream.read(info.size_bytes), info.dtype).reshape(info.shape)
                result = next(iter(module.run({info.name: array}).values()))
                own = re.findall(r"\.weights\n.*?Private_Clean: +(\d+)", SMAPS.read_text(), re.S)
                facts = np.int32([os.getpid(), sum(map(int, own))])
                connection.sendall(facts.tobytes() + result.tobytes())
    except Exception as error:  # such as a client that sends too little
        print(f"{os.getpid()}: {error}", file=sys.stderr)
    finally:
        os._exit(1)  # never back into what the parent was doing; it starts another


def supervise(module, listening):
    """Keeps `PROCESSES` children alive until this process is asked to end; then ends them."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    children = set()
    try:
        while True:
            while len(children) < PROCESSES:
                process = os.fork()
                if process == 0:
                    serve(module, listening)
                children.add(process)
            children.discard(os.wait()[0])
    finally:
        for child in children:
            os.kill(child, signal.SIGTERM)


def ask(port, number):
    with socket.create_connection(("127.0.0.1", port)) as connection:
        connection.sendall(np.full(1024, number, np.float32).tobytes())
        answer = connection.makefile("rb").read()
    process, own = np.frombuffer(answer[:8], np.int32)
    return process, own, (np.frombuffer(answer[8:], np.float32) == 128 * number).all()


def main():
    if len(sys.argv) > 1:
        supervise(minitvm.load(sys.argv[1]), socket.create_server(("", int(sys.argv[2]))))
    with tempfile.TemporaryDirectory() as folder:
        library = f"{folder}/net.so"
        minitvm.compile(onnx.parser.parse_model(MODEL), export=library, weights="separate")
        module, listening = minitvm.load(library), socket.create_server(("127.0.0.1", 0))
    parent = os.fork()
    if parent == 0:
        supervise(module, listening)
    answers = [ask(listening.getsockname()[1], number) for number in range(60)]
    os.kill(parent, signal.SIGTERM)
    os.waitpid(parent, 0)
    processes, own, right = map(list, zip(*answers))
    print(f"{sum(right)} of 60 answers right, by {len(set(processes))} processes")
    print(f"of 4096 KB of weights, each has {max(own)} KB to itself")


if __name__ == "__main__":
    main()
