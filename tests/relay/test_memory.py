"""Memory of `main`: the arena is tight, and the checker refuses every plan that would corrupt."""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from minitvm.errors import LoweringError, VerifyError
from minitvm.origin import origin
from minitvm.relay.arena import Lifetime, lower_bound, place
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import (
    Constant,
    Function,
    If,
    Module,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Var,
)
from minitvm.relay.memory import check_plan, plan_memory
from minitvm.relay.memory_check import Arena
from minitvm.relay.memory_plan import ALIGNMENT, MemoryPlan, size_bytes
from minitvm.relay.op import lookup
from minitvm.relay.passes.fuse_ops import fuse

KINDS = ["one", "two", "reshape", "alias", "split", "tuple"]


class Program:
    """A `main` being written: each step adds a call, so that plans have something to plan."""

    def __init__(self, inputs=1, elements=100):
        self.builder = BlockBuilder()
        self.params = tuple(
            Var(f"x{i}", TensorType((elements,), "float32")) for i in range(inputs)
        )

    def emit(self, name, *arguments, **attributes):
        return self.bind(lookup(name)(**attributes), *arguments)

    def bind(self, value, *arguments):
        place = origin(f"n{len(self.builder.bindings)}")
        return self.builder.emit(value, *arguments, origin=place)

    def module(self, *results):
        result = results[0] if len(results) == 1 else self.bind(Tuple(results))
        body = self.builder.finish(result)
        return Module({"main": Function(self.params, body, result.type)})

    def fused(self, *results):
        """With one kernel for each operator."""
        return fuse(self.module(*results), 0)


def planned(module):
    plan = plan_memory(module)
    check_plan(module, plan)
    return plan


def variables(module):
    return [binding.var for binding in module.main.body.bindings]


# --- what lies where ----------------------------------------------------------------------------


def test_a_chain_needs_two_tensors():
    p = Program()
    x = p.params[0]
    for _ in range(6):
        x = p.emit("abs", x)
    plan = planned(p.fused(x))
    assert plan.workspace_bytes == plan.lower_bound_bytes == 2 * 448
    assert plan.outputs == {x: 0}
    assert not plan.copies


def test_offsets_are_aligned_and_inputs_and_outputs_outside():
    p = Program(elements=3)
    y = p.emit("abs", p.params[0])
    z = p.emit("negative", y)
    plan = planned(p.fused(z))
    assert set(plan.offsets) == {y}
    assert plan.workspace_bytes == ALIGNMENT


def test_an_output_that_is_an_input_or_a_constant_is_copied():
    p = Program()
    x, c = p.params[0], Constant(np.zeros(5, "float32"))
    plan = planned(p.fused(x, c))
    assert plan.copies == ((x, 0), (c, 1))


def test_an_output_returned_twice_is_written_once_and_copied():
    p = Program()
    y = p.emit("abs", p.params[0])
    plan = planned(p.fused(y, y))
    assert plan.outputs == {y: 0} and plan.copies == ((y, 1),)


def test_a_reshape_is_a_view_that_keeps_its_source_alive():
    p = Program()
    y = p.emit("abs", p.params[0])
    z = p.emit("reshape", y, newshape=(10, 10))
    for _ in range(3):
        p.emit("negative", p.params[0])
    w = p.emit("nn.relu", z)
    plan = planned(p.fused(w))
    assert plan.views == {z: y}
    assert plan.offsets[z] == plan.offsets[y]


def test_a_view_of_an_input_lies_in_the_input():
    p = Program()
    z = p.emit("reshape", p.params[0], newshape=(10, 10))
    plan = planned(p.fused(p.emit("abs", z)))
    assert plan.root(z) is p.params[0] and not plan.offsets


def test_a_returned_view_is_written_by_the_kernel_of_its_source():
    p = Program()
    y = p.emit("abs", p.params[0])
    z = p.emit("reshape", y, newshape=(10, 10))
    plan = planned(p.fused(z))
    assert plan.outputs == {y: 0} and plan.workspace_bytes == 0 and not plan.copies


