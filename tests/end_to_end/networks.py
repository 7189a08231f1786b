"""What the end-to-end tests compile and compare with: small networks, contexts, ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import minitvm
from minitvm.target import Target
from minitvm.testing.agree import max_relative
from minitvm.testing.zoo import OnnxBuilder
from minitvm.transform import PassContext

CLOSE = 1e-4
"""max|a - b| / max|b| against another runtime."""

HOST = Target.host()
WIDTHS = {"x86-64-v3": "llvm -mcpu=x86-64-v3", "x86-64-v4": "llvm -mcpu=x86-64-v4"}
"""Targets beside the host's own, where the host can run them."""

CORTEX = Target("llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76")


def target_or_skip(name):
    """A target that runs here; skips the test where it doesn't."""
    if name == "host":
        return HOST
    if HOST.isa != "x86_64":
        pytest.skip(f"{name} is of another machine than this, which is {HOST.isa}")
    target = Target(WIDTHS[name])
    if not target.is_host():
        pytest.skip(f"this machine's CPU lacks instructions of {name}")
    return target


def context(**changes):
    """The current context, with changes; the tests' own kernel cache stays."""
    return replace(PassContext.current(), **changes)


def no_cache(**changes):
    """The same without a kernel cache."""
    return context(config={"cache.directory": None}, **changes)


def image(*shape, seed=0):
    """Random pixels."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def run_onnxruntime(model, inputs):
    """The outputs of ONNX Runtime on one thread; skips the test where it isn't installed."""
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    data = model if isinstance(model, bytes) else model.SerializeToString()
    session = runtime.InferenceSession(data, options, ["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def assert_close(got, expected):
    """Every output is within 1e-4 of the other runtime's."""
    assert got.keys() == expected.keys()
    for name, array in got.items():
        assert array.dtype == expected[name].dtype and np.isfinite(expected[name]).all()
        assert max_relative(array, expected[name]) <= CLOSE, name


def check(model, inputs, **options):
    """Compiles, runs, compares with ONNX Runtime; gives the compiled module."""
    compiled = minitvm.compile(model, **options)
    assert_close(compiled.run(inputs), run_onnxruntime(model, inputs))
    return compiled


def small_network(opset=17, folded=False, channels=12, side=20, batch=1):
    """The pieces of MobileNetV2, once each: stem, residual block, block of stride 2, classifier.

    No vector width divides 12 channels, and at side 20 windows have odd tails. `folded`: with a
    bias instead of batch normalization. Clip has attributes before opset 11.
    """
    net = _Small({}, 5, opset=opset, folded=folded)
    x = net.conv_norm("input", "stem", "stem_norm", (channels, 3, 3, 3), stride=2)
    for index, (stride, result) in enumerate(((1, channels), (2, channels + 8))):
        hidden = 3 * channels
        y = net.conv_norm(x, f"{index}.expand", f"{index}.norm0", (hidden, channels, 1, 1))
        y = net.conv_norm(y, f"{index}.depth", f"{index}.norm1", (hidden, 1, 3, 3), stride, hidden)
        y = net.conv_norm(y, f"{index}.project", f"{index}.norm2", (result, hidden, 1, 1),
                          activation=False)
        x = net.node("Add", x, y) if stride == 1 else y
    net.classifier(x, channels + 8, 10)
    return net.model("small", (batch, 3, side, side), 10)


class _Small(OnnxBuilder):
    """A builder that can fold normalization, and knows the older form of Clip."""

    def __init__(self, parameters, seed, opset, folded):
        super().__init__(parameters, seed, opset=opset)
        self.folded = folded

    def conv_norm(self, x, conv, norm, shape, stride=1, groups=1, activation=True):
        if not self.folded:
            y = self._conv(x, self.weight(f"{conv}.weight", shape), shape, stride, groups)
            parts = (("weight", "scale"), ("bias", "shift"), ("running_mean", "shift"),
                     ("running_var", "variance"))
            y = self.node("BatchNormalization", y, *(
                self.weight(f"{norm}.{part}", shape[:1], kind) for part, kind in parts))
        else:
            bias = self.weight(f"{conv}.bias", shape[:1], "shift")
            y = self._conv(x, self.weight(f"{conv}.weight", shape), shape, stride, groups, bias)
        return self._clip(y) if activation else y

    def _conv(self, x, weight, shape, stride, groups, *bias):
        return self.node("Conv", x, weight, *bias, strides=[stride] * 2, group=groups,
                         pads=[shape[2] // 2] * 4, kernel_shape=list(shape[2:]))

    def _clip(self, y):
        if self.opset < 11:
            return self.node("Clip", y, min=0.0, max=6.0)
        bounds = [self.constant(f"clip_{value}", np.array(value, np.float32)) for value in (0, 6)]
        return self.node("Clip", y, *bounds)
