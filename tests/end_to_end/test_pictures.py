"""The published MobileNetV2 sees a cat in the cat and an espresso in the coffee, as elsewhere."""

import importlib.util
from pathlib import Path

import pytest
from networks import HOST, assert_close, run_onnxruntime

import minitvm
from minitvm.testing import zoo
from minitvm.testing.weights import FetchError

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def published():
    try:
        return zoo.mobilenet_v2("pretrained")
    except FetchError as error:
        pytest.skip(f"the weights can't be fetched: {error}")


@pytest.fixture(scope="module")
def compiled(published, in_kernel_cache):
    return minitvm.compile(published, target=HOST)


def read_picture(name):
    """A bundled picture as the example reads it."""
    pytest.importorskip("PIL", reason="pillow is not installed")
    spec = importlib.util.spec_from_file_location("example", EXAMPLES / "mobilenet_v2.py")
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    return example.read_picture(EXAMPLES / "data" / name)


@pytest.mark.network
@pytest.mark.parametrize("picture, wanted", [
    ("chelsea.png", "Egyptian cat"),
    ("coffee.png", "espresso"),
])
def test_a_picture(published, compiled, picture, wanted):
    inputs = {"input": read_picture(picture)}
    got = compiled.run(inputs)
    classes = (EXAMPLES / "data" / "imagenet_classes.txt").read_text().splitlines()
    assert classes[got["logits"].argmax()] == wanted
    assert_close(got, run_onnxruntime(published, inputs))