def test_a_view_returned_beside_its_source_is_copied():
    p = Program()
    y = p.emit("abs", p.params[0])
    z = p.emit("reshape", y, newshape=(10, 10))
    plan = planned(p.fused(y, z))
    assert plan.outputs == {y: 0} and plan.copies == ((y, 1),)


def test_fields_of_a_tuple_live_each_on_its_own():
    p = Program()
    parts = p.emit("split", p.params[0], indices_or_sections=4)
    first = p.bind(TupleGetItem(parts, 0))
    second = p.bind(TupleGetItem(parts, 1))
    y = p.emit("abs", first)
    plan = planned(p.fused(p.emit("add", y, p.emit("negative", second))))
    assert len(plan.fields[parts]) == 4 and len(plan.results(parts)) == 4
    assert plan.root(first) is plan.fields[parts][0]
    assert len({plan.offsets[field] for field in plan.fields[parts]}) == 4


def test_a_returned_tuple_of_a_kernel_goes_to_the_outputs():
    p = Program()
    parts = p.emit("split", p.params[0], indices_or_sections=2)
    plan = planned(p.fused(parts))
    assert [plan.outputs[field] for field in plan.fields[parts]] == [0, 1]


def test_empty_tensors_take_no_room():
    p = Program(elements=0)
    plan = planned(p.fused(p.emit("abs", p.emit("negative", p.params[0]))))
    assert plan.workspace_bytes == 0


def test_both_branches_write_to_the_same_place():
    p = Program()
    condition = Var("c", TensorType((), "bool"))
    blocks = []
    for name in ("abs", "negative"):
        inner = BlockBuilder(parent=p.builder)
        blocks.append(inner.finish(inner.emit(lookup(name)(), p.params[0], origin=origin(name))))
    y = p.bind(If(condition, *blocks))
    p.params = (*p.params, condition)
    module = p.fused(p.emit("exp", y))
    plan = planned(module)
    assert plan.branch_copies[y] == ((), ())
    assert {plan.root(block.result) for block in blocks} == {y}


def test_a_branch_that_computes_nothing_copies():
    p = Program()
    condition = Var("c", TensorType((), "bool"))
    blocks = [BlockBuilder(parent=p.builder).finish(p.params[0]) for _ in range(2)]
    y = p.bind(If(condition, *blocks))
    p.params = (*p.params, condition)
    plan = planned(p.fused(y))
    assert plan.branch_copies[y] == (((p.params[0], y),), ((p.params[0], y),))
    assert plan.outputs == {y: 0} and plan.workspace_bytes == 0


def test_functions_inside_are_refused():
    p = Program()
    inner = Function((), BlockBuilder().finish(Constant(np.zeros(1, "float32"))),
                     TensorType((1,), "float32"))
    p.bind(inner)
    with pytest.raises(LoweringError, match=r"is a Function.*LambdaLift"):
        plan_memory(p.module(p.params[0]))


def test_tuples_as_inputs_are_refused():
    x = Var("pair", TupleType((TensorType((1,), "float32"),)))
    module = Module({"main": Function((x,), BlockBuilder().finish(x), x.type)})
    with pytest.raises(LoweringError, match="'pair' must be a tensor"):
        plan_memory(module)


# --- random programs ----------------------------------------------------------------------------


def random_program(seed: int, steps: int, fused: bool = True) -> Module:
    """A program with sizes from a few bytes to a few thousand, views and tuples; if it is not
    fused, aliases and fields of tuples too."""
    random = Random(seed)
    p = Program(inputs=2, elements=random.choice([4, 60, 1000]))
    pool = list(p.params)
    for _ in range(steps):
        x = random.choice(pool[-random.choice([1, 2, 8]):])
        same = [v for v in pool if v.type == x.type]
        kind = random.choice(KINDS)
        if kind == "one":
            pool.append(p.emit("abs", x))
        elif kind == "two":
            pool.append(p.emit("add", x, random.choice(same)))
        elif kind == "reshape":
            pool.append(p.emit("reshape", x, newshape=(-1,) if x.type.rank > 1 else (-1, 1)))
        elif kind == "alias":
            pool.append(p.bind(x))
        elif kind == "split" and x.type.shape[0] % 2 == 0 and x.type.shape[0] > 2:
            parts = p.emit("split", x, indices_or_sections=2)
            pool += [p.bind(TupleGetItem(parts, i)) for i in range(random.choice([1, 2]))]
        elif kind == "tuple":
            both = p.bind(Tuple((x, random.choice(pool))))
            pool.append(p.bind(TupleGetItem(both, random.choice([0, 1]))))
        else:
            pool.append(p.emit("concatenate", x, x))
    results = [random.choice(pool) for _ in range(random.randint(1, 4))]
    return p.fused(*results) if fused else p.module(*results)


