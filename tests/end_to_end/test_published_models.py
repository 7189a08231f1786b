"""Trained models of others, as they are published, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import pytest
from networks import assert_close, run_onnxruntime

import minitvm
from minitvm.testing.weights import FetchError, fetch_model

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def published(name):
    try:
        return fetch_model(name)
    except FetchError as error:
        pytest.skip(str(error))


def test_a_page_orientation_classifier():
    model = published("page_orientation")
    x = np.random.default_rng(0).standard_normal((1, 3, 224, 224)).astype(np.float32)
    compiled = minitvm.compile(model, {"x": (1, 3, 224, 224)})
    assert_close(compiled.run({"x": x}), run_onnxruntime(model, {"x": x}))


def test_a_recurrent_speech_detector_follows_a_signal():
    """The state of each run goes into the next; errors must not grow."""
    model = published("silero_vad")
    compiled = minitvm.compile(model, {"input": (1, 576), "state": (2, 1, 128)})
    state = np.zeros((2, 1, 128), np.float32)
    time = np.arange(576, dtype=np.float32) / 16000
    for step in range(5):
        sound = np.sin(2 * np.pi * (200 + 40 * step) * time)[None].astype(np.float32) * 0.3
        inputs = {"input": sound, "state": state, "sr": np.array(16000, np.int64)}
        inputs = {info.name: inputs[info.name] for info in compiled.program.inputs}
        got = compiled.run(inputs)
        assert_close(got, run_onnxruntime(model, inputs))
        state = got["stateN"]
