"""Relay -> relay with constant scales of channels multiplied into the weights beside them.

Batch norm, simplified, is a multiplication and an addition of constants for each channel. The
multiplication commutes with a convolution, so it need not be done at run time.

Backward, from a multiplication up to what produced its argument (`scale_rules.pull`):

    conv2d(x, w) * s            conv2d(x, w * s)       s along the output channels of w
    dense(x, w) * s             dense(x, w * s)
    (y + b) * s, (y - b) * s    y * s + b * s          and on, with y
    relu(y) * s                 relu(y * s)            and on; s > 0 (leaky_relu, prelu too)
    max_pool2d(y) * s           max_pool2d(y * s)      and on; s > 0
    avg_pool2d(y) * s           avg_pool2d(y * s)      and on (padding with zeros too)

Forward, from a multiplication down to all that uses it (`scale_rules.push`), through the same
operators but the additions, to the weights' input channels:

    conv2d(x * s, w)            conv2d(x, w * s)       zero padding stays zero: 0 * s = 0
    dense(x * s, w)             dense(x, w * s)

A scale moves backward only where every value on the way is used once, and forward only where all
uses take it; it must be finite, and leave constants finite. Sums are then rounded differently, as
after any change of their order.
"""

from __future__ import annotations

from collections.abc import Callable

from minitvm.origin import Origin, merge
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Function,
    If,
    Module,
    TensorType,
    Value,
    Var,
    atoms,
    map_atoms,
    map_block,
    use_counts,
)
from minitvm.relay.op import Op
from minitvm.relay.ops.broadcast import Multiply
from minitvm.relay.passes.scale_rules import Scale, Step, pull, push, scale_of
from minitvm.remarks import remark
from minitvm.transform import make_pass

NAME = "FoldScaleAxis"
LONGEST_PATH = 32
"""How many operators a scale may pass; bounds the work on long chains."""

Rule = Callable[[Op, tuple[Atom, ...], Scale], Step | str]


@make_pass(NAME, opt_level=3)
def fold_scale_axis(module: Module) -> Module:
    """Folds multiplications of channels by constants into the weights around them.

    Before:

        def main(x: Tensor((1, 1, 4, 4), "float32")) -> Tensor((1, 1, 4, 4), "float32"):
            v0 = nn.conv2d(x, const([3.0], (1, 1, 1, 1), "float32"))  #: "conv"
            v1 = multiply(v0, const([2.0], (1, 1, 1), "float32"))  #: "norm"
            return v1

    After:

        def main(x: Tensor((1, 1, 4, 4), "float32")) -> Tensor((1, 1, 4, 4), "float32"):
            v0 = nn.conv2d(x, const([6.0], (1, 1, 1, 1), "float32"))  #: "conv", "norm"
            return v0
    """
    for name, function in module.functions.items():
        module = module.with_function(name, function.with_body(fold_block(function.body)))
    return module


def fold_block(block: Block) -> Block:
    """The block with its scales folded, those in nested blocks first."""
    inner = tuple(_with_folded_blocks(binding) for binding in block.bindings)
    if any(new is not old for new, old in zip(inner, block.bindings, strict=True)):
        block = Block(inner, block.result)
    if not any(_is_multiplication(binding.value) for binding in block.bindings):
        return block
    return _Folder(block).run()


def _with_folded_blocks(binding: Binding) -> Binding:
    value = binding.value
    match value:
        case If(condition, then_block, else_block):
            parts = fold_block(then_block), fold_block(else_block)
            if parts[0] is then_block and parts[1] is else_block:
                return binding
            return Binding(binding.var, If(condition, *parts), binding.origin)
        case Function(_, body):
            folded = value.with_body(fold_block(body))
            same = folded is value
            return binding if same else Binding(binding.var, folded, binding.origin)
        case _:
            return binding


def _is_multiplication(value: Value) -> bool:
    return (
        isinstance(value, Call)
        and isinstance(value.callee, Multiply)
        and any(isinstance(argument, Constant) for argument in value.arguments)
    )


