"""ONNX's control flow: If, Loop, Scan.

A branch that is chosen at run time becomes a relay `If`. Loops are unrolled: how often they run
must be known when importing, and equal iterations share their kernels.
"""

from __future__ import annotations

from minitvm.errors import MinitvmError, ModelError
from minitvm.relay.build import BlockBuilder
from minitvm.relay.infer import value_type
from minitvm.relay.ir import Atom, Block, Constant, If, Tuple, TupleGetItem
from minitvm.relay.onnx.conversion import LONGEST, Conversion, Unsupported
from minitvm.relay.onnx.converters.joining import axis_of
from minitvm.relay.onnx.reader import Subgraph
from minitvm.relay.onnx.table import converter
from minitvm.relay.ops.join import Concatenate, StridedSlice
from minitvm.relay.ops.transform import ExpandDims, Reshape, Squeeze

Results = tuple[Atom | None, ...]
"""What a node gives; None where something inside of it can't be imported, which was noted."""


# --- branches -----------------------------------------------------------------------------------


@converter("If", 1)
def if_(c: Conversion) -> Results:
    """The branch that a condition known when importing takes, while the other one is not looked at;
    else both, in blocks of their own."""
    condition = c.input(0)
    if c.type(condition).dtype != "bool" or c.type(condition).elements() != 1:
        raise ModelError(f"{c.node}: the condition must be one bool, not {c.type(condition)}")
    if isinstance(condition, Constant):
        c.ignore("then_branch", "else_branch")
        return c.inline(c.subgraph("then_branch" if condition.data.any() else "else_branch"))
    blocks = [_block(c, c.subgraph(name)) for name in ("then_branch", "else_branch")]
    then_block, else_block = blocks
    if then_block is None or else_block is None:
        return (None,) * len(c.node.outputs)
    given = [value_type(block.result) for block in (then_block, else_block)]
    if given[0] != given[1]:
        raise Unsupported(f"its branches give {given[0]} and {given[1]}",
                          "both must give the same, or the condition follow from constants")
    if c.shape(condition):
        condition = c.emit(Reshape(()), condition)
    chosen = c.builder.emit(If(condition, then_block, else_block), origin=c.origin)
    if len(c.node.outputs) == 1:
        return (chosen,)
    return tuple(c.builder.emit(TupleGetItem(chosen, index), origin=c.origin)
                 for index in range(len(c.node.outputs)))


def _block(c: Conversion, branch: Subgraph) -> Block | None:
    """A branch with its results, a tuple where there are several."""
    if branch.inputs or len(branch.outputs) != len(c.node.outputs):
        raise ModelError(f"a branch of {c.node} must have no inputs and {len(c.node.outputs)} "
                         f"outputs, not {len(branch.inputs)} and {len(branch.outputs)}")
    builder = BlockBuilder(c.origin, c.builder)
    try:
        results = known(c.inline(branch, builder=builder))
    except MinitvmError as error:
        raise Unsupported(f"a branch of it makes no sense here: {error}",
                          "fix the input that decides, for example by --fix NAME=VALUE, or other "
                          "shapes") from error
    if results is None:
        return None
    return builder.finish(results[0] if len(results) == 1 else builder.emit(Tuple(tuple(results))))


def known(results: Results) -> list[Atom] | None:
    """The results if all could be imported."""
    found = [atom for atom in results if atom is not None]
    return found if len(found) == len(results) else None


# --- loops --------------------------------------------------------------------------------------


@converter("Loop", 1)
def loop(c: Conversion) -> Results:
    """As often as its count and its condition say, both known when importing; after each time its
    condition, what it carries on, and elements of its scan outputs."""
    trips = None if c.optional(0) is None else int(c.constant(0, "the count").reshape(()))
    going = c.optional(1)
    carried = [c.input(index) for index in range(2, len(c.arguments))]
    body = c.subgraph("body")
    _require_ends(c, body, 2 + len(carried), 1 + len(carried))
    elements: list[list[Atom]] = [[] for _ in body.outputs[1 + len(carried):]]
    done = 0
    while (trips is None or done < trips) and _goes_on(c, going):
        _require_shorter(done)
        again = c.make(True, "bool") if going is None else going
        results = known(c.inline(body, [c.make(done, "int64"), again, *carried]))
        if results is None:
            return (None,) * len(c.node.outputs)
        given, results = results[0], results[1:]
        going = given if going is not None else None
        carried = results[:len(carried)]
        for row, element in zip(elements, results[len(carried):], strict=True):
            row.append(element)
        done += 1
    return (*carried, *(_stacked(c, row) for row in elements))


