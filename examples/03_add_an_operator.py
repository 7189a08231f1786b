"""An operator of one's own, in a file of one's own: a linear layer and PReLU in one kernel.

    python examples/03_add_an_operator.py

The class below is all that the compiler needs: the type rule, the meaning in numpy, the computation
in te and its schedule. Importers, passes and code generation learn of it by `@register`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import minitvm
from minitvm import relay, te
from minitvm.relay import Op, Pattern, TensorType, register
from minitvm.te.recipes.inline import inline_injective

ROWS = 4
"""Rows of the register tile; it is two vectors wide."""


@register
@dataclass(frozen=True, slots=True)
class LinearPRelu(Op):
    """y = x wT + b, and then y where that is positive, slope * y elsewhere. x is [M, K], w [N, K].

    `attach`: compute the product tile by tile, where PReLU needs it, instead of whole.
    """

    name = "my.linear_prelu"
    pattern = Pattern.OUT_ELEMWISE_FUSABLE
    arity = 4

    attach: bool = True

    def infer(self, x, weight, bias, slope) -> TensorType:
        types = (x, weight, bias, slope)
        if x.rank != 2 or weight.rank != 2 or x.shape[1] != weight.shape[1]:
            raise self.fail(types, "x must be [M, K] and the weight [N, K]")
        if bias.shape != weight.shape[:1] or slope.shape != weight.shape[:1]:
            raise self.fail(types, "bias and slope must be [N], a number for each column")
        return TensorType((x.shape[0], weight.shape[0]), x.dtype)

    def evaluate(self, x, weight, bias, slope) -> np.ndarray:
        y = x @ weight.T + bias
        return np.where(y > 0, y, slope * y)

    def compute(self, x, weight, bias, slope) -> te.Tensor:
        (rows, depth), (columns, _) = x.extents(), weight.extents()
        k = te.reduce_axis((0, depth), "k")
        shape = (rows, columns)
        across = te.compute((depth, columns), lambda i, j: weight[j, i], name="across")
        linear = te.compute(shape, lambda i, j: te.sum(x[i, k] * across[k, j], axis=k), "linear")
        biased = te.compute(shape, lambda i, j: linear[i, j] + bias[j], name="biased")
        return te.compute(shape, lambda i, j: te.select(
            biased[i, j] > 0.0, biased[i, j], slope[j] * biased[i, j]), name="prelu")

    def schedule(self, s, anchor, output, target) -> None:
        biased = anchor.op.inputs[0]
        linear = biased.op.inputs[0]
        s[biased].compute_inline()  # its value is put in wherever PReLU reads it
        inline_injective(s, [output], keep=[biased.op, linear.op.inputs[1].op])  # what was fused
        lanes = target.lanes(output.dtype)
        _, j, _, ji = s[output].tile(*s[output].op.axis, ROWS, 2 * lanes)
        s[output].vectorize(s[output].split(ji, lanes)[1])
        m, n = s[linear].op.axis
        s[linear].reorder(s[linear].op.reduce_axis[0], m, n)
        if self.attach:
            s[linear].compute_at(s[output], j)  # a tile of sums never leaves the registers
            s[linear].unroll(m)
        nv, lane = s[linear].split(n, lanes)
        s[linear].vectorize(lane)
        if self.attach:
            s[linear].unroll(nv)


def main() -> None:
    random = np.random.default_rng(0)
    shapes = {"x": (64, 256), "weight": (128, 256), "bias": (128,), "slope": (128,)}
    inputs = {key: random.standard_normal(shape).astype("float32") for key, shape in shapes.items()}
    for attach in (False, True):
        variables = [relay.var(key, shape=shape) for key, shape in shapes.items()]
        layer = relay.my.linear_prelu(*variables, attach=attach)
        compiled = minitvm.compile(relay.Module.from_expr(relay.Function(variables, layer * 0.5)))
        expected = LinearPRelu().evaluate(*inputs.values()) * np.float32(0.5)
        got = compiled.run(inputs)["output0"]
        minitvm.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
        module = minitvm.runtime.GraphModule(compiled.runtime)
        milliseconds = 1e3 * module.benchmark(repeat=5, number=20, **inputs).min
        print(f"{'attached by compute_at' if attach else 'computed whole'}: {milliseconds:.3f} ms, "
              f"{compiled.kernel_calls} kernel, {', '.join(k.name for k in compiled.kernels)}")


if __name__ == "__main__":
    main()
