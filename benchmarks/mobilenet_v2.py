"""MobileNetV2 against ONNX Runtime and OpenVINO: the same file, the same inputs, rounds in turn.

    python benchmarks/mobilenet_v2.py [--rounds 60] [--weights 0] [--json FILE] [--profile]

Measured by `minitvm.bench`, as `minitvm bench` does for any model. One thread. A loop of
independent fused multiply-adds, timed in the same rounds, gives the machine's peak at that moment.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from minitvm.bench import bench, installed_peers
from minitvm.report import print_bench, print_profile, progress
from minitvm.testing import zoo

MULTIPLY_ADDS = 300.8e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--weights", default="pretrained", help="'pretrained', or a seed")
    parser.add_argument("--json", type=Path, help="also write the report, with all rounds")
    parser.add_argument("--profile", action="store_true", help="also say where the time goes")
    arguments = parser.parse_args()
    weights = arguments.weights
    model = zoo.mobilenet_v2(int(weights) if weights.isdigit() else weights)
    image = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    with progress("compiling") as moved:
        report, compiled = bench(
            model.SerializeToString(), against=installed_peers(), threads=[arguments.threads],
            rounds=arguments.rounds, inputs=lambda _: {"input": image}, progress=moved)
    print_bench(report)
    for engine in report["threads"][0]["engines"]:
        seconds = engine["milliseconds"]["p50"] / 1e3
        share = 2 * MULTIPLY_ADDS / seconds / 1e9 / report["peak_gflops"] / arguments.threads
        print(f"{engine['engine']}: {share:.0%} of the peak (p50)")
    if arguments.profile:
        print_profile(compiled.profile({"input": image}))
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
