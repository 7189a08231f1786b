"""Dims: the extents in a tensor type, integers or polynomials over named sizes.

    Dim      = int | DimExpr                            an expression that folds is an int
    DimExpr  = (monomial, coefficient)*                 a sum; the empty monomial is the constant
    Monomial = (factor, power)*                         sorted
    Factor   = name | Opaque(floordiv | min | max, Dim*)

    N = size("N")
    2 * N + 1, (N + 1) // 2, maximum(N, 4)

Arithmetic gives the canonical form, so that equality is that of the structure; there is no solver.
A named size stands for an integer of at least 1. A comparison that this does not decide for all
sizes is an error which names both dims. `str` and `parse_dim` are inverse to each other.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce

from minitvm.errors import OptionError, TypeInferenceError


@dataclass(frozen=True, slots=True)
class Opaque:
    """What is no polynomial: a floor division, a minimum or a maximum."""

    operator: str
    arguments: tuple[Dim, ...]

    def __str__(self) -> str:
        if self.operator == "floordiv":
            numerator, divisor = self.arguments
            return f"{_parenthesised(numerator)}//{_parenthesised(divisor)}"
        return f"{self.operator}({', '.join(map(str, self.arguments))})"


Factor = str | Opaque
Monomial = tuple[tuple[Factor, int], ...]
Polynomial = dict[Monomial, int]


@dataclass(frozen=True, slots=True)
class DimExpr:
    """A dim that depends on named sizes, in canonical form. Made by arithmetic on `size(name)`."""

    terms: tuple[tuple[Monomial, int], ...]

    def __add__(self, other: Dim) -> Dim:
        return _sum([(self, 1), (other, 1)])

    __radd__ = __add__

    def __sub__(self, other: Dim) -> Dim:
        return _sum([(self, 1), (other, -1)])

    def __rsub__(self, other: Dim) -> Dim:
        return _sum([(other, 1), (self, -1)])

    def __neg__(self) -> Dim:
        return _sum([(self, -1)])

    def __mul__(self, other: Dim) -> Dim:
        return _product(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return floor_divide(self, other)

    def __rfloordiv__(self, other: Dim) -> Dim:
        return floor_divide(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self - floor_divide(self, other) * other

    def __rmod__(self, other: Dim) -> Dim:
        return other - floor_divide(other, self) * self

    def __lt__(self, other: Dim) -> bool:
        return not _at_least(self, other, "<")

    def __le__(self, other: Dim) -> bool:
        return _at_least(other, self, ">=")

    def __gt__(self, other: Dim) -> bool:
        return not _at_least(other, self, "<")

    def __ge__(self, other: Dim) -> bool:
        return _at_least(self, other, ">=")

    def __bool__(self) -> bool:
        if lower_bound(self) >= 1 or lower_bound(-self) >= 1:
            return True
        raise _undecided(self, "!=", 0)

    def __str__(self) -> str:
        parts = [_term_text(monomial, coefficient) for monomial, coefficient in self.terms]
        return " + ".join(parts).replace("+ -", "- ")


Dim = int | DimExpr


def size(name: str) -> DimExpr:
    """The size of that name: an identifier, other than `min` and `max`."""
    if not name.isidentifier() or name in ("min", "max"):
        raise OptionError(f"{name!r} can't name a size: take an identifier other than min and max")
    return DimExpr(((((name, 1),), 1),))


def minimum(*dims: Dim) -> Dim:
    """The least of the dims."""
    return _extreme("min", dims)


def maximum(*dims: Dim) -> Dim:
    """The greatest of the dims."""
    return _extreme("max", dims)


def substitute(dim: Dim, sizes: Mapping[str, Dim]) -> Dim:
    """The dim with sizes replaced; an int where none is left."""
    if isinstance(dim, int):
        return dim
    total: Dim = 0
    for monomial, coefficient in dim.terms:
        term: Dim = coefficient
        for factor, power in monomial:
            value = _substitute_factor(factor, sizes)
            for _ in range(power):
                term = term * value
        total = total + term
    return total


def sizes_of(dim: Dim) -> tuple[str, ...]:
    """The names of the sizes in a dim, sorted."""
    names: set[str] = set()
    stack = [dim]
    while stack:
        item = stack.pop()
        if isinstance(item, int):
            continue
        for factor in (factor for monomial, _ in item.terms for factor, _ in monomial):
            if isinstance(factor, str):
                names.add(factor)
            else:
                stack.extend(factor.arguments)
    return tuple(sorted(names))


def floor_divide(dim: Dim, divisor: Dim) -> Dim:
    """The quotient, rounded towards minus infinity."""
    if divisor == 0:
        raise TypeInferenceError(f"the dim {dim} is divided by zero")
    if isinstance(dim, int) and isinstance(divisor, int):
        return dim // divisor
    if isinstance(divisor, int):
        return _divide_by_int(dim, divisor) if divisor > 0 else _divide_by_int(-dim, -divisor)
    return _divide_by_expr(dim, divisor)


def lower_bound(dim: Dim) -> float:
    """A number that the dim is never below; minus infinity where none is known."""
    if isinstance(dim, int):
        return dim
    total: float = 0
    for monomial, coefficient in dim.terms:
        bounds = [_factor_bound(factor) ** power for factor, power in monomial]
        if (coefficient < 0 and monomial) or any(bound < 0 for bound in bounds):
            return -math.inf
        total += coefficient * math.prod(bounds)
    return total


# --- text ---------------------------------------------------------------------------------------


def parse_dim(text: str) -> Dim:
    """The inverse of `str`; raises `ValueError` for anything else."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as error:
        raise ValueError(f"{text!r} is not a dim") from error
    return dim_from_syntax(tree)


