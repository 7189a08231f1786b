"""The Before and After of each primitive's docstring are what its step does."""

import inspect
import re
import runpy
import textwrap
from pathlib import Path

import pytest

from minitvm import te
from minitvm.te import primitives
from minitvm.te.schedule import Schedule
from minitvm.tir.text import print_func

DOCUMENTED = [function for function in primitives.PRIMITIVES.values()
              if "Before:" in (function.__doc__ or "")]


def vector_program():
    A = te.placeholder((10,), name="A")
    B = te.compute((10,), lambda i: A[i] + 1.0, name="B")
    return {"A": A, "B": B, "s": te.create_schedule(B)}, (A, B)


def matrix_program(c_is_input):
    A = te.placeholder((4, 8), name="A")
    C = te.placeholder((4, 8), name="C") if c_is_input else \
        te.compute((4, 8), lambda y, x: A[y, x] * 2.0, name="C")
    D = te.compute((4, 8), lambda i, j: C[i, j] + 1.0, name="D")
    return {"A": A, "C": C, "D": D, "s": te.create_schedule(D)}, (C if c_is_input else A, D)


def sum_program():
    A = te.placeholder((4, 8), name="A")
    k = te.reduce_axis((0, 8), name="k")
    E = te.compute((4,), lambda i: te.sum(A[i, k], axis=k), name="E")
    return {"A": A, "E": E, "s": te.create_schedule(E)}, (A, E)


def window_program():
    A = te.placeholder((8,), name="A")
    C = te.compute((8,), lambda y: A[y] * 2.0, name="C")
    G = te.compute((6,), lambda i: C[i] + C[i + 1] + C[i + 2], name="G")
    return {"A": A, "C": C, "G": G, "s": te.create_schedule(G)}, (A, G)


def program(after):
    if "G[" in after:
        return window_program()
    if "E[" in after:
        return sum_program()
    return vector_program() if "B[" in after else matrix_program("A[" not in after)


def body_text(schedule: Schedule, args) -> str:
    text = re.sub(r"  #: .*", "", print_func(te.lower(schedule, args)))
    return textwrap.dedent(text.split("\n", 1)[1]).strip()


@pytest.mark.parametrize("function", DOCUMENTED, ids=lambda function: function.__name__)
def test_docstring_says_what_the_step_does(function):
    doc = inspect.getdoc(function)
    step = re.search(r"^Step: (.*)$", doc, re.MULTILINE).group(1)
    before, after = re.search(r"\nBefore:\n(.*)\nAfter:\n(.*)", doc, re.DOTALL).groups()
    names, args = program(before + after)
    schedule = names["s"]
    for given in re.findall(r"^Given: (.*)$", doc, re.MULTILINE):
        eval(given, names)
    steps = len(schedule.steps)
    assert body_text(schedule, args) == textwrap.dedent(before).strip()
    eval(step, names)
    assert len(schedule.steps) == steps + 1
    assert body_text(schedule, args) == textwrap.dedent(after).strip()


def test_every_loop_changing_primitive_is_documented():
    assert {function.__name__ for function in DOCUMENTED} >= {
        "apply_split", "apply_fuse", "apply_reorder", "apply_annotate", "apply_compute_at",
        "apply_compute_inline", "apply_compute_root", "apply_cache_read", "apply_cache_write",
        "apply_pragma", "apply_rfactor", "apply_storage_align", "apply_reorder_storage",
        "apply_rolling_buffer",
    }


def generated_page() -> str:
    path = Path(__file__).parents[2] / "docs" / "generate.py"
    return runpy.run_path(str(path))["primitives_page"]()


def test_the_page_of_primitives_is_current():
    page = Path(__file__).parents[2] / "docs" / "primitives.md"
    assert page.read_text() == generated_page(), "run: python docs/generate.py"


def test_the_page_names_every_primitive():
    page = generated_page()
    for name in ("split", "tile", "fuse", "reorder", "vectorize", "unroll", "parallel", "bind",
                 "pragma", "compute_at", "compute_inline", "compute_root", "set_scope",
                 "storage_align", "reorder_storage", "rolling_buffer", "cache_read", "cache_write",
                 "rfactor", "tensorize"):
        assert re.search(rf"^`s(\[T\])?\.{name}\(.*`: [(\w]", page, re.MULTILINE), name
