"""Vectors of float32 for functions made of polynomials: short names, and helper functions.

A helper is a function of the module for one vector width, written where it is called first.
"""

from __future__ import annotations

from collections.abc import Callable

from minitvm import dtypes
from minitvm.codegen.arithmetic import binary, compare
from minitvm.codegen.text import FunctionText, constant, llvm_type, suffix

ROUNDER = 1.5 * 2.0**23
"""Adding it to a float below 2**22 rounds that to an integer, found in the sum's low bits."""


class Float32:
    """Short names for the operations on one float32 vector type."""

    def __init__(self, f: FunctionText, dtype: str) -> None:
        self.f = f
        self.dtype = dtype
        self.integer = dtypes.vector("int32", dtypes.lanes(dtype))
        self.kind, self.integers = llvm_type(dtype), llvm_type(self.integer)
        self.flag = llvm_type(dtypes.vector("bool", dtypes.lanes(dtype)))

    def real(self, value: float) -> str:
        return constant(value, self.dtype)

    def whole(self, value: int) -> str:
        return constant(value, self.integer)

    def apply(self, op: str, a: str, b: str) -> str:
        return binary(self.f, op, self.dtype, a, b)

    def integer_op(self, op: str, a: str, b: int | str) -> str:
        operand = self.whole(b) if isinstance(b, int) else b
        return self.f.pure(f"{op} {self.integers} {a}, {operand}")

    def muladd(self, a: str, b: str, c: str) -> str:
        return self.apply("add", self.apply("mul", a, b), c)

    def polynomial(self, x: str, coefficients: tuple[float, ...]) -> str:
        result = self.real(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            result = self.muladd(result, x, self.real(coefficient))
        return result

    def less(self, a: str, b: str) -> str:
        return compare(self.f, "lt", self.dtype, a, b)

    def choose(self, condition: str, yes: str, no: str) -> str:
        return self.f.pure(f"select {self.flag} {condition}, {self.kind} {yes}, {self.kind} {no}")

    def choose_whole(self, condition: str, yes: str, no: str) -> str:
        """As `choose`, of integers."""
        return self.f.pure(
            f"select {self.flag} {condition}, {self.integers} {yes}, {self.integers} {no}")

    def bits(self, x: str) -> str:
        return self.f.pure(f"bitcast {self.kind} {x} to {self.integers}")

    def from_bits(self, x: str) -> str:
        return self.f.pure(f"bitcast {self.integers} {x} to {self.kind}")

    def size(self, x: str) -> str:
        return self.f.call(f"llvm.fabs.{suffix(self.dtype)}", self.dtype, [(self.dtype, x)])

    def with_sign(self, size: str, sign: str) -> str:
        return self.f.call(f"llvm.copysign.{suffix(self.dtype)}", self.dtype,
                           [(self.dtype, size), (self.dtype, sign)])

    def call(self, name: str, rule: Rule, x: str, rare: bool = False) -> str:
        """The helper `math.name` of x, with the body that the rule writes; see `call_helper`."""
        return call_helper(self.f, name, rule, self.dtype, x, rare)


Rule = Callable[[Float32, str], str]
"""Writes the body of a function of one vector, and gives its result."""


def call_helper(
    f: FunctionText, name: str, rule: Rule, dtype: str, x: str, rare: bool = False
) -> str:
    """Calls a helper, and writes it where this is the first call. It is always inlined, or if it is
    rarely called, never."""
    helper, kind = f"math.{name}.{suffix(dtype)}", llvm_type(dtype)
    if helper not in f.module.helpers:
        f.module.helpers[helper] = ""  # keeps its place before the helpers that it calls itself
        body = FunctionText(f.module)
        result = rule(Float32(body, dtype), "%x")
        body.effect(f"ret {kind} {result}")
        header = f"define internal {kind} @{helper}({kind} %x) #{3 if rare else 2}"
        f.module.helpers[helper] = body.text(header)
    return f.pure(f"call {kind} @{helper}({kind} {x})")