def dim_from_syntax(node: ast.expr) -> Dim:
    """A dim from the syntax tree of its text; raises `ValueError` for anything else."""
    match node:
        case ast.Constant(int(value)) if not isinstance(value, bool):
            return value
        case ast.Name(name):
            return size(name)
        case ast.UnaryOp(ast.USub(), operand):
            return -dim_from_syntax(operand)
        case ast.BinOp(left, operator, right):
            return _binary(operator, dim_from_syntax(left), dim_from_syntax(right))
        case ast.Call(ast.Name("min" | "max" as name), arguments) if len(arguments) >= 2:
            dims = [dim_from_syntax(argument) for argument in arguments]
            return _extreme(name, dims)
    raise ValueError(f"{ast.unparse(node)!r} is not a dim")


def _binary(operator: ast.operator, left: Dim, right: Dim) -> Dim:
    match operator:
        case ast.Add():
            return left + right
        case ast.Sub():
            return left - right
        case ast.Mult():
            return left * right
        case ast.FloorDiv():
            return floor_divide(left, right)
        case ast.Mod():
            return left - floor_divide(left, right) * right
    raise ValueError("dims know +, -, *, //, %, min and max")


def _term_text(monomial: Monomial, coefficient: int) -> str:
    if not monomial:
        return str(coefficient)
    if len(monomial) == 1 and monomial[0][1] == 1 and coefficient == 1:
        return str(monomial[0][0])
    factors = [_factor_text(factor) for factor, power in monomial for _ in range(power)]
    sign = {1: "", -1: "-"}.get(coefficient, f"{coefficient}*")
    return sign + "*".join(factors)


def _factor_text(factor: Factor) -> str:
    quotient = isinstance(factor, Opaque) and factor.operator == "floordiv"
    return f"({factor})" if quotient else str(factor)


def _parenthesised(dim: Dim) -> str:
    text = str(dim)
    return text if text.isidentifier() or text.isdigit() else f"({text})"


# --- canonical form -----------------------------------------------------------------------------


def _polynomial(dim: Dim) -> Polynomial:
    return dict(dim.terms) if isinstance(dim, DimExpr) else {(): dim}


def _canonical(polynomial: Polynomial) -> Dim:
    terms = [(monomial, value) for monomial, value in polynomial.items() if value]
    if not terms:
        return 0
    if len(terms) == 1 and not terms[0][0]:
        return terms[0][1]
    terms.sort(key=lambda term: _order(term[0]))
    return DimExpr(tuple(terms))


def _order(monomial: Monomial) -> tuple[int, list[tuple[str, int]]]:
    """Higher degrees first, then by name; the constant last."""
    named = [(str(factor), power) for factor, power in monomial]
    return -sum(power for _, power in monomial), named


def _sum(weighted: Iterable[tuple[Dim, int]]) -> Dim:
    total: Polynomial = {}
    for dim, weight in weighted:
        for monomial, coefficient in _polynomial(dim).items():
            total[monomial] = total.get(monomial, 0) + weight * coefficient
    return _canonical(total)


def _product(left: Dim, right: Dim) -> Dim:
    total: Polynomial = {}
    for first, a in _polynomial(left).items():
        for second, b in _polynomial(right).items():
            monomial = _times(first, second)
            total[monomial] = total.get(monomial, 0) + a * b
    return _canonical(total)


def _times(first: Monomial, second: Monomial) -> Monomial:
    powers = dict(first)
    for factor, power in second:
        powers[factor] = powers.get(factor, 0) + power
    return tuple(sorted(powers.items(), key=lambda item: str(item[0])))


def _opaque(operator: str, *arguments: Dim) -> DimExpr:
    return DimExpr(((((Opaque(operator, arguments), 1),), 1),))