@given(seed=st.integers(0, 10_000), steps=st.integers(1, 40), fused=st.booleans())
def test_plans_of_random_programs_pass_the_checker(seed, steps, fused):
    plan = planned(random_program(seed, steps, fused))
    assert plan.workspace_bytes >= plan.lower_bound_bytes


@given(seed=st.integers(0, 10_000), data=st.data())
def test_moving_a_tensor_onto_a_live_one_is_refused(seed, data):
    module = random_program(seed, 30)
    plan = planned(module)
    lifetimes = brute_force_lifetimes(module, plan)
    clashes = [
        (a, b)
        for a in lifetimes for b in lifetimes
        if a is not b and size_bytes(a) and size_bytes(b) and lifetimes[a] & lifetimes[b]
    ]
    if not clashes:
        return
    moved, onto = data.draw(st.sampled_from(clashes))
    roots = {var: plan.root(var) for var in plan.offsets}
    offsets = {
        var: plan.offsets[onto] if roots[var] is moved else offset
        for var, offset in plan.offsets.items()
    }
    bad = replace(plan, offsets=offsets, workspace_bytes=plan.workspace_bytes + 10**6)
    with pytest.raises(VerifyError):
        check_plan(module, bad)


def brute_force_lifetimes(module: Module, plan: MemoryPlan) -> dict[Var, set[int]]:
    """The steps at which each tensor of the arena must be there, by the definition."""
    bindings = module.main.body.bindings
    steps: dict[Var, set[int]] = {}

    def leaves(atom):
        if atom in plan.fields:
            return [leaf for part in plan.fields[atom] for leaf in leaves(part)]
        return [plan.root(atom)]

    def is_kernel(binding):
        return hasattr(binding.value, "callee") and binding.var not in plan.views

    for step, binding in enumerate(bindings):
        if is_kernel(binding):
            for leaf in leaves(binding.var):
                steps[leaf] = {step}
            for argument in binding.value.arguments:
                for leaf in leaves(argument):
                    if leaf in steps:
                        steps[leaf].update(range(min(steps[leaf]), step + 1))
    return {var: at for var, at in steps.items() if var in plan.offsets}


def two_live_tensors():
    p = Program()
    y, z = p.emit("abs", p.params[0]), p.emit("negative", p.params[0])
    return p.fused(p.emit("add", y, z)), y, z


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda plan, y, z: {"offsets": {**plan.offsets, y: 32}}, "misaligned"),
        (lambda plan, y, z: {"offsets": {**plan.offsets, y: 64 * 100}}, "outside the workspace"),
        (lambda plan, y, z: {"offsets": {**plan.offsets, y: plan.offsets[z]}}, "something else"),
        (lambda plan, y, z: {"offsets": {z: plan.offsets[z]}}, "has no memory"),
        (lambda plan, y, z: {"outputs": {**plan.outputs, y: 0}}, "output 0|something else"),
        (lambda plan, y, z: {"copies": ((y, 0),)}, "output 0 of main"),
        (lambda plan, y, z: {"views": {y: z}}, "something else"),
    ],
)
def test_checker_refuses(change, message):
    module, y, z = two_live_tensors()
    plan = planned(module)
    with pytest.raises(VerifyError, match=message):
        check_plan(module, replace(plan, **change(plan, y, z)))


def test_checker_refuses_a_missing_output():
    p = Program()
    module = p.fused(p.params[0])
    plan = planned(module)
    with pytest.raises(VerifyError, match="output 0"):
        check_plan(module, replace(plan, copies=()))


