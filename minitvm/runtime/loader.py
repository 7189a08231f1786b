"""A `.so` file -> a `Module`.

The file is read before it is loaded: loading runs code, and a damaged library or one of another
kind can end the process. So it must be a shared library of this machine's architecture that minitvm
made, and what is loaded of it must be byte for byte what was exported.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from minitvm.errors import LoadError
from minitvm.runtime.elf import MACHINES, ElfError, architecture
from minitvm.runtime.module import Library, Module
from minitvm.runtime.seal import read_seal

_ARCHITECTURES = {"amd64": "x86_64", "arm64": "aarch64"}

_LOADED: dict[str, list[tuple[int, int, int]]] = {}
"""For each path, the files that it has been, by device, inode and time of change."""


def load(path: str | os.PathLike[str], threads: int | None = None,
         cpus: Sequence[int] | None = None,
         weights: str | os.PathLike[str] | None = None) -> Module:
    """Loads a compiled model, to run on `threads` threads (by default one), the workers pinned to
    `cpus`, as `Module.set_affinity` says. `weights` is the file that holds the weights, where the
    library does not; by default the one beside it. Raises `LoadError`, or `InputError` for
    `threads` and `cpus`."""
    file = Path(path)
    try:
        _check(file)
        library = ctypes.CDLL(_fresh_path(file), mode=os.RTLD_LOCAL | os.RTLD_NOW)
    except (OSError, ValueError) as error:  # a ValueError where the path holds a zero byte
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise LoadError(f"the model {str(path)!r} can't be loaded: {reason}") from error
    module = Module(Library(lambda name: _address(library, name), library), threads, cpus)
    _load_weights(module, file, weights)
    return module


def _load_weights(module: Module, library: Path, weights: str | os.PathLike[str] | None) -> None:
    """Maps and checks the file of weights now, so that what is wrong with it is said now."""
    name = module.metadata["weights_file"]
    if name is not None:
        module.load_weights(library.parent / name if weights is None else weights)
    elif weights is not None:
        raise LoadError(f"the model {str(library)!r} holds its weights itself; it takes no file of "
                        f"weights such as {str(weights)!r}")


def _check(file: Path) -> None:
    try:
        library = read_seal(file)
    except ElfError as error:
        raise LoadError(f"{str(file)!r} {error}") from error
    machine = platform.machine().lower()
    machine = _ARCHITECTURES.get(machine, machine)
    if not library.has_note:
        raise LoadError(f"{str(file)!r} is not a minitvm model: it has no note of minitvm's")
    if library.machine != MACHINES.get(machine):
        raise LoadError(f"{str(file)!r} was compiled for {architecture(library.machine)}, and "
                        f"this machine is {machine}; compile the model for this target")
    if not library.intact:
        raise LoadError(f"{str(file)!r} was truncated or changed after it was exported; "
                        "export the model again")


def _fresh_path(file: Path) -> str:
    """A spelling of the path that the dynamic loader has not met with another file behind it.

    It knows loaded libraries by the spelling of their path, and would give the old library where a
    model has been exported anew to the same place.
    """
    path = str(file.resolve())
    facts = file.stat()
    versions = _LOADED.setdefault(path, [])
    version = facts.st_dev, facts.st_ino, facts.st_mtime_ns
    if version not in versions:
        versions.append(version)
    folder, name = os.path.split(path)
    return os.path.join(folder, *["."] * versions.index(version), name)


def _address(library: Any, name: str) -> int:
    return ctypes.cast(library[name], ctypes.c_void_p).value or 0