class _Folder:
    """A block whose scales are being folded: its values as they are now, and who uses them.

    A multiplication that is folded becomes another name of its argument, in `renamed`.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.values: list[Value] = [binding.value for binding in block.bindings]
        self.origins: list[Origin] = [binding.origin for binding in block.bindings]
        self.position = {binding.var: i for i, binding in enumerate(block.bindings)}
        self.counts = use_counts(block)
        self.renamed: dict[Var, Atom] = {}
        self.users: dict[Var, list[int]] = {}
        for place, value in enumerate(self.values):
            for atom in set(atoms(value)):
                if isinstance(atom, Var):
                    self.users.setdefault(atom, []).append(place)

    def run(self) -> Block:
        """Folds each multiplication that can be, in order; the same block if none can."""
        for place, binding in enumerate(self.block.bindings):
            if _is_multiplication(binding.value):
                self.fold(place, binding.var)
        if not self.renamed:
            return self.block
        bindings = tuple(
            Binding(binding.var, value, place)
            for binding, value, place in zip(
                self.block.bindings, self.values, self.origins, strict=True
            )
            if binding.var not in self.renamed
        )
        return map_block(Block(bindings, self.block.result), self.renamed)

    def fold(self, place: int, result: Var) -> None:
        """Folds the multiplication at a place, backward if possible, else forward."""
        value = map_atoms(self.values[place], self.renamed)
        assert isinstance(value, Call)
        first, second = value.arguments
        data, constant = (second, first) if isinstance(first, Constant) else (first, second)
        whole = result.type
        if not isinstance(data, Var) or not isinstance(constant, Constant) or data.type != whole:
            return
        assert isinstance(whole, TensorType)
        scale = scale_of(constant, whole)
        if isinstance(scale, str):
            return
        edits = self.backward(data, scale)
        if isinstance(edits, str):
            reason = edits
            edits = self.forward(result, scale)
            if isinstance(edits, str):
                remark(NAME, f"{reason}; and forward, {edits}", self.origins[place])
                return
        self.commit(edits, place, data, result)

    # --- the two directions ---------------------------------------------------------------------

    def backward(self, data: Var, scale: Scale) -> dict[int, Step] | str:
        """The changes that move a scale of `data` into what computes it; else why it can't."""
        edits: dict[int, Step] = {}
        while len(edits) < LONGEST_PATH:
            place = self.position.get(data)
            if place is None:
                return f"{data.name} is not computed in this block"
            if self.counts[data] != 1:
                return f"{data.name} is used elsewhere too"
            step = self.step(place, scale, pull)
            if isinstance(step, str):
                return step
            edits[place] = step
            if step.position is None:
                return edits
            following = step.call.arguments[step.position]
            if not isinstance(following, Var):
                return "the scale arrives at a constant"
            data = following
        return "there are no weights nearby"

    def forward(self, result: Var, scale: Scale) -> dict[int, Step] | str:
        """The changes that move a scale of `result` into all that uses it; else why they can't."""
        edits: dict[int, Step] = {}
        left = [result]
        while left:
            var = left.pop()
            places = self.users.get(var, [])
            if self.counts.get(var, 0) != len(places) or len(edits) > LONGEST_PATH:
                return f"{var.name} is a result, or has uses that are too many or nested"
            for place in places:
                value = map_atoms(self.values[place], self.renamed)
                if not isinstance(value, Call) or value.arguments[:1] != (var,):
                    return f"{var.name} is used where a scale can't be taken out"
                step = self.step(place, scale, push)
                if isinstance(step, str):
                    return step
                edits[place] = step
                if step.position is not None:
                    left.append(self.block.bindings[place].var)
        return edits or f"{result.name} is not used"

    def step(self, place: int, scale: Scale, rule: Rule) -> Step | str:
        """A rule applied to what is computed at a place."""
        value = map_atoms(self.values[place], self.renamed)
        if not isinstance(value, Call) or not isinstance(value.callee, Op):
            return "the scale arrives at something that is no operator"
        return rule(value.callee, value.arguments, scale)

    # --- bookkeeping ----------------------------------------------------------------------------

    def commit(self, edits: dict[int, Step], place: int, data: Var, result: Var) -> None:
        """Takes the changes over; the multiplication at `place` is from now on its argument."""
        for changed, step in edits.items():
            self.values[changed] = step.call
            if step.scaled:
                self.origins[changed] = merge(self.origins[changed], self.origins[place])
        self.renamed[result] = data
        self.counts[data] += self.counts.get(result, 0) - 1
        users = [user for user in self.users[data] if user != place]
        self.users[data] = users + self.users.get(result, [])
