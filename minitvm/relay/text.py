"""Modules <-> text and files.

`save_text("model.relay")` writes the text, and beside it `model.npz` with the constants of more
than 64 elements, which the text names by digest. The format is described in `relay.printer`.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from minitvm.errors import ParseError
from minitvm.relay.ir import Module
from minitvm.relay.parser import parse_function, parse_module
from minitvm.relay.printer import large_constants, print_function, print_module

__all__ = ["load_text", "parse_function", "parse_module", "print_function", "print_module",
           "save_text"]


def save_text(module: Module, path: str | PathLike[str]) -> None:
    """Writes a module's text to `path`, and its large constants to the `.npz` beside it."""
    path = Path(path)
    constants = large_constants(module)
    path.write_text(print_module(module), encoding="utf-8")
    if constants:
        arrays: dict[str, Any] = {_key(digest): array for digest, array in constants.items()}
        np.savez(path.with_suffix(".npz"), **arrays)


def load_text(path: str | PathLike[str]) -> Module:
    """The module that `save_text` wrote. Raises `ParseError` for what does not read."""
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ParseError(f"{path}:1:1: the file can't be read: {error}") from None
    beside = path.with_suffix(".npz")
    if not beside.exists():
        return parse_module(text, file=str(path))
    try:
        with np.load(beside, allow_pickle=False) as archive:
            return parse_module(text, _Archive(archive), file=str(path))
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise ParseError(f"{beside}:1:1: the constants can't be read: {error}") from None


def _key(digest: str) -> str:
    """The name of a constant in the archive: no colon, which file systems dislike."""
    return digest.removeprefix("sha256:")


class _Archive(Mapping[str, np.ndarray]):
    """The arrays of an archive by digest, read when asked for."""

    def __init__(self, archive: np.lib.npyio.NpzFile) -> None:
        self.archive = archive

    def __getitem__(self, digest: str) -> np.ndarray:
        return np.asarray(self.archive[_key(digest)])

    def __contains__(self, digest: object) -> bool:
        return isinstance(digest, str) and _key(digest) in self.archive.files

    def __iter__(self) -> Iterator[str]:
        return (f"sha256:{name}" for name in self.archive.files)

    def __len__(self) -> int:
        return len(self.archive.files)
