"""Every rule of `tir.rules` holds for all small integers, and makes expressions lighter."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from minitvm.errors import ParseError
from minitvm.tir import rewriting
from minitvm.tir.rewriting import Name, Node, Number, Pattern, Rule

VALUES = np.arange(-8, 9)
CONDITIONS = np.array([False, True])
FLOATS = np.array([-np.inf, -1.5, -0.0, 0.0, 2.0, np.nan])
MEANING: dict[str, Any] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "floordiv": np.floor_divide,
    "floormod": np.mod, "min": np.minimum, "max": np.maximum, "bitand": np.bitwise_and,
    "bitor": np.bitwise_or, "bitxor": np.bitwise_xor, "shl": np.left_shift,
    "shr": np.right_shift, "eq": np.equal, "ne": np.not_equal, "lt": np.less,
    "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal, "and": np.logical_and,
    "or": np.logical_or, "not": np.logical_not, "select": np.where, "if_then_else": np.where,
}


def names_of(pattern: Pattern) -> dict[str, bool]:
    """The names in a pattern, with whether they are constants."""
    match pattern:
        case Name(name, constant):
            return {name: constant}
        case Node(_, operands):
            return {k: v for operand in operands for k, v in names_of(operand).items()}
        case Number():
            return {}


def meaning(pattern: Pattern, values: dict[str, Any], defined: np.ndarray) -> Any:
    """The value of a pattern; clears `defined` where it divides by zero or shifts too far."""
    match pattern:
        case Name(name, _):
            return values[name]
        case Number(value):
            return value
        case Node(shape, operands):
            arguments = [meaning(operand, values, defined) for operand in operands]
            if shape in ("floordiv", "floormod"):
                defined &= np.asarray(arguments[1] != 0)
                arguments[1] = np.where(arguments[1] == 0, 1, arguments[1])
            if shape in ("shl", "shr"):
                defined &= np.asarray((arguments[1] >= 0) & (arguments[1] < 31))
                arguments[1] = np.clip(arguments[1], 0, 30)
            return MEANING[shape](*arguments)


def assignments(rule: Rule, numbers: np.ndarray, dtype: str) -> Any:
    """Every choice of constants, with all values of the other names as arrays that broadcast."""
    names = names_of(rule.patterns[0])
    constants = [name for name, constant in names.items() if constant]
    free = [name for name, constant in names.items() if not constant]
    range_ = VALUES if np.dtype(dtype).kind != "u" else VALUES[VALUES >= 0]
    for chosen in itertools.product(range_.tolist(), repeat=len(constants)):
        values: dict[str, Any] = {
            name: np.array(value).astype(dtype) for name, value in zip(constants, chosen)
        }
        for axis, name in enumerate(free):
            domain = CONDITIONS if name in "pq" else numbers.astype(dtype)
            values[name] = domain.reshape([-1 if a == axis else 1 for a in range(len(free))])
        yield dict(zip(constants, chosen)), values


def holds_where(rule: Rule, chosen: dict[str, int], values: dict[str, Any]) -> Any:
    """Where the condition holds, each of its parts taken for all values at once."""
    text = rule.text.partition("  if ")[2]
    scope = {**values, **chosen, "low": np.asarray, "less": np.less}
    result = np.asarray(True)
    for part in text.split(" and ") if text else ():
        result = result & eval(part, scope)
    return result


def check(rule: Rule, numbers: np.ndarray, dtype: str) -> int:
    checked = 0
    for chosen, values in assignments(rule, numbers, dtype):
        holds = holds_where(rule, chosen, values)
        if not holds.any():
            continue
        shape = np.broadcast_shapes(*(np.shape(value) for value in values.values()))
        defined = np.broadcast_to(holds, shape).copy()
        with np.errstate(over="ignore", invalid="ignore"):
            before = meaning(rule.patterns[0], values, defined)
            after_defined = defined.copy()
            after = meaning(rule.result, values, after_defined)
        np.testing.assert_array_equal(after_defined, defined, "the result divides by zero")
        before, after = np.broadcast_to(before, shape), np.broadcast_to(after, shape)
        np.testing.assert_array_equal(before[defined], after[defined], f"{rule.text}: {chosen}")
        if dtype.startswith("float"):
            np.testing.assert_array_equal(np.signbit(before), np.signbit(after), rule.text)
        checked += int(defined.sum())
    return checked


@pytest.mark.parametrize("rule", rewriting.all_rules(), ids=lambda rule: rule.text)
def test_rule_holds_for_small_integers(rule: Rule) -> None:
    assert check(rule, VALUES, "int64") > 0


@pytest.mark.parametrize(
    "rule", [r for r in rewriting.all_rules() if r.domain == "integers"], ids=lambda rule: rule.text
)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_rule_holds_where_integers_wrap(rule: Rule, dtype: str) -> None:
    edges = {"int8": [-128, -127, -65, -1, 0, 1, 2, 64, 127], "uint8": [0, 1, 2, 100, 128, 255]}
    assert check(rule, np.array(edges[dtype]), dtype) > 0


@pytest.mark.parametrize(
    "rule", [r for r in rewriting.all_rules() if r.domain == "every"], ids=lambda rule: rule.text
)
def test_rule_holds_for_floats(rule: Rule) -> None:
    assert check(rule, FLOATS, "float64") > 0


@pytest.mark.parametrize("rule", rewriting.all_rules(), ids=lambda rule: rule.text)
def test_rule_makes_lighter_and_invents_nothing(rule: Rule) -> None:
    for pattern in rule.patterns:
        assert rewriting.weight(rule.result) < rewriting.weight(pattern)
        assert names_of(rule.result).keys() <= names_of(pattern).keys()
    before, after = occurrences(rule.patterns[0]), occurrences(rule.result)
    for name, constant in names_of(rule.result).items():
        if not constant:  # x stands for an expression of any size
            assert after.count(name) <= before.count(name)


def occurrences(pattern: Pattern) -> list[str]:
    match pattern:
        case Name(name, _):
            return [name]
        case Node(_, operands):
            return [name for operand in operands for name in occurrences(operand)]
        case Number():
            return []


def test_a_wrong_rule_is_found() -> None:
    wrong = rewriting.parse_rule("min(x * c1, y * c1) -> min(x, y) * c1", "index")
    with pytest.raises(AssertionError):
        check(wrong, VALUES, "int64")
    without_nan = rewriting.parse_rule("select(x < y, x, y) -> min(x, y)", "every")
    with pytest.raises(AssertionError):
        check(without_nan, FLOATS, "float64")


@pytest.mark.parametrize("text", ["x + -> x", "x -> x", "f[x] + 1 -> x"])
def test_a_line_that_does_not_read(text: str) -> None:
    with pytest.raises(ParseError):
        rewriting.parse_rule(text, "index")
