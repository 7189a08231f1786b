"""Watching passes, and a fusion rule of one's own.

    python examples/05_pass_instruments.py

An instrument sees the module before and after every pass: this one takes the time and counts how
many operators a pass adds or takes away. The fusion rule is a pattern: what it matches becomes one
kernel, whatever the fusion pass would have done. Here it keeps the squeeze-and-excite gate of a
small network together, which has two dense layers, and so would be several kernels.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np

import minitvm
from minitvm import relay
from minitvm.relay.ir import Call, Module, walk_bindings
from minitvm.relay.op import Op
from minitvm.relay.pattern import FusionRule, is_constant, is_op, wildcard
from minitvm.transform import PassContext


def operators(module: Module) -> int:
    """The calls of operators in all functions of a module."""
    return sum(isinstance(binding.value, Call) and isinstance(binding.value.callee, Op)
               for function in module.functions.values()
               for binding in walk_bindings(function.body))


@dataclass
class Watch:
    """Times each pass over relay, and notes what it did to the number of operators."""

    rows: list[tuple[str, float, int, int]] = field(default_factory=list)
    started: float = 0.0

    def run_before_pass(self, name: str, before) -> None:
        self.started = time.perf_counter()

    def run_after_pass(self, name: str, before, after) -> None:
        milliseconds = 1e3 * (time.perf_counter() - self.started)
        if isinstance(after, Module):
            self.rows.append((name, milliseconds, operators(before), operators(after)))

    def table(self) -> str:
        rows = [f"{ms:9.2f}  {old:3} -> {new:3}  {name}" for name, ms, old, new in self.rows]
        return "\n".join(["       ms   operators  pass", *rows])


def gated_network() -> Module:
    """A convolution, and its channels weighted by what two dense layers say of their means."""
    random = np.random.default_rng(0)

    def weight(*shape: int) -> relay.Expr:
        return relay.const(random.standard_normal(shape).astype("float32") / shape[-1])

    x = relay.var("x", shape=(1, 8, 16, 16))
    y = relay.nn.conv2d(x, weight(16, 8, 3, 3), padding=(1, 1))
    squeezed = relay.nn.relu(relay.nn.dense(relay.mean(y, axis=(2, 3)), weight(4, 16)))
    gate = relay.sigmoid(relay.nn.dense(squeezed, weight(16, 4)))
    return Module.from_expr(relay.Function([x], y * relay.reshape(gate, newshape=(1, 16, 1, 1))))


def gate_rule() -> FusionRule:
    """dense, relu, dense, sigmoid: one kernel."""
    squeezed = is_op("nn.relu")(is_op("nn.dense")(wildcard(), is_constant()))
    return FusionRule(is_op("sigmoid")(is_op("nn.dense")(squeezed, is_constant())), "gate")


def main() -> None:
    module, results = gated_network(), []
    data = {"x": np.random.default_rng(1).standard_normal((1, 8, 16, 16)).astype("float32")}
    for title, rules in (("as usual", []), ("with the rule", [gate_rule()])):
        watch = Watch()
        with PassContext(instruments=[watch], config={"relay.fusion_rules": rules}):
            compiled = minitvm.compile(module)
        results.append(compiled.run(data)["output0"])
        print(f"{title}: {compiled.kernel_calls} kernel calls\n\n{watch.table()}\n")
        print("\n".join(name for name in compiled.relay.functions if name != "main"), end="\n\n")
    minitvm.testing.assert_allclose(*results, rtol=1e-5, atol=1e-5)


if __name__ == "__main__":
    main()
