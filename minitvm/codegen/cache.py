"""Compiled kernels kept on disk: a key -> the files that were stored under it.

An entry is one file, named by its key, that starts with the SHA-256 of the rest: what is damaged
is dropped and made again. It is written beside its place and moved there, so that processes may
share the folder. `cache_key` mixes a digest of minitvm's own sources and LLVM's version into every
key: whoever edits a pass never runs a kernel that the old one made.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import platformdirs

from minitvm.remarks import remark
from minitvm.transform import PassContext

_DIGEST_BYTES = 32


@dataclass(frozen=True, slots=True)
class CachedKernel:
    """What is kept of a kernel: its machine tir as text, and its object file."""

    text: str
    object: bytes


@dataclass(frozen=True, slots=True)
class KernelCache:
    """Kernels by a key that says what they were made from, in a `Store`."""

    store: Store

    @staticmethod
    def current() -> KernelCache | None:
        """The cache of the current `PassContext`: `config["cache.directory"]`, where None means
        none; by default the user's cache folder."""
        config = PassContext.current().config
        directory = config.get("cache.directory", platformdirs.user_cache_dir("minitvm"))
        return None if directory is None else KernelCache(Store(Path(directory)))

    def get(self, key: str) -> CachedKernel | None:
        """What this minitvm made of what `key` says; None if it isn't kept."""
        files = self.store.get(cache_key(key))
        if files is None or files.keys() != {"kernel.tir", "kernel.o"}:
            return None
        return CachedKernel(files["kernel.tir"].decode(), files["kernel.o"])

    def put(self, key: str, text: str, data: bytes) -> None:
        """Keeps a kernel; where the folder can't be written to, that is a remark."""
        if not self.store.put(cache_key(key), {"kernel.tir": text.encode(), "kernel.o": data}):
            remark("KernelCache", f"the folder {self.store.directory} can't be written to; kernels "
                   "are not kept")


@dataclass(frozen=True, slots=True)
class Store:
    """Named entries in a folder, which is made when it is first written to."""

    directory: Path

    def _path(self, key: str) -> Path:
        return self.directory / key[:2] / f"{key}.entry"

    def get(self, key: str) -> dict[str, bytes] | None:
        """The files stored under a key; None where there are none, or not whole."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        files = _unpack(data)
        if files is None:
            self.drop(key)
        return files

    def put(self, key: str, files: Mapping[str, bytes]) -> bool:
        """Stores files under a key; False where the folder can't be written to."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(_pack(files))
                os.replace(name, path)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(name)
                raise
        except OSError:
            return False
        return True

    def drop(self, key: str) -> None:
        """Removes an entry, such as one whose files turn out to be unusable."""
        with contextlib.suppress(OSError):
            self._path(key).unlink()


def cache_key(*parts: str) -> str:
    """A key for what is made from these texts by this version of minitvm and LLVM."""
    digest = hashlib.sha256(source_digest().encode())
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little") + data)
    return digest.hexdigest()


@cache
def source_digest() -> str:
    """A digest of every source file of minitvm, of llvmlite's version and of LLVM's."""
    import llvmlite
    import llvmlite.binding as llvm

    package = Path(__file__).parents[1]
    digest = hashlib.sha256(f"{llvmlite.__version__} {llvm.llvm_version_info}".encode())
    for path in sorted(package.rglob("*.py")):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(package).as_posix()} {len(content)}\n".encode())
        digest.update(content)
    return digest.hexdigest()


def _pack(files: Mapping[str, bytes]) -> bytes:
    """The digest of what follows, the length of the list of files, the list, the files."""
    rows = [[name, len(data)] for name, data in files.items()]
    listing = json.dumps(rows).encode()
    body = len(listing).to_bytes(8, "little") + listing + b"".join(files.values())
    return hashlib.sha256(body).digest() + body


def _unpack(data: bytes) -> dict[str, bytes] | None:
    digest, body = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if len(body) < 8 or hashlib.sha256(body).digest() != digest:
        return None
    length = int.from_bytes(body[:8], "little")
    files, start = {}, 8 + length
    for name, size in json.loads(body[8:start]):
        files[name] = body[start:start + size]
        start += size
    return files
