"""Random well-typed modules for the tests of passes: small, but with everything that passes meet.

Shared values, dead values, broadcasts, constants (large, small, of one element), convolutions,
reductions, pools, shape changes, concatenations, splits, tuples, aliases, branches and several
outputs. Data are small integers held as floats.
"""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from minitvm.origin import origin
from minitvm.relay import interpret
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import Constant, Function, If, Module, TensorType, Tuple, TupleGetItem, Var
from minitvm.relay.op import lookup

UNARY = ["abs", "negative", "nn.relu", "floor", "copy", "sign"]
BINARY = ["add", "subtract", "multiply", "maximum", "minimum"]


def op(name, *args, **attributes):
    return lookup(name)(*args, **attributes)


def data(shape, seed, dtype="float32"):
    return np.random.default_rng(seed).integers(-3, 4, shape).astype(dtype)


class Graph:
    """A block being drawn: `pool` holds the tensors that may be used."""

    def __init__(self, draw, pool, parent=None, prefix="n"):
        self.draw, self.pool, self.prefix = draw, list(pool), prefix
        self.builder = BlockBuilder(parent=parent)
        self.count = 0

    def choose(self, items):
        return self.draw(st.sampled_from(list(items)))

    def emit(self, value, *arguments):
        self.count += 1
        return self.builder.emit(value, *arguments, origin=origin(f"{self.prefix}{self.count}"))

    def constant(self, shape):
        return Constant(data(shape, self.draw(st.integers(0, 3))))

    def image(self):
        """A tensor of rank 4, not the smallest."""
        images = [v for v in self.pool if v.type.rank == 4 and v.type.elements() > 4]
        return self.choose(images)

    def unary(self):
        return self.emit(op(self.choose(UNARY)), self.choose(self.pool))

    def clip(self):
        low = self.choose([None, -1.0, 0.0, 1.0])
        high = self.choose([None, 0.0, 2.0])
        return self.emit(op("clip", a_min=low, a_max=high), self.choose(self.pool))

    def binary(self):
        x = self.choose(self.pool)
        same = [v for v in self.pool if v.type.shape == x.type.shape]
        channels = (x.type.shape[1], 1, 1) if x.type.rank == 4 else (1,)
        y = self.choose([*same, self.constant(x.type.shape), self.constant(channels),
                         self.constant(()), Constant(np.float32(self.choose([0, -0.0, 1])))])
        pair = (x, y) if self.draw(st.booleans()) else (y, x)
        return self.emit(op(self.choose(BINARY)), *pair)

    def conv(self):
        x = self.image()
        size = self.choose([1, 3])
        channels = x.type.shape[1]
        weight = self.constant((self.choose([channels, 4]), channels, size, size))
        pad = size // 2
        return self.emit(op("nn.conv2d", padding=(pad, pad, pad, pad)), x, weight)

    def pool2d(self):
        return self.emit(op("nn.max_pool2d", pool_size=(3, 3), padding=(1, 1, 1, 1)), self.image())

    def reduce(self):
        keep = self.draw(st.booleans())
        axis = self.choose([(2, 3), (1,)])
        name = self.choose(["sum", "max"])
        return self.emit(op(name, axis=axis, keepdims=keep), self.image())

    def gate(self):
        """A value of shape (n, c, 1, 1) spread over an image."""
        x = self.image()
        small = self.emit(op("max", axis=(2, 3), keepdims=True), x)
        return self.emit(op("multiply"), self.emit(op("nn.relu"), small), x)

    def reshape(self):
        x = self.choose(self.pool)
        return self.emit(op("reshape", newshape=(-1, x.type.shape[-1])), x)

    def expand(self):
        x = self.choose(self.pool)
        wide = self.emit(op("expand_dims", axis=0), x)
        return self.emit(op("squeeze", axis=(0,)), wide)

    def transpose(self):
        return self.emit(op("transpose", axes=self.choose([(0, 1, 3, 2), (0, 2, 3, 1)])),
                         self.image())

    def concatenate(self):
        x = self.image()
        same = [v for v in self.pool if v.type.shape == x.type.shape]
        parts = [x, *(self.choose(same) for _ in range(self.choose([0, 1, 2])))]
        return self.emit(op("concatenate", axis=1), *parts)

    def split(self):
        x = self.image()
        parts = self.emit(op("split", x.type.shape[1], axis=1), x)
        count = len(parts.type.fields)
        return [self.emit(TupleGetItem(parts, self.choose(range(count)))) for _ in range(2)]

    def pair(self):
        x, y = self.choose(self.pool), self.choose(self.pool)
        both = self.emit(Tuple((x, y)))
        return self.emit(TupleGetItem(both, self.choose([0, 1])))

    def folded(self):
        value = self.emit(op("negative"), self.constant((1, 4, 6, 6)))
        return self.emit(op("abs"), value)

    def twice(self):
        x, y = self.choose(self.pool), self.choose(self.pool)
        name = self.choose(UNARY)
        return [self.emit(op(name), x), self.emit(op(name), x), self.emit(op(name), y)]

    def branch(self):
        x = self.choose(self.pool)
        blocks = []
        for side in "te":
            inner = Graph(self.draw, [v for v in self.pool if v.type == x.type], self.builder,
                          f"{self.prefix}{self.count}{side}")
            y = inner.emit(op(self.choose(UNARY)), self.choose(inner.pool))
            y = inner.emit(op("add"), y, x)
            blocks.append(inner.builder.finish(y))
        condition = self.choose([True, False, None])
        if condition is None:
            first = self.choose(self.pool)
            total = self.emit(op("sum", axis=tuple(range(first.type.rank))), first)
            test = self.emit(op("greater"), total, Constant(np.float32(0)))
        else:
            test = Constant(np.array(condition))
        return self.emit(If(test, *blocks))