def _goes_on(c: Conversion, condition: Atom | None) -> bool:
    if condition is None:
        return True
    if not isinstance(condition, Constant):
        raise Unsupported("how often it runs is computed at run time",
                          "make its condition and its count constants")
    return bool(condition.data.any())


def _require_shorter(done: int) -> None:
    if done >= LONGEST:
        raise Unsupported(f"it runs more than {LONGEST} times, which are unrolled",
                          "split the sequence, or export without the loop")


def _require_ends(c: Conversion, body: Subgraph, inputs: int, fewest: int) -> None:
    if len(body.inputs) != inputs or len(body.outputs) < fewest:
        raise ModelError(
            f"the body of {c.node} must have {inputs} inputs and at least {fewest} outputs, not "
            f"{len(body.inputs)} and {len(body.outputs)}")


def _stacked(c: Conversion, elements: list[Atom], axis: int = 0) -> Atom:
    """A new axis with one element for each time."""
    if not elements:
        raise Unsupported("it never runs, which leaves the shape of its scan outputs open",
                          "give input shapes for which it runs")
    axis = axis_of(c, axis, len(c.shape(elements[0])) + 1)
    rows = [c.emit(ExpandDims(axis), element) for element in elements]
    return rows[0] if len(rows) == 1 else c.emit(Concatenate(axis), *rows)


@converter("Scan", 9)
def scan(c: Conversion) -> Results:
    """Once for each element along an axis of its scan inputs."""
    count = c.required_integer("num_scan_inputs")
    first = len(c.arguments) - count
    if count < 1 or first < 0:
        raise ModelError(f"{c.node} has {len(c.arguments)} inputs, of which {count} are scanned")
    carried, scanned = c.inputs()[:first], c.inputs()[first:]
    body = c.subgraph("body")
    _require_ends(c, body, len(c.arguments), first)
    outputs = len(body.outputs) - first
    axes = [axis_of(c, axis, len(c.shape(x)))
            for axis, x in zip(_each(c, "scan_input_axes", count), scanned, strict=True)]
    backwards = _each(c, "scan_input_directions", count)
    output_axes = _each(c, "scan_output_axes", outputs)
    output_backwards = _each(c, "scan_output_directions", outputs)
    lengths = {c.shape(x)[axis] for x, axis in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        raise ModelError(f"{c.node} scans axes of different lengths: {sorted(lengths)}")
    length = lengths.pop()
    elements: list[list[Atom]] = [[] for _ in range(outputs)]
    for step in range(length):
        _require_shorter(step)
        given = [_element(c, x, axis, length - 1 - step if back else step)
                 for x, axis, back in zip(scanned, axes, backwards, strict=True)]
        results = known(c.inline(body, [*carried, *given]))
        if results is None:
            return (None,) * len(c.node.outputs)
        carried = results[:first]
        for row, element in zip(elements, results[first:], strict=True):
            row.append(element)
    return (*carried, *(_stacked(c, row[::-1] if back else row, axis) for row, axis, back in zip(
        elements, output_axes, output_backwards, strict=True)))


def _each(c: Conversion, name: str, count: int) -> tuple[int, ...]:
    """An attribute with an integer for each input or output; zeros by default."""
    values = c.integers(name) or (0,) * count
    if len(values) != count:
        raise ModelError(f"{c.node}: {name} holds {len(values)} integers for {count} tensors")
    return values


def _element(c: Conversion, x: Atom, axis: int, position: int) -> Atom:
    taken = c.emit(StridedSlice((position,), (position + 1,), axes=(axis,)), x)
    return c.emit(Squeeze(axis), taken)