def _divide_by_int(dim: Dim, divisor: int) -> Dim:
    """Multiples of the divisor leave the numerator; then both are divided by what they share."""
    quotient: Polynomial = {}
    rest: Polynomial = {}
    for monomial, coefficient in _polynomial(dim).items():
        quotient[monomial], rest[monomial] = divmod(coefficient, divisor)
    shared = math.gcd(divisor, *(value for monomial, value in rest.items() if monomial))
    numerator = _canonical({monomial: value // shared for monomial, value in rest.items()})
    return _canonical(quotient) + _quotient(numerator, divisor // shared)


def _quotient(numerator: Dim, divisor: int) -> Dim:
    if isinstance(numerator, int) or divisor == 1:
        return numerator // divisor
    match numerator.terms:
        case ((((Opaque("floordiv", (inner, int(first))), 1),), 1), *constant) if (
            first > 0 and all(not monomial for monomial, _ in constant)
        ):
            shift = constant[0][1] if constant else 0
            return floor_divide(inner + shift * first, first * divisor)
    return _opaque("floordiv", numerator, divisor)


def _divide_by_expr(dim: Dim, divisor: DimExpr) -> Dim:
    """Exact where the divisor, or its only term, divides; the rest stays a floor division."""
    if dim == divisor:
        return 1
    if len(divisor.terms) > 1:
        return 0 if dim == 0 else _opaque("floordiv", dim, divisor)
    (by, weight), = divisor.terms
    quotient: Polynomial = {}
    rest: Polynomial = {}
    for monomial, coefficient in _polynomial(dim).items():
        powers = dict(monomial)
        if coefficient % weight or any(powers.get(factor, 0) < power for factor, power in by):
            rest[monomial] = coefficient
            continue
        for factor, power in by:
            powers[factor] -= power
        left = tuple((factor, power) for factor, power in powers.items() if power)
        quotient[left] = coefficient // weight
    remainder = _canonical(rest)
    whole = _canonical(quotient)
    return whole if remainder == 0 else whole + _opaque("floordiv", remainder, divisor)


def _extreme(operator: str, dims: Iterable[Dim]) -> Dim:
    """Nested ones are opened, and arguments that another one bounds for all sizes are dropped."""
    kept: list[Dim] = []
    for dim in _opened(operator, dims):
        if any(_bounds(operator, other, dim) for other in kept):
            continue
        kept = [other for other in kept if not _bounds(operator, dim, other)]
        kept.append(dim)
    if not kept:
        raise ValueError(f"{operator} of no dims")
    kept.sort(key=str)
    return kept[0] if len(kept) == 1 else _opaque(operator, *kept)


def _opened(operator: str, dims: Iterable[Dim]) -> list[Dim]:
    opened: list[Dim] = []
    for dim in dims:
        match dim:
            case DimExpr(((((Opaque(found, inner), 1),), 1),)) if found == operator:
                opened.extend(inner)
            case _:
                opened.append(dim)
    return opened


def _bounds(operator: str, first: Dim, second: Dim) -> bool:
    """Whether `first` makes `second` superfluous."""
    difference = second - first if operator == "min" else first - second
    return lower_bound(difference) >= 0


def _factor_bound(factor: Factor) -> float:
    if isinstance(factor, str):
        return 1
    bounds = [lower_bound(argument) for argument in factor.arguments]
    match factor.operator:
        case "min":
            return min(bounds)
        case "max":
            return max(bounds)
    numerator, divisor = bounds
    if numerator < 0 or divisor < 1:
        return -math.inf
    exact = factor.arguments[1]
    return numerator // exact if isinstance(exact, int) else 0


def _substitute_factor(factor: Factor, sizes: Mapping[str, Dim]) -> Dim:
    if isinstance(factor, str):
        return sizes.get(factor, size(factor))
    arguments = [substitute(argument, sizes) for argument in factor.arguments]
    if factor.operator == "floordiv":
        return reduce(floor_divide, arguments)
    return _extreme(factor.operator, arguments)


def _at_least(left: Dim, right: Dim, operator: str) -> bool:
    """Whether left >= right for all sizes (True) or for none (False)."""
    if lower_bound(left - right) >= 0:
        return True
    if lower_bound(right - left) >= 1:
        return False
    raise _undecided(left, operator, right)


def _undecided(left: Dim, operator: str, right: Dim) -> TypeInferenceError:
    names = sorted({*sizes_of(left), *sizes_of(right)})
    plural = "s" if len(names) > 1 else ""
    return TypeInferenceError(
        f"whether {left} {operator} {right} depends on the size{plural} {', '.join(names)}; give "
        f"the shape of the input{plural} that {'have' if plural else 'has'} "
        f"{'them' if plural else 'it'} in integers with --shape"
    )
