"""MobileNetV2 from ONNX to one shared library, and what it sees in a picture.

    python examples/mobilenet_v2.py [PICTURE]

Fetches the published weights, compiles the model for this machine, writes `mobilenet_v2.so` (and a
C header and sample beside it), loads that file and classifies the picture: by default the bundled
one of a cat. Where the weights can't be fetched it says so, and goes on with random ones.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, UnidentifiedImageError
from rich.console import Console
from rich.table import Table

import minitvm
from minitvm.testing import zoo
from minitvm.testing.weights import FetchError

if TYPE_CHECKING:
    from onnx import ModelProto

DATA = Path(__file__).parent / "data"
SO = Path("mobilenet_v2.so")
RUNS = 50


def read_picture(path: Path) -> np.ndarray:
    """The centre of a picture as the network was trained: (1, 3, 224, 224), normalised."""
    picture = Image.open(path).convert("RGB")
    scale = 256 / min(picture.size)
    size = [round(side * scale) for side in picture.size]
    picture = picture.resize(size, Image.Resampling.BILINEAR)
    left, top = ((side - 224) // 2 for side in picture.size)
    pixels = np.asarray(picture.crop((left, top, left + 224, top + 224)), np.float32) / 255
    normal = (pixels - zoo.IMAGENET_MEAN) / zoo.IMAGENET_DEVIATION
    return np.ascontiguousarray(normal.transpose(2, 0, 1)[None], np.float32)


def fetch_model(console: Console) -> ModelProto:
    """The trained model, or one with random weights where there is no network."""
    try:
        return zoo.mobilenet_v2("pretrained")
    except FetchError as error:
        console.print(f"{error}\nUsing RANDOM weights: the classes below mean nothing.",
                      style="yellow", markup=False)
        return zoo.mobilenet_v2(weights=0)


def compile_model(console: Console, model: ModelProto) -> tuple[minitvm.CompiledModule, float]:
    """The compiled model, which is also written to `SO`, and the seconds that took."""
    with console.status("compiling MobileNetV2") as status:
        def progress(step: str, done: int, total: int) -> None:
            status.update(f"{step} ({done} of {total})" if total else step)

        start = time.perf_counter()
        compiled = minitvm.compile(model, progress=progress, export=SO)
        return compiled, time.perf_counter() - start


def measure_ms(module: minitvm.Module, image: np.ndarray) -> np.ndarray:
    """The time of each run in milliseconds, after a few that are not counted."""
    times = []
    for _ in range(RUNS + 5):
        start = time.perf_counter()
        module.run({"input": image})
        times.append(1e3 * (time.perf_counter() - start))
    return np.array(times[5:])


def answers(logits: np.ndarray, name: str) -> Table:
    """The five classes that the network finds most probable."""
    exponentials = np.exp(logits.astype(np.float64) - logits.max())
    probabilities = exponentials / exponentials.sum()
    classes = (DATA / "imagenet_classes.txt").read_text(encoding="utf-8").splitlines()
    table = Table("class", "probability", title=f"What the network sees in {name}")
    table.columns[1].justify = "right"
    for index in np.argsort(-probabilities)[:5]:
        table.add_row(classes[index], f"{probabilities[index]:.2%}")
    return table


def facts(compiled: minitvm.CompiledModule, seconds: float, times: np.ndarray) -> Table:
    """What was made, and how fast it is."""
    plan = compiled.plan
    table = Table(title="How it was made", show_header=False)
    table.add_row("target", str(compiled.target))
    table.add_row("compile time", f"{seconds:.2f} s ({compiled.cache_hits} of "
                  f"{len(compiled.kernels)} kernels from the cache)")
    table.add_row("latency, one thread", f"median {np.median(times):.2f} ms, minimum "
                  f"{times.min():.2f} ms, {RUNS} runs")
    table.add_row("kernels", f"{compiled.kernel_calls} calls of {len(compiled.kernels)} functions")
    table.add_row("memory planned", f"{plan.workspace_bytes / 1e6:.2f} MB, "
                  f"{plan.workspace_bytes / plan.lower_bound_bytes:.3f} of the lower bound")
    table.add_row(str(SO), f"{SO.stat().st_size / 1e6:.2f} MB")
    return table


def main() -> None:
    console = Console()
    picture = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "chelsea.png"
    try:
        image = read_picture(picture)
    except (OSError, UnidentifiedImageError) as error:
        sys.exit(f"error: {picture} can't be read as a picture: {error}")
    try:
        with console.status("fetching the weights"):
            model = fetch_model(console)
        compiled, seconds = compile_model(console, model)
        module = minitvm.load(SO)
        logits = module.run({"input": image})["logits"][0]
    except minitvm.MinitvmError as error:
        sys.exit(f"error: {error}")
    console.print(answers(logits, picture.name))
    console.print(facts(compiled, seconds, measure_ms(module, image)))


if __name__ == "__main__":
    main()