# --- the arena ----------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 6), st.integers(0, 20)), max_size=40))
def test_blocks_that_live_together_do_not_overlap(items):
    lifetimes = [Lifetime(start, start + length, 64 * size) for start, length, size in items]
    placement = place(lifetimes)
    for i, a in enumerate(lifetimes):
        assert placement.offsets[i] % 64 == 0
        assert placement.offsets[i] + a.size <= placement.size
        for j, b in enumerate(lifetimes[:i]):
            together = a.start <= b.end and b.start <= a.end
            apart = (placement.offsets[i] + a.size <= placement.offsets[j]
                     or placement.offsets[j] + b.size <= placement.offsets[i])
            assert not together or apart or not a.size or not b.size
    live = [sum(b.size for b in lifetimes if b.start <= t <= b.end) for t in range(40)]
    most = max(live)
    assert lower_bound(lifetimes) == most <= placement.size


@pytest.mark.parametrize("seed", range(20))
def test_blocks_in_a_crowded_arena_do_not_overlap(seed):
    random = Random(seed)
    starts = [random.randint(0, 20) for _ in range(40)]
    lifetimes = [Lifetime(t, t + random.randint(0, 8), 64 * random.randint(1, 30)) for t in starts]
    offsets = place(lifetimes).offsets
    for (a, low), (b, other) in combinations(zip(lifetimes, offsets, strict=True), 2):
        together = a.start <= b.end and b.start <= a.end
        assert not together or low + a.size <= other or other + b.size <= low


@pytest.mark.parametrize("low", [0, 1, 64, 127])
def test_a_write_destroys_what_it_overlaps_in_part(low):
    x, y = Var("x", TensorType((), "int8")), Var("y", TensorType((), "int8"))
    arena = Arena()
    arena.write(0, 128, x)
    arena.write(128, 256, x)
    assert arena.holds(0, 128, x)
    arena.write(low, low + 65, y)
    assert not arena.holds(0, 128, x) and arena.holds(low, low + 65, y)
    assert arena.holds(128, 256, x) == (low < 64)


def inverted_residuals() -> list[Lifetime]:
    """The activations of MobileNetV2 after fusion: (channels out, stride, repeats, expansion)."""
    lifetimes, size, channels, step = [], 112, 32, 1

    def tensor(start, end, count, extent):
        lifetimes.append(Lifetime(start, end, -(-count * extent * extent * 4 // 64) * 64))

    tensor(0, 1, channels, size)
    for out, stride, repeats, expansion in [(16, 1, 1, 1), (24, 2, 2, 6), (32, 2, 3, 6),
                                            (64, 2, 4, 6), (96, 1, 3, 6), (160, 2, 3, 6),
                                            (320, 1, 1, 6)]:
        for index in range(repeats):
            wide = channels * expansion
            smaller = size // (stride if index == 0 else 1)
            if expansion > 1:
                tensor(step, step + 1, wide, size)
                step += 1
            tensor(step, step + 1, wide, smaller)
            residual = 3 if index + 1 < repeats else 1
            tensor(step + 1, step + 1 + residual, out, smaller)
            step, size, channels = step + 2, smaller, out
    return lifetimes


def test_a_network_of_inverted_residuals_is_planned_within_five_percent():
    lifetimes = inverted_residuals()
    start = time.process_time()
    placement = place(lifetimes)
    assert time.process_time() - start < 2
    assert placement.size <= 1.05 * lower_bound(lifetimes)


@pytest.mark.parametrize("kind", ["chain", "all live", "random"])
def test_ten_thousand_tensors_take_seconds(kind):
    random = Random(0)
    count = 10_000
    length = {"chain": lambda i: random.choice([1, 1, 2, 3]), "all live": lambda i: count - i,
              "random": lambda i: int(random.expovariate(1 / 20))}[kind]
    lifetimes = [Lifetime(i, i + length(i), 64 * random.randint(1, 10**5)) for i in range(count)]
    start = time.process_time()
    placement = place(lifetimes)
    assert time.process_time() - start < 10
    assert placement.size <= 1.1 * lower_bound(lifetimes)


def test_planning_is_deterministic():
    module = random_program(3, 40)
    first, second = plan_memory(module), plan_memory(module)
    assert list(first.offsets.values()) == list(second.offsets.values())
