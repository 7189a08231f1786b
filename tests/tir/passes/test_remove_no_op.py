"""What has no effect goes, and nothing else."""

from __future__ import annotations

import pytest

from minitvm.tir.passes import remove_no_op
from minitvm.tir.text import parse_func, print_func
from minitvm.tir.verify import check_origins_kept, verify

HEAD = 'def f(A: Buffer((8,), "float32"), n: int32):\n'


def removed(text: str) -> str:
    lines = text.strip("\n").split("\n")
    func = parse_func(HEAD + "\n".join("    " + line for line in lines) + "\n")
    result = remove_no_op(func)
    verify(result)
    check_origins_kept(func, result)
    body = print_func(result).split("\n", 1)[1]
    return "\n".join(line[4:] for line in body.rstrip("\n").split("\n"))


@pytest.mark.parametrize(("before", "after"), [
    ("A[n] = A[n]\nA[0] = 1.0", "A[0] = 1.0"),
    ("for i in range(n):\n    A[i] = A[i]\nA[0] = 1.0", "A[0] = 1.0"),
    ("x: float32 = A[0]\ny: float32 = x + 1.0\nA[0] = 1.0", "A[0] = 1.0"),
    ("if A[0] > 1.0:\n    A[1] = A[1]\nA[0] = 1.0", "A[0] = 1.0"),
    ("if n > 1:\n    A[1] = 1.0\nelse:\n    A[0] = A[0]", "if n > 1:\n    A[1] = 1.0"),
    ("s = allocate((4,), \"float32\")\ns[0] = A[0]\ns[1] = s[0]\nA[0] = 1.0", "A[0] = 1.0"),
    ("s = allocate((4,), \"float32\")\nt = allocate((4,), \"float32\")\n"
     "x: float32 = A[0]\ns[0] = x\ny: float32 = s[0]\nt[0] = y\nA[0] = 1.0", "A[0] = 1.0"),
    ("s = allocate((4,), \"float32\")\nt = allocate((4,), \"float32\")\n"
     "s[0] = t[0]\nt[0] = s[0]\nA[0] = 1.0", "A[0] = 1.0"),
    ("A[0] = 1.0\nfor i in range(3, 3):\n    x: float32 = A[i]\n    A[i] = x", "A[0] = 1.0"),
])
def test_what_goes(before: str, after: str) -> None:
    assert removed(before) == after


@pytest.mark.parametrize("text", [
    "A[n] = A[n + 1]",
    "s = allocate((4,), \"float32\")\ns[0] = A[0]\nA[1] = s[0]",
    "s = allocate((4,), \"float32\")\ns[0] = A[0]\nt = allocate((1,), \"float32\")\n"
    "t[0] = s[0]\nA[1] = t[0]",
    "s = allocate((4,), \"float32\")\ns[0] = A[0]\nif s[0] > 1.0:\n    A[1] = 0.0",
    "while A[0] > 0.0:\n    pass",
    "s = allocate((4,), \"float32\")\ninvoke(g, address(s, 0))",
    "for i in range(4):\n    evaluate(prefetch(address(A, i + 100)))",
])
def test_what_stays(text: str) -> None:
    assert removed(text) == text
