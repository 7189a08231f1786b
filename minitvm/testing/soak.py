"""A library, run for long on several threads: by many callers, in forked children, and unloaded.

    python -m minitvm.testing.soak [--callers 8] [--runs 1000] [--children 4] [--loads 100]

Every run must give the bits of the first one, memory must stay flat once everything is warm, and
nothing may hang: each part has a time limit, which raises an alarm in the process that is stuck.

`soak` does it for a given library; the command compiles a small MobileNetV2 for it.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import minitvm
from minitvm.runtime.loader import load
from minitvm.runtime.module import Module
from minitvm.runtime.tensor_info import random_arrays
from minitvm.testing import zoo

LIMIT_SECONDS = 600
GROWTH_BYTES = 1 << 20
"""By how much the process may grow while everything is warm."""


@dataclass(frozen=True, slots=True)
class Load:
    """How much to run: `runs` by each of `callers` threads of Python, half as many in each of
    `children`; `loads` processes that load, run and unload. All on `threads` threads."""

    callers: int = 8
    runs: int = 1000
    children: int = 4
    loads: int = 100
    threads: int = 3


def soak(library: str | os.PathLike[str], amount: Load,
         say: Callable[[str], None] = lambda line: None) -> list[str]:
    """What went wrong, a sentence each; nothing if all is well."""
    found: list[str] = []
    for name, part in (("callers", _callers), ("children", _children), ("loads", _loads)):
        start = time.perf_counter()
        with _limit(LIMIT_SECONDS):
            wrong = part(library, amount)
        say(f"{name}: {len(wrong)} faults, {time.perf_counter() - start:.1f} s")
        found += wrong
    return found


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """Ends the process by a signal if this takes longer."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def _bits(module: Module, inputs: dict[str, np.ndarray]) -> bytes:
    return b"".join(array.tobytes() for array in module.run(inputs).values())


def resident_bytes() -> int:
    """The memory of this process."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


def _callers(library: str | os.PathLike[str], amount: Load) -> list[str]:
    """Many threads of Python run one model; each compares every result."""
    module = load(library, threads=amount.threads)
    inputs = random_arrays(module.inputs)
    first = _bits(module, inputs)
    wrong: list[str] = []
    warm = threading.Barrier(amount.callers + 1)

    def call(number: int) -> None:
        outputs, same = module.run(inputs), True
        run = module.bind([inputs[info.name] for info in module.inputs], list(outputs.values()))
        for turn in range(amount.runs):
            if turn == amount.runs // 5:
                warm.wait(LIMIT_SECONDS)  # for the memory to be read
                warm.wait(LIMIT_SECONDS)
            run()
            if same and b"".join(array.tobytes() for array in outputs.values()) != first:
                wrong.append(f"caller {number} got other results in run {turn}")
                same = False

    callers = [threading.Thread(target=call, args=(number,)) for number in range(amount.callers)]
    for caller in callers:
        caller.start()
    warm.wait(LIMIT_SECONDS)
    before = resident_bytes()
    warm.wait(LIMIT_SECONDS)
    for caller in callers:
        caller.join()
    grown = resident_bytes() - before
    if grown > GROWTH_BYTES:
        wrong.append(f"{amount.callers * amount.runs} runs made the process grow by {grown} bytes")
    return wrong


def _children(library: str | os.PathLike[str], amount: Load) -> list[str]:
    """Forked children, each with a pool of its own, while the parent goes on."""
    module = load(library, threads=amount.threads)
    inputs = random_arrays(module.inputs)
    first = _bits(module, inputs)
    children = []
    for number in range(amount.children):
        child = os.fork()
        if child == 0:
            signal.alarm(LIMIT_SECONDS)
            module.threads = 1 + (number + amount.threads - 1) % 4
            same = all(_bits(module, inputs) == first for _ in range(amount.runs // 2))
            os._exit(0 if same else 1)
        children.append(child)
        _bits(module, inputs)
    wrong = []
    for number, child in enumerate(children):
        status = os.waitpid(child, 0)[1]
        if status:
            wrong.append(f"child {number} ended with status {status}")
    if _bits(module, inputs) != first:
        wrong.append("the parent got other results after its children")
    return wrong


_UNLOAD = """
import ctypes, _ctypes, sys, time
path, name, pause, threads, sizes_in, sizes_out = sys.argv[1:]
library = ctypes.CDLL(path)
class Tensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("shape", ctypes.c_void_p)]
def memory(size):
    raw = ctypes.create_string_buffer(size + 64)
    return raw, ctypes.addressof(raw) + -ctypes.addressof(raw) % 64
def tensors(sizes):
    pieces = [memory(int(size)) for size in sizes.split(",")]
    return pieces, (Tensor * len(pieces))(*(Tensor(address, None) for _, address in pieces))
keep_in, inputs = tensors(sizes_in)
keep_out, outputs = tensors(sizes_out)
size = getattr(library, name + "_workspace_bytes")
size.restype = ctypes.c_uint64
keep, workspace = memory(size())
run = getattr(library, name + "_run")
for _ in range(3):
    code = run(inputs, outputs, ctypes.c_void_p(workspace), int(threads))
    assert code == 0, code
_ctypes.dlclose(library._handle)
time.sleep(float(pause))
mapped = path in open("/proc/self/maps").read()
assert mapped or threads == "1", "the library was unmapped under its threads"
"""


def _loads(library: str | os.PathLike[str], amount: Load) -> list[str]:
    """Processes that load the library, run, unload it, and end: at once, or after a while in which
    the workers fall asleep."""
    module = load(library)
    sizes = [",".join(str(info.size_bytes) for info in infos)
             for infos in (module.inputs, module.outputs)]
    wrong = []
    for number in range(amount.loads):
        pause = (0, 1e-5, 2e-3)[number % 3]
        command = [sys.executable, "-c", _UNLOAD, os.path.realpath(library), module.name,
                   str(pause), str(amount.threads), *sizes]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        except subprocess.TimeoutExpired:
            wrong.append(f"load {number} hung")
            continue
        if done.returncode:
            wrong.append(f"load {number} ended with status {done.returncode}: "
                         f"{done.stderr.strip()[-300:]}")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; its status is 1 if anything went wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, count in (("callers", 8), ("runs", 1000), ("children", 4), ("loads", 100),
                        ("threads", 3)):
        parser.add_argument(f"--{name}", type=int, default=count)
    amount = Load(**vars(parser.parse_args(arguments)))
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "soak.so"
        model = zoo.mobilenet_v2(0, image=96, width=0.5)
        minitvm.compile(model.SerializeToString()).export(library)
        wrong = soak(library, amount, print)
    for sentence in wrong:
        print(sentence)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