FLAT_STEPS = ["unary", "unary", "clip", "binary", "binary", "binary", "conv", "pool2d", "reduce",
              "gate", "reshape", "expand", "transpose", "concatenate", "split", "pair", "folded",
              "twice"]
STEPS = [*FLAT_STEPS, "branch"]


@st.composite
def modules(draw, branches=True, most=14):
    """A module whose `main` has one or two inputs and one to three outputs."""
    shape = draw(st.sampled_from([(1, 4, 6, 6), (1, 3, 5, 7)]))
    kind = TensorType(shape, "float32")
    params = tuple(Var(f"x{i}", kind) for i in range(draw(st.integers(1, 2))))
    graph = Graph(draw, params)
    for _ in range(draw(st.integers(1, most))):
        kind = graph.choose(STEPS if branches else FLAT_STEPS)
        made = getattr(graph, kind)()
        graph.pool += made if isinstance(made, list) else [made]
    outputs = [graph.choose(graph.pool[-4:]) for _ in range(draw(st.integers(1, 3)))]
    result = outputs[0] if len(outputs) == 1 else graph.emit(Tuple(tuple(outputs)))
    body = graph.builder.finish(result)
    return Module({"main": Function(params, body, result.type)})


def run(module, seed=0):
    """The outputs of a module on seeded inputs, as a flat list."""
    inputs = [data(p.type.shape, seed + i, p.type.dtype) for i, p in enumerate(module.main.params)]
    result = interpret.Interpreter(module.functions).call(module.main, inputs)
    return flatten(result)


def flatten(result):
    if isinstance(result, tuple):
        return [leaf for part in result for leaf in flatten(part)]
    return [result]


def assert_same(before, after):
    for seed in range(2):
        for old, new in zip(run(before, seed), run(after, seed), strict=True):
            assert old.dtype == new.dtype
            np.testing.assert_array_equal(new, old)


def main(params, body_of):
    """A module from a function that emits into a builder: `body_of(builder, *params) -> atom`."""
    builder = BlockBuilder()
    result = body_of(builder, *params)
    return Module({"main": Function(tuple(params), builder.finish(result), result.type)})


def emitter(builder):
    """`e(op, *atoms)` with an origin for each binding: "n0", "n1", ..."""
    return lambda value, *atoms: builder.emit(
        value, *atoms, origin=origin(f"n{len(builder.bindings)}")
    )
