"""ONNX's Einsum: sums, transposes and products of matrices instead of a formula of letters.

    "bhid,bhjd->bhij"   two factors: letters in both and in the result are a stack, those in both
                        and not in the result are summed up, the others are rows and columns

A letter of one factor alone that is not in the result is summed up first. Several letters that are
rows, or columns, or summed up become one axis, and several again behind the product. More than two
factors are multiplied from left to right.
"""

from __future__ import annotations

from math import prod

from minitvm.errors import ModelError
from minitvm.relay.ir import Atom
from minitvm.relay.onnx.conversion import Conversion, Unsupported
from minitvm.relay.onnx.converters.shapes import reshape_to
from minitvm.relay.onnx.table import converter
from minitvm.relay.ops.nn.matmul import Matmul
from minitvm.relay.ops.reduce import Sum
from minitvm.relay.ops.transform import Transpose


@converter("Einsum", 12)
def einsum(c: Conversion) -> Atom:
    """Without ellipses, and without a letter twice in one factor."""
    names, result = _formula(c)
    factors = c.inputs()
    if len(names) != len(factors):
        raise ModelError(f"{c.node}: the equation names {len(names)} factors of {len(factors)}")
    sizes: dict[str, int] = {}
    for letters, factor in zip(names, factors, strict=True):
        extents = c.shape(factor)
        if len(letters) != len(extents):
            raise ModelError(f"{c.node}: {letters!r} does not name the axes of {c.type(factor)}")
        for letter, extent in zip(letters, extents, strict=True):
            if sizes.setdefault(letter, extent) != extent:
                raise ModelError(f"{c.node}: {letter!r} is {sizes[letter]} and {extent} long")
    if any(letter not in sizes for letter in result):
        raise ModelError(f"{c.node}: {result!r} has a letter that no factor has")
    letters, value = names[0], factors[0]
    for position, (following, factor) in enumerate(zip(names[1:], factors[1:], strict=True)):
        later = {letter for rest in names[position + 2:] for letter in rest}
        kept = "".join(dict.fromkeys(x for x in letters + following if x in result or x in later))
        value = _product(c, (letters, value), (following, factor), kept, sizes)
        letters = kept
    letters, value = _summed(c, letters, value, set(result))
    return _transposed(c, letters, value, result)


def _formula(c: Conversion) -> tuple[list[str], str]:
    """The letters of each factor, and of the result."""
    equation = str(c.attribute("equation", "", (str,), "a string")).replace(" ", "")
    left, arrow, result = equation.partition("->")
    names = left.split(",")
    if "." in equation:
        raise Unsupported("its equation has an ellipsis", "name all axes by letters")
    if not arrow:
        every = left.replace(",", "")
        result = "".join(sorted(letter for letter in set(every) if every.count(letter) == 1))
    if any(len(set(letters)) < len(letters) for letters in (*names, result)):
        raise Unsupported(f"{equation!r} has a letter twice in one place",
                          "diagonals are not supported")
    return names, result


def _summed(c: Conversion, letters: str, x: Atom, kept: set[str]) -> tuple[str, Atom]:
    """Sums over the axes that are not kept."""
    axes = tuple(axis for axis, letter in enumerate(letters) if letter not in kept)
    if axes:
        x = c.emit(Sum(axes), x)
    return "".join(letter for letter in letters if letter in kept), x


def _transposed(c: Conversion, letters: str, x: Atom, wanted: str) -> Atom:
    order = tuple(letters.index(letter) for letter in wanted)
    return x if letters == wanted else c.emit(Transpose(axes=order), x)


def _product(c: Conversion, left: tuple[str, Atom], right: tuple[str, Atom], kept: str,
             sizes: dict[str, int]) -> Atom:
    """The product of two factors, its axes as in `kept`."""
    a, x = _summed(c, *left, {*kept, *right[0]})
    b, y = _summed(c, *right, {*kept, *a})
    stack = [letter for letter in a if letter in b and letter in kept]
    inner = [letter for letter in a if letter in b and letter not in kept]
    rows = [letter for letter in a if letter not in b]
    columns = [letter for letter in b if letter not in a]

    def matrices(letters: str, factor: Atom, outer: list[str], last: list[str]) -> Atom:
        ordered = _transposed(c, letters, factor, "".join([*stack, *outer, *last]))
        shape = (*(sizes[letter] for letter in stack),
                 prod(sizes[letter] for letter in outer), prod(sizes[letter] for letter in last))
        return ordered if c.shape(ordered) == shape else reshape_to(c, ordered, shape)

    product = c.emit(Matmul(), matrices(a, x, rows, inner), matrices(b, y, inner, columns))
    letters = "".join([*stack, *rows, *columns])
    shape = tuple(sizes[letter] for letter in letters)
    if c.shape(product) != shape:
        product = reshape_to(c, product, shape)
    return _transposed(c, letters, product, kept)
