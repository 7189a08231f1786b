"""The networks of the zoo against ONNX Runtime: the same file, the same inputs, rounds in turn.

    python benchmarks/networks.py [resnet18 efficientnet_b0 ...] [--rounds 20]

One thread, random weights, pictures of 224x224. Each round runs both engines once; what is compared
is the least time of each, because a shared machine only ever makes them slower. Compilation starts
from nothing, without kernels of an earlier one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from rich.console import Console
from rich.table import Table

import minitvm
from minitvm.testing import zoo, zoo_classic, zoo_mobile
from minitvm.transform import PassContext

NETWORKS: dict[str, Callable[[], Any]] = {
    "resnet18": lambda: zoo_classic.resnet(18),
    "resnet50": lambda: zoo_classic.resnet(50),
    "mobilenet_v2": lambda: zoo.mobilenet_v2(weights=0),
    "mobilenet_v3_small": lambda: zoo_mobile.mobilenet_v3("small"),
    "mobilenet_v3_large": lambda: zoo_mobile.mobilenet_v3("large"),
    "efficientnet_b0": zoo_mobile.efficientnet_b0,
    "squeezenet": zoo_classic.squeezenet,
    "densenet121": zoo_classic.densenet,
    "vgg11": lambda: zoo_classic.vgg(11),
    "vgg19": lambda: zoo_classic.vgg(19),
}


def measure(run: Callable[[], Any]) -> float:
    """Milliseconds of one run."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) * 1e3


def compare(name: str, rounds: int) -> tuple[str, ...]:
    """A row of the table."""
    model = NETWORKS[name]().SerializeToString()
    start = time.perf_counter()
    with PassContext(config={"cache.directory": None}):
        compiled = minitvm.compile(model)
    seconds = time.perf_counter() - start
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    inputs = {"input": np.random.default_rng(0).standard_normal((1, 3, 224, 224), np.float32)}
    got, wanted = compiled.run(inputs)["logits"], session.run(None, inputs)[0]
    error = np.abs(got - wanted).max() / np.abs(wanted).max()
    times = [(measure(lambda: compiled.run(inputs)), measure(lambda: session.run(None, inputs)))
             for _ in range(rounds)]
    ours, theirs = np.min(times, axis=0)
    return (name, f"{seconds:.1f}", str(len(compiled.kernels)), f"{ours:.2f}", f"{theirs:.2f}",
            f"{ours / theirs:.2f}", f"{error:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", default=list(NETWORKS), metavar="NETWORK",
                        help=f"of {', '.join(NETWORKS)}; by default all")
    parser.add_argument("--rounds", type=int, default=20)
    arguments = parser.parse_args()
    unknown = [name for name in arguments.networks if name not in NETWORKS]
    if unknown:
        parser.error(f"no network is called {unknown[0]!r}; there are {', '.join(NETWORKS)}")
    table = Table("network", "compile s", "kernels", "minitvm ms", "onnxruntime ms", "ratio",
                  "difference", title="batch 1, float32, one thread; ratio < 1: minitvm is faster")
    for name in arguments.networks:
        table.add_row(*compare(name, arguments.rounds))
    Console().print(table)


if __name__ == "__main__":
    main()
