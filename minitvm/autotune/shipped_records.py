"""The records that come with minitvm: a file for each class of machines, of common networks.

    minitvm.compile("resnet50.onnx", schedules=autotune.shipped())

A class is a level of x86-64, by the features that code may use: `x86-64-v4` is AVX-512 (F, BW, CD,
DQ, VL) in vectors of 512 bits, `x86-64-v3` AVX2 and FMA in vectors of 256. They decide how data is
laid out, so which kernels there are, and how many registers a tile has. A CPU's name, its caches
and its cores do not: records made by `-mcpu=x86-64-v3` on a machine with AVX-512 apply on any
machine with AVX2. No file for a class is no error.

`benchmarks/record_shipped.py` makes the files.
"""

from __future__ import annotations

from pathlib import Path

from minitvm.autotune.history import ApplyHistoryBest, apply_history_best
from minitvm.autotune.records import PACKED, read_log
from minitvm.target import Target

DATA = Path(__file__).parent / "data"
CLASSES = {
    "x86-64-v4": (512, ("avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")),
    "x86-64-v3": (256, ("avx2", "fma")),
}
"""The bits of vectors and the features of each class."""


def machine_class(target: Target) -> str | None:
    """The class of a target; None where records come for none that it belongs to."""
    for name, (bits, features) in CLASSES.items():
        if target.isa == "x86_64" and target.vector_bits == bits and (
                target.supported(features) == set(features)):
            return name
    return None


def data_file(name: str, packed: bool = False) -> str:
    """The name of the file of a class."""
    return f"{name}.jsonl{PACKED if packed else ''}"


def shipped(target: Target | str | None = None, folder: Path | None = None) -> ApplyHistoryBest:
    """The schedules that come with minitvm and suit a target, by default this machine: those of its
    class, and of no other. `folder` is where else to look for them."""
    machine = target if isinstance(target, Target) else Target(target) if target else Target.host()
    name = machine_class(machine)
    folder = folder or DATA
    files = [] if name is None else [folder / data_file(name, packed) for packed in (False, True)]
    records = [record for path in files if path.is_file() for record in read_log(path)]
    return apply_history_best(records, machine)
