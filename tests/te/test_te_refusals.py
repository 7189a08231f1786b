"""Primitives refuse what would be wrong: stage, reason, legal choices, loops so far; and change
nothing."""

import pytest

from minitvm import te
from minitvm.errors import LoweringError, ScheduleError
from minitvm.te import steps
from minitvm.tir import ir
from minitvm.tir.text import print_func
from minitvm.tir.walk import walk_statements


class Example:
    """A (4, 8) -> C (row sums of products) -> D -> E, which reads C and D."""

    def __init__(self):
        self.A = te.placeholder((4, 8), name="A")
        self.B = te.placeholder((8, 6), name="B")
        self.k = te.reduce_axis((0, 8), name="k")
        self.C = te.compute(
            (4, 6), lambda i, j: te.sum(self.A[i, self.k] * self.B[self.k, j], axis=self.k),
            name="C")
        self.D = te.compute((4, 6), lambda y, x: self.C[y, x] + 1.0, name="D")
        self.E = te.compute((4, 6), lambda p, q: self.C[p, q] * self.D[p, q], name="E")
        self.s = te.create_schedule(self.E)
        self.args = [self.A, self.B, self.E]

    def text(self):
        return print_func(te.lower(self.s, self.args))


REFUSALS = {
    "unknown axis": (
        lambda e: e.s["C"].split("z", factor=2), ["stage C", "no axis named 'z'", "i, j, k"]),
    "split axis used again": (
        lambda e: [e.s["C"].split("i", 2), e.s["C"].unroll("i")],
        ["unroll(i) of stage C", "it was split or fused", "i.outer, i.inner, j, k"]),
    "axis of another stage": (
        lambda e: e.s[e.D].split(e.k, 2), ["stage D", "k belongs to another stage", "y, x"]),
    "factor of zero": (lambda e: e.s["C"].split("i", 0), ["0 is not a positive integer"]),
    "factor and parts": (
        lambda e: e.s["C"].split("i", 2, 2), ["a factor or a number of parts, one of the two"]),
    "neither factor nor parts": (
        lambda e: e.s["C"].split("i"), ["a factor or a number of parts, one of the two"]),
    "fuse apart": (
        lambda e: e.s["C"].fuse("i", "k"), ["not stand directly inside one another", "i, j, k"]),
    "fuse backwards": (
        lambda e: e.s["C"].fuse("j", "i"), ["not stand directly inside one another"]),
    "fuse kinds": (
        lambda e: e.s["C"].fuse("j", "k"), ["can't be one loop", "k (reduce)"]),
    "reorder twice": (lambda e: e.s["C"].reorder("i", "i"), ["named twice", "i, j, k"]),
    "vectorize outer": (
        lambda e: e.s["D"].vectorize("y"), ["only the innermost loop", "Legal choices: x."]),
    "vectorize reduction": (
        lambda e: e.s["C"].vectorize("k"), ["lanes of a vector can't all add"]),
    "reorder vectorized": (
        lambda e: [e.s["D"].vectorize("x"), e.s["D"].reorder("x", "y")],
        ["x is vectorized and must stay innermost"]),
    "parallel reduction": (lambda e: e.s["C"].parallel("k"), ["race", "Legal choices: i, j."]),
    "parallel twice": (
        lambda e: [e.s["D"].parallel("y"), e.s["D"].parallel("x")],
        ["another loop of the stage is parallel"]),
    "annotated twice": (
        lambda e: [e.s["D"].unroll("y"), e.s["D"].parallel("y")], ["already unrolled"]),
    "split annotated": (
        lambda e: [e.s["D"].unroll("y"), e.s["D"].split("y", 2)], ["already unrolled"]),
    "no such stage": (
        lambda e: e.s.apply(steps.Split("Z", "i", 2)),
        ["of stage Z is refused: there is no such stage", "Legal choices: C, D, E."]),
    "no such stage to cache": (
        lambda e: e.s.apply(steps.CacheRead("Z", 0, "local", ("C",))), ["there is no such stage"]),
    "place that is no loop": (
        lambda e: e.s.apply(steps.ComputeAt("D", "E", "y")),
        ["of stage D is refused: E has no loop y", "(E, p), (E, q)"]),
    "input": (lambda e: e.s.apply(steps.Split("A", "i", 2)), ["A is an input", "C, D, E"]),
    "inline reduction": (
        lambda e: e.s["C"].compute_inline(), ["it is a reduction", "compute_root, compute_at"]),
    "inline output": (lambda e: e.s["E"].compute_inline(), ["it is an output"]),
    "inline has no loops": (
        lambda e: [e.s["D"].compute_inline(), e.s["D"].unroll("x")],
        ["computed inline and has no loops"]),
    "output inside a loop": (
        lambda e: e.s["E"].compute_at(e.s["D"], "y"), ["it is an output"]),
    "place that is no reader": (
        lambda e: e.s["D"].compute_at(e.s["C"], "i"),
        ["C does not read D; its readers are E", "(E, p), (E, q)"]),
    "not all readers there": (
        lambda e: e.s["C"].compute_at(e.s["D"], "y"),
        ["not all of its readers (D, E) are inside that loop", "Legal choices: none."]),
    "at a vectorized loop": (
        lambda e: [e.s["E"].vectorize("q"), e.s["D"].compute_at(e.s["E"], "q")],
        ["that loop is vectorized", "Legal choices: (E, p)."]),
    "vectorize where a stage is computed": (
        lambda e: [e.s["D"].compute_at(e.s["E"], "q"), e.s["E"].vectorize("q")],
        ["D is computed at this axis"]),
    "reader taken away": (
        lambda e: [e.s["D"].compute_at(e.s["E"], "p"), e.s["C"].compute_at(e.s["E"], "p"),
                   e.s["D"].compute_root()],
        ["C is computed in E at p, and its reader D would not be inside", "compute_root C first"]),
    "reorder breaks a place": (
        lambda e: [e.s["D"].compute_at(e.s["E"], "p"), e.s["C"].compute_at(e.s["E"], "p"),
                   e.s["E"].reorder("q", "p"), e.s["D"].compute_at(e.s["E"], "q")],
        ["C is computed in E at p", "its reader D"]),
    "cache after scheduling": (
        lambda e: [e.s["C"].split("i", 2), e.s.cache_write(e.C, "local")],
        ["cache_write comes first"]),
    "cache for a stranger": (
        lambda e: e.s.cache_read(e.A, "local", [e.E]), ["E does not read it", "Legal choices: C."]),
    "cache scope": (
        lambda e: e.s.cache_write(e.C, "shared"), ["'shared' is no scope", "global, local"]),
    "parallel inside a loop": (
        lambda e: [e.s["D"].compute_at(e.s["E"], "p"), e.s["D"].parallel("x")],
        ["computed inside a loop of E"]),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusal(name):
    action, expected = REFUSALS[name]
    example = Example()
    example.s.apply = recording(example)
    with pytest.raises(ScheduleError) as caught:
        action(example)
    message = str(caught.value)
    for part in (*expected, "Legal choices:", "The loops so far:", "for "):
        assert part in message
    assert example.text() == example.before, "a refused step must change nothing"


def recording(example):
    """`apply` that notes what the schedule lowers to before each step."""
    apply = example.s.apply

    def recorded(step):
        example.before = example.text()
        return apply(step)

    example.before = example.text()
    return recorded


def test_inlining_that_would_explode_is_refused():
    x = te.placeholder((8,), name="x")
    tensors = [x]
    for number in range(40):
        tensors.append(te.compute((8,), lambda i, p=tensors[-1]: p[i] * p[i], name=f"t{number}"))
    s = te.create_schedule(tensors[-1])
    refused = []
    for tensor in tensors[1:-1]:
        try:
            s[tensor].compute_inline()
        except ScheduleError as error:
            assert "would grow to" in str(error)
            assert len(str(error)) < 20_000
            refused.append(tensor)
    assert 0 < len(refused) < 10
    func = te.lower(s, [x, tensors[-1]])
    assert sum(1 for _ in walk_statements(func.body)) < 100


def test_inlining_that_gets_too_deep_is_refused():
    x = te.placeholder((8,), name="x")
    tensors = [x]
    for number in range(300):
        tensors.append(te.compute((8,), lambda i, p=tensors[-1]: p[i] + 1.0, name=f"t{number}"))
    s = te.create_schedule(tensors[-1])
    refused = 0
    for tensor in tensors[1:-1]:
        try:
            s[tensor].compute_inline()
        except ScheduleError as error:
            assert "levels deep, more than 256" in str(error)
            refused += 1
    assert refused == 1
    te.lower(s, [x, tensors[-1]])


def test_unknown_stage_names_the_stages():
    example = Example()
    with pytest.raises(ScheduleError, match=r"no stage Z.*A, B, C, D, E"):
        example.s["Z"]


@pytest.mark.parametrize(("pick", "message"), [
    (lambda e: [e.A, e.E], "lack the input B"),
    (lambda e: [e.A, e.B], "lack the output E"),
    (lambda e: [e.A, e.B, e.E, e.E], "E is given twice"),
    (lambda e: [e.A, e.B, e.D, e.E], "D has no memory of its own"),
    (lambda e: [e.A, e.B, te.placeholder((1,), name="Z"), e.E], "Z is no tensor of this schedule"),
])
def test_wrong_arguments(pick, message):
    example = Example()
    example.s[example.D].compute_inline()
    with pytest.raises(LoweringError, match=message):
        te.lower(example.s, pick(example))


def test_an_intermediate_may_be_an_argument():
    example = Example()
    func = te.lower(example.s, [example.A, example.B, example.C, example.E])
    assert [param.name for param in func.params] == ["A", "B", "C", "E"]


def test_half_a_tuple_reduction_is_refused():
    A = te.placeholder((4,), name="A")
    k = te.reduce_axis((0, 4), name="k")
    both = te.comm_reducer(lambda a, b: (a[0] + b[0], a[1] * b[1]),
                           lambda a, b: (ir.convert(0, a), ir.convert(1, b)))
    C = te.compute((1,), lambda i: both((A[k], A[k]), axis=k)[0], name="C")
    with pytest.raises(LoweringError, match="1 of the 2 results"):
        te.lower(te.create_schedule(C), [A, C])


def test_a_refused_cache_read_of_several_readers_leaves_all_as_it_was():
    """Both readers read the copy, which goes again, when the place of `t` is found to be wrong."""
    x = te.placeholder((6, 4), name="x")
    t = te.compute((6, 4), lambda i, j: x[i, j] + 1.0, name="t")
    half = te.compute((6, 4), lambda i, j: t[i, j] * 0.5, name="half")
    total = te.compute((6, 4), lambda i, j: t[i, j] + half[i, j], name="total")
    s = te.create_schedule(total)
    s[half].compute_at(s[total], "i")
    s[t].compute_at(s[total], "i")
    before, text = s.steps, print_func(te.lower(s, [x, total]))
    with pytest.raises(ScheduleError, match=r"its reader t\.local would not be inside"):
        s.cache_read(t, "local", [half, total])
    assert s.steps == before and print_func(te.lower(s, [x, total])) == text
    s[half].compute_inline()
