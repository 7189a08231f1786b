"""MobileNetV2 from ONNX to one shared library, and what it sees in a picture.

    python examples/mobilenet_v2.py [PICTURE]

Fetches the published weights, compiles the model for this machine, writes `mobilenet_v2.so` (and a
C header and sample beside it), loads that file and classifies the picture: by default the bundled
one of a cat.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

import minitvm
from minitvm.testing import zoo
from minitvm.testing.weights import FetchError

DATA = Path(__file__).parent / "data"
SO = Path("mobilenet_v2.so")


def read_picture(path: Path) -> np.ndarray:
    """The centre of a picture as the network was trained: (1, 3, 224, 224), normalised."""
    picture = Image.open(path).convert("RGB")
    scale = 256 / min(picture.size)
    picture = picture.resize([round(side * scale) for side in picture.size], Image.Resampling.BILINEAR)
    left, top = ((side - 224) // 2 for side in picture.size)
    pixels = np.asarray(picture.crop((left, top, left + 224, top + 224)), np.float32) / 255
    normal = (pixels - zoo.IMAGENET_MEAN) / zoo.IMAGENET_DEVIATION
    return np.ascontiguousarray(normal.transpose(2, 0, 1)[None], np.float32)


def fetch_model(console: Console):
    """The trained model, or one with random weights where there is no network."""
    try:
        return zoo.mobilenet_v2("pretrained")
    except FetchError as error:
        console.print(f"[yellow]{error}\nUsing RANDOM weights: the classes below mean nothing.")
        return zoo.mobilenet_v2(weights=0)


def latency_ms(module, inputs, runs: int = 50) -> tuple[float, float]:
    """The median and the least time of a run, in milliseconds."""
    times = []
    for _ in range(runs + 5):
        start = time.perf_counter()
        module.run(inputs)
        times.append(1e3 * (time.perf_counter() - start))
    return float(np.median(times[5:])), min(times[5:])


def main() -> None:
    console = Console()
    picture = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "chelsea.png"
    with console.status("fetching the weights"):
        model = fetch_model(console)
    with console.status("compiling MobileNetV2"):
        start = time.perf_counter()
        compiled = minitvm.compile(model)
        compile_seconds = time.perf_counter() - start
        compiled.export(SO)

    module = minitvm.load(SO)
    inputs = {"input": read_picture(picture)}
    logits = module.run(inputs)["logits"][0].astype(np.float64)
    probabilities = np.exp(logits - logits.max())
    probabilities /= probabilities.sum()
    classes = (DATA / "imagenet_classes.txt").read_text().splitlines()

    answers = Table(title=f"What the network sees in {picture.name}")
    answers.add_column("class")
    answers.add_column("probability", justify="right")
    for index in np.argsort(-probabilities)[:5]:
        answers.add_row(classes[index], f"{probabilities[index]:.2%}")
    console.print(answers)

    median, least = latency_ms(module, inputs)
    plan = compiled.plan
    facts = Table(title="How it was made", show_header=False)
    facts.add_row("target", str(compiled.target))
    facts.add_row("compile time", f"{compile_seconds:.2f} s ({compiled.cache_hits} of "
                  f"{len(compiled.kernels)} kernels from the cache)")
    facts.add_row("latency, one thread", f"median {median:.2f} ms, minimum {least:.2f} ms")
    facts.add_row("kernels", f"{compiled.kernel_calls} calls of {len(compiled.kernels)} functions")
    facts.add_row("memory planned", f"{plan.workspace_bytes / 1e6:.2f} MB, "
                  f"{plan.workspace_bytes / plan.lower_bound_bytes:.3f} of the lower bound")
    facts.add_row(str(SO), f"{SO.stat().st_size / 1e6:.2f} MB")
    console.print(facts)


if __name__ == "__main__":
    main()
