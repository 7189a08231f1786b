"""MobileNetV2 against ONNX Runtime and OpenVINO: the same file, the same inputs, rounds in turn.

    python benchmarks/mobilenet_v2.py [--rounds 40] [--weights 0] [--json FILE]

Every round runs each engine once on each of a few inputs; what is compared is the ratio within a
round, because a shared machine drifts. One thread. A loop of independent fused multiply-adds, timed
in the same rounds, gives the machine's peak at that moment.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

import minitvm
from minitvm.target import Target
from minitvm.testing import zoo
from minitvm.testing.peak import peak_loop

MULTIPLY_ADDS = 300.8e6
Run = Callable[[np.ndarray], np.ndarray]


def engines(model_bytes: bytes) -> dict[str, Run]:
    """What is compared: name -> a function from image to logits."""
    found: dict[str, Run] = {}
    compiled = minitvm.compile(model_bytes)
    folder = tempfile.mkdtemp()
    compiled.export(Path(folder) / "mobilenet_v2.so")
    module = minitvm.load(Path(folder) / "mobilenet_v2.so")
    found["minitvm"] = lambda x: module.run({"input": x})["logits"]
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        session = onnxruntime.InferenceSession(model_bytes, options, ["CPUExecutionProvider"])
        name = f"onnxruntime {onnxruntime.__version__}"
        found[name] = lambda x: session.run(None, {"input": x})[0]
    except ImportError:
        pass
    try:
        import openvino

        core = openvino.Core()
        config = {"INFERENCE_NUM_THREADS": 1, "PERFORMANCE_HINT": "LATENCY",
                  "INFERENCE_PRECISION_HINT": "f32"}
        request = core.compile_model(core.read_model(model_bytes), "CPU", config)
        infer = request.create_infer_request()
        version = openvino.__version__.split("-")[0]
        found[f"openvino {version}"] = lambda x: infer.infer({"input": x})[request.output(0)].copy()
    except ImportError:
        pass
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--weights", default="pretrained", help="'pretrained', or a seed")
    parser.add_argument("--json", type=Path, help="also write the times, in milliseconds")
    arguments = parser.parse_args()
    weights = arguments.weights
    model = zoo.mobilenet_v2(int(weights) if weights.isdigit() else weights)
    runs = engines(model.SerializeToString())
    peak = peak_loop(Target.host())
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)

    times: dict[str, list[float]] = {name: [] for name in runs}
    peaks: list[float] = []
    for run in runs.values():
        for _ in range(5):
            run(image)
    for index in track(range(arguments.rounds), "measuring"):
        names = list(runs)
        for name in names[index % len(names):] + names[: index % len(names)]:
            start = time.perf_counter()
            for _ in range(3):
                runs[name](image)
            times[name].append((time.perf_counter() - start) / 3 * 1e3)
        peaks.append(peak.gflops())

    reference = next((run(image) for name, run in runs.items() if name != "minitvm"), None)
    table = Table("engine", "p50 ms", "min ms", "ratio of p50", "ratio of min", "ratio by round",
                  "of peak (p50)", title="MobileNetV2, batch 1, float32, one thread")
    ours = np.array(times["minitvm"])
    for name, measured in times.items():
        theirs = np.array(measured)
        share = 2 * MULTIPLY_ADDS / (np.median(theirs) * 1e6) / np.median(peaks)
        ratios = (np.median(ours) / np.median(theirs), ours.min() / theirs.min(),
                  np.median(ours / theirs))
        table.add_row(name, f"{np.median(theirs):.2f}", f"{theirs.min():.2f}",
                      *(f"{ratio:.3f}" for ratio in ratios), f"{share:.0%}")
    console = Console()
    console.print(table)
    console.print(f"peak in the same rounds: {np.median(peaks):.0f} GFLOP/s")
    console.print("ratios are minitvm / engine: less than 1 is faster")
    if reference is not None:
        error = np.abs(runs["minitvm"](image) - reference).max() / np.abs(reference).max()
        console.print(f"largest difference of minitvm: {error:.1e} of the largest logit")
    if arguments.json:
        record = {"milliseconds": times, "peak_gflops": peaks}
        arguments.json.write_text(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
