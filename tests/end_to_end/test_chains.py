"""Programs far deeper than Python's stack, and values used many times, compile and compute."""

import time

import numpy as np
import pytest
from networks import no_cache

import minitvm
from minitvm import relay

OPERATORS = 10_000
MOST_SECONDS = 180


def chain(count, *steps):
    """A module that takes the steps in turn, `count` of them."""
    x = relay.var("x", shape=(3, 21))
    y = x
    for index in range(count):
        y = steps[index % len(steps)](y)
    return relay.Module.from_expr(relay.Function([x], y))


def run_both(module):
    x = np.random.default_rng(1).integers(-4, 5, (3, 21)).astype(np.float32)
    with no_cache():
        compiled = minitvm.compile(module)
    np.testing.assert_array_equal(compiled.run({"x": x})["output0"], relay.run(module, {"x": x})[0])
    return compiled


def test_ten_thousand_operators():
    start = time.process_time()
    compiled = run_both(chain(OPERATORS, lambda y: y + 1.0, lambda y: y * 0.5, relay.nn.relu,
                              lambda y: relay.maximum(y, 0.25)))
    seconds = time.process_time() - start
    print(f"{OPERATORS} operators: {seconds:.1f} s, {compiled.kernel_calls} kernel calls of "
          f"{len(compiled.kernels)} functions")
    assert seconds < MOST_SECONDS
    assert len(compiled.kernels) < 20 < compiled.kernel_calls


@pytest.mark.parametrize("count", [63, 200])
def test_each_value_used_twice(count):
    """x * x - 2 and the like: text that doubles with each step if values are not kept."""
    compiled = run_both(chain(count, lambda y: relay.minimum(y * y, relay.subtract(2.0, y)),
                              lambda y: relay.maximum(y, -3.0) + y * 0.0))
    assert max(len(kernel.text) for kernel in compiled.kernels) < 200_000


def test_values_kept_in_a_row_of_kept_values():
    """A relu of a difference reads it twice: each kept value is computed inside the same loop."""
    compiled = run_both(chain(45, lambda y: y * 0.5, lambda y: relay.nn.relu(y - 0.25),
                              lambda y: y + 1.0))
    assert compiled.kernel_calls == 1
