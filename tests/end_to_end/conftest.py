"""One kernel cache and one full-size network for all end-to-end tests of a session."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from networks import HOST, context, image

import minitvm
from minitvm.testing import zoo


@pytest.fixture(scope="session")
def kernel_cache(tmp_path_factory):
    """A folder for kernels that no other session has written to."""
    return tmp_path_factory.mktemp("kernels")


@pytest.fixture(scope="module", autouse=True)
def in_kernel_cache(kernel_cache):
    """Every test of a module compiles with that cache, unless it says otherwise."""
    with context(config={"cache.directory": str(kernel_cache)}):
        yield


@pytest.fixture(scope="session")
def mobilenet(tmp_path_factory, kernel_cache):
    """MobileNetV2 of full size with random weights, compiled for the host with an empty `cache`:
    `model`, `compiled`, an `input`, and the library `so` in a `folder` of its own."""
    folder = Path(tmp_path_factory.mktemp("mobilenet"))
    cache = kernel_cache / "mobilenet"
    model = zoo.mobilenet_v2(weights=3)
    with context(config={"cache.directory": str(cache)}):
        compiled = minitvm.compile(model, target=HOST)
    compiled.export(folder / "mobilenet_v2.so")
    return SimpleNamespace(model=model, compiled=compiled, so=folder / "mobilenet_v2.so",
                           input={"input": image(1, 3, 224, 224)}, folder=folder, cache=cache)
