"""LSTM, GRU and RNN in every direction, against their equations in numpy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from single_node import run_model, single_node

import minitvm
from minitvm.errors import UnsupportedOperatorError
from minitvm.relay.onnx import from_onnx

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(x, w, r, b, h, c, p):
    """One step in float64: gates are input, output, forget, cell; peepholes input, output,
    forget."""
    size = h.shape[1]
    i, o, f, g = np.split(x @ w.T + h @ r.T + b[:4 * size] + b[4 * size:], 4, axis=1)
    pi, po, pf = np.split(p, 3)
    c_new = sigmoid(f + pf * c) * c + sigmoid(i + pi * c) * np.tanh(g)
    return sigmoid(o + po * c_new) * np.tanh(c_new), c_new


def gru(x, w, r, b, h, linear):
    size = h.shape[1]
    own, recurrent = b[:3 * size], b[3 * size:]
    z, t, n = np.split(x @ w.T + own, 3, axis=1)
    rz, rt, rn = np.split(r, 3)
    bz, bt, bn = np.split(recurrent, 3)
    z, t = sigmoid(z + h @ rz.T + bz), sigmoid(t + h @ rt.T + bt)
    n = np.tanh(n + (t * (h @ rn.T + bn) if linear else (t * h) @ rn.T + bn))
    return (1 - z) * n + z * h


def layer(kind, x, w, r, b, h, c, p, direction, linear):
    """Y, Y_h and Y_c."""
    outputs, states, cells = [], [], []
    for d in range(len(w)):
        backward = direction == "reverse" or d == 1
        hidden, cell, steps = h[d], c[d], []
        for t in reversed(range(len(x))) if backward else range(len(x)):
            if kind == "LSTM":
                hidden, cell = lstm(x[t], w[d], r[d], b[d], hidden, cell, p[d])
            elif kind == "GRU":
                hidden = gru(x[t], w[d], r[d], b[d], hidden, linear)
            else:
                size = hidden.shape[1]
                hidden = np.tanh(x[t] @ w[d].T + hidden @ r[d].T + b[d][:size] + b[d][size:])
            steps.append(hidden)
        outputs.append(np.stack(steps[::-1] if backward else steps))
        states.append(hidden)
        cells.append(cell)
    return np.stack(outputs, 1), np.stack(states), np.stack(cells)


def arrays(kind, direction, length, batch, width, hidden, seed):
    random = np.random.default_rng(seed)
    count, rows = 2 if direction == "bidirectional" else 1, GATES[kind] * hidden
    shapes = [(length, batch, width), (count, rows, width), (count, rows, hidden),
              (count, 2 * rows), (count, batch, hidden), (count, batch, hidden),
              (count, 3 * hidden)]
    return [random.normal(0, 0.7, shape).astype(np.float32) for shape in shapes]


@given(st.data())
@pytest.mark.parametrize("kind", GATES)
def test_layers_follow_their_equations(kind, data):
    direction = data.draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    sizes = [data.draw(st.integers(1, 4)) for _ in range(4)]
    x, w, r, b, h, c, p = arrays(kind, direction, *sizes, data.draw(st.integers(0, 99)))
    has_bias, has_state, has_peepholes, linear, batch_first, lengths = (
        data.draw(st.booleans()) for _ in range(6))
    b, h, c, p = (array if kept else np.zeros_like(array)
                  for array, kept in zip((b, h, c, p), (has_bias, has_state, has_state,
                                                        has_peepholes)))
    wanted = layer(kind, *(a.astype(np.float64) for a in (x, w, r, b, h, c, p)), direction, linear)
    attributes = {"direction": direction, "hidden_size": sizes[3]}
    if kind == "GRU":
        attributes["linear_before_reset"] = int(linear)
    if batch_first:
        attributes["layout"] = 1
        x, h, c = (np.ascontiguousarray(a.swapaxes(0, 1)) for a in (x, h, c))
        wanted = (wanted[0].transpose(2, 0, 1, 3), *(a.swapaxes(0, 1) for a in wanted[1:]))
    inputs = [x, w, r, b if has_bias else None,
              np.full(sizes[1], sizes[0], np.int32) if lengths else None, h if has_state else None]
    if kind == "LSTM":
        inputs += [c if has_state else None, p if has_peepholes else None]
    while inputs[-1] is None:
        inputs.pop()
    outputs = ["y", "h", "c"] if kind == "LSTM" else ["y", "h"]
    constant = [k for k in (1, 2, 3, 4, 7) if k < len(inputs)]
    model = single_node(kind, inputs, 14, constant, outputs, **attributes)
    given_arrays = {f"x{k}": a for k, a in enumerate(inputs) if a is not None and k not in constant}
    for one, right in zip(run_model(model, given_arrays), wanted):
        assert one.shape == right.shape
        np.testing.assert_allclose(one, right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", GATES)
def test_only_the_outputs_that_are_asked_for(kind):
    inputs = arrays(kind, "bidirectional", 3, 2, 4, 5, 0)[:3]
    whole = single_node(kind, inputs, 14, (1, 2), ["y", "h"], direction="bidirectional",
                        hidden_size=5)
    last = single_node(kind, inputs, 14, (1, 2), ["", "h"], direction="bidirectional",
                       hidden_size=5)
    np.testing.assert_array_equal(run_model(last, {"x0": inputs[0]})[0],
                                  run_model(whole, {"x0": inputs[0]})[1])


def test_a_layer_in_machine_code_shares_its_steps():
    """Twelve steps in each of two directions are few kernels."""
    x, w, r, b, h, c, _ = arrays("LSTM", "bidirectional", 12, 1, 20, 16, 1)
    model = single_node("LSTM", [x, w, r, b, None, h, c], 14, (1, 2, 3, 5, 6), ["y"],
                        direction="bidirectional", hidden_size=16)
    module = minitvm.compile(model)
    zeros = np.zeros((2, 48))
    right, _, _ = layer("LSTM", *(a.astype(np.float64) for a in (x, w, r, b, h, c)), zeros,
                        "bidirectional", False)
    got = module.run({"x0": x})["y"]
    np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
    assert len(module.kernels) <= 45, [kernel.name for kernel in module.kernels]


def test_what_is_not_unrolled_is_refused():
    x, w, r, *_ = arrays("GRU", "forward", 2, 2, 3, 4, 0)
    for attributes, inputs, message in (
        ({"activations": ["Affine", "Tanh"]}, [x, w, r], "activations"),
        ({"clip": 3.0}, [x, w, r], "clip is set"),
        ({}, [x, w, r, None, np.int32([2, 1])], "sequences of different lengths"),
        ({}, [np.zeros((2001, 1, 3), np.float32), w, r], "at most 2000 steps"),
    ):
        constant = [k for k in (1, 2, 4) if k < len(inputs)]
        model = single_node("GRU", inputs, 14, constant, ["y"], hidden_size=4, **attributes)
        with pytest.raises(UnsupportedOperatorError, match=message):
            from_onnx(model)
