"""One convolution at every level: relay, te, its schedule, three forms of tir, LLVM IR, assembly.

    python examples/02_conv2d_at_every_level.py ['llvm -mcpu=x86-64-v3']

Each level is printed as the compiler has it, cut where it repeats itself.
"""

from __future__ import annotations

import re
import sys

import numpy as np

import minitvm
from minitvm import relay, te, tir
from minitvm.relay.lower import canonical, schedule_function, to_te
from minitvm.testing.assembly import innermost_loops

LINES, COLUMNS = 24, 140


def show(title: str, text: str) -> None:
    """Prints the first lines of a text, and of each line as much as fits."""
    rows = text.rstrip().splitlines()
    print(f"\n=== {title} {'=' * (95 - len(title))}\n")
    for row in rows[:LINES]:
        print(row if len(row) <= COLUMNS else f"{row[:COLUMNS - 4]} ...")
    if len(rows) > LINES:
        print(f"... and {len(rows) - LINES} lines more")


class AfterEachPass(dict):
    """An instrument that keeps what each pass gives."""

    def run_before_pass(self, name, before) -> None: ...

    def run_after_pass(self, name, before, after) -> None:
        self[name] = after


def te_text(graph) -> str:
    """The computations behind some tensors as formulas, inputs first."""
    lines = []
    for stage in te.create_schedule(list(graph.outputs)).stages:
        if not stage.is_input:
            axes = ", ".join(axis.name for axis in stage.op.axis)
            lines.append(f"{stage.name}[{axes}] = {tir.print_expr(stage.op.bodies[0])}")
    return "\n".join(lines)


def hottest_block(llvm: str) -> str:
    """The basic block with the most products, without what it takes over from others."""
    block = max(llvm.split("\n\n"), key=lambda block: block.count(" fmul "))
    return re.sub(r", !dbg !\d+|.* = phi .*\n", "", block)


def main() -> None:
    target = minitvm.Target(sys.argv[1]) if len(sys.argv) > 1 else minitvm.Target.host()
    random = np.random.default_rng(0)
    weight = random.random((16, 32, 3, 3), "float32") - 0.5
    x = relay.var("x", shape=(1, 32, 14, 14))
    y = relay.nn.relu(relay.nn.conv2d(x, relay.const(weight), padding=(1, 1)))
    module = relay.Module.from_expr(relay.Function([x], y))
    show("relay, as written", str(module))

    compiled = minitvm.compile(module, target=target)
    show("relay, optimised: channels packed, convolution and relu one kernel", str(compiled.relay))

    name = next(name for name in compiled.relay.functions if "conv2d" in name)
    graph = to_te(canonical(compiled.relay[name]))
    show("te: what the kernel computes", te_text(graph))
    schedule = schedule_function(graph, target)
    for step in (0, len(schedule.steps) // 2, len(schedule.steps)):
        show(f"te: how, after {step} of {len(schedule.steps)} steps", schedule.show(step))

    nested = minitvm.lower(schedule, [*graph.inputs, *graph.outputs], name="conv2d")
    show("tir, nested: a loop nest over tensors", str(nested))
    passes = AfterEachPass()
    with minitvm.PassContext(instruments=[passes]):
        built = minitvm.build(nested, target=target)
    show("tir, flat: memory has one dimension", str(passes["FlattenBuffers"]))
    show("tir, for the machine: vectors", str(built.machine_func))
    show("LLVM IR: the block with most products", hottest_block(built.get_source("ll")))
    loops = [loop for loop in innermost_loops(built.get_source("asm")) if loop.multiplies_and_adds]
    hottest = max(loops, key=lambda loop: len(loop.instructions))
    show("assembly: the hottest loop", "\n".join(hottest.instructions))

    if target.is_host():
        image = random.random((1, 32, 14, 14), "float32") - 0.5
        got, expected = compiled.run({"x": image})["output0"], relay.run(module, {"x": image})[0]
        minitvm.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
        show("the result, which agrees with the interpreter's", str(got[0, 0, :3, :6]))


if __name__ == "__main__":
    main()
