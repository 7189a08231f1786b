"""Relay with kernels -> relay in which a convolution and a depthwise one behind it are one kernel.

Networks for phones expand a tensor to several times its channels for a depthwise convolution to
read, once. In one kernel (`te.recipes.convolution_pair`) the expanded tensor is never in memory as
a whole: only the rows at hand of a few channels are, in a cache.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod

from minitvm.errors import OptionError
from minitvm.origin import merge, origin
from minitvm.relay.build import with_fresh_variables
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Function,
    GlobalVar,
    If,
    Module,
    TensorType,
    Var,
    map_block,
    use_counts,
    walk_bindings,
)
from minitvm.relay.kernels import Kernels
from minitvm.relay.layout import parse_layout
from minitvm.relay.op import Op, Pattern
from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.target import Target
from minitvm.te.recipes.convolution_pair import choose_pair_tile, choose_piece, shared_rows
from minitvm.te.recipes.tiles import choose_tile, total_cycles
from minitvm.transform import PASS_NAMES, Pass, PassContext

NAME = "FuseDepthwise"
LEVEL = 3
PASS_NAMES[NAME] = LEVEL  # known to `PassContext` before a target makes the pass
OPTION = "relay.fuse_depthwise"
GAINING, ALWAYS = "gaining", "always"

ARITHMETIC = frozenset({
    "abs", "add", "clip", "hard_sigmoid", "hard_swish", "maximum", "minimum", "multiply",
    "negative", "nn.leaky_relu", "nn.prelu", "nn.relu", "subtract",
})
"""Operators of a few instructions. Others, such as `swish`, take so many that kernels with them
hardly wait for memory: EfficientNet-B0's took 0.98 to 1.06 of the time in pairs."""


def fuse_depthwise(target: Target) -> Pass[Module]:
    """The pass for a target, here one of vectors of 8; it comes behind `FuseOps`. The kernels of a
    convolution and of the depthwise one that alone reads its result, packed and of float32, become
    one, where that should gain: the memory that is neither written nor read again must be worth
    more than the rows that are computed twice, and what follows the convolutions be plain
    arithmetic. `relay.fuse_depthwise: "always"` doesn't ask that.

    Before:

        def main(x: Tensor((1, 1, 98, 98, 8), "float32"), w: Tensor((8, 1, 1, 1, 8, 8), "float32"), d: Tensor((8, 1, 3, 3, 1, 8), "float32")) -> Tensor((1, 8, 96, 96, 8), "float32"):
            v0 = fused_nn_conv2d_nn_relu(x, w)  #: "expand", "relu"
            v1 = fused_nn_conv2d(v0, d)  #: "depthwise"
            return v1

        @function(primitive=True)
        def fused_nn_conv2d_nn_relu(p0: Tensor((1, 1, 98, 98, 8), "float32"), p1: Tensor((8, 1, 1, 1, 8, 8), "float32")) -> Tensor((1, 8, 98, 98, 8), "float32"):
            v0 = nn.conv2d(p0, p1, data_layout="NCHW8c", kernel_layout="OIHW8i8o")  #: "expand"
            v1 = nn.relu(v0)  #: "relu"
            return v1

        @function(primitive=True)
        def fused_nn_conv2d(p0: Tensor((1, 8, 98, 98, 8), "float32"), p1: Tensor((8, 1, 3, 3, 1, 8), "float32")) -> Tensor((1, 8, 96, 96, 8), "float32"):
            v0 = nn.conv2d(p0, p1, groups=64, data_layout="NCHW8c", kernel_layout="OIHW1i8o")  #: "depthwise"
            return v0

    After:

        def main(x: Tensor((1, 1, 98, 98, 8), "float32"), w: Tensor((8, 1, 1, 1, 8, 8), "float32"), d: Tensor((8, 1, 3, 3, 1, 8), "float32")) -> Tensor((1, 8, 96, 96, 8), "float32"):
            v0 = fused_nn_conv2d_nn_relu_nn_conv2d(x, w, d)  #: "depthwise", "expand", "relu"
            return v0

        @function(primitive=True)
        def fused_nn_conv2d_nn_relu_nn_conv2d(p0: Tensor((1, 1, 98, 98, 8), "float32"), p1: Tensor((8, 1, 1, 1, 8, 8), "float32"), p2: Tensor((8, 1, 3, 3, 1, 8), "float32")) -> Tensor((1, 8, 96, 96, 8), "float32"):
            v0 = nn.conv2d(p0, p1, data_layout="NCHW8c", kernel_layout="OIHW8i8o")  #: "expand"
            v1 = nn.relu(v0)  #: "relu"
            v2 = nn.conv2d(v1, p2, groups=64, data_layout="NCHW8c", kernel_layout="OIHW1i8o")  #: "depthwise"
            return v2
    """  # noqa: E501

    def run(module: Module) -> Module:
        choice = PassContext.current().config.get(OPTION, GAINING)
        if choice not in (GAINING, ALWAYS):
            raise OptionError(f"{OPTION} is {choice!r}; it may be {GAINING!r} or {ALWAYS!r}")
        return _Fuser(module, None if choice == ALWAYS else target).fused()

    return Pass(NAME, run, LEVEL)


# --- kernels of convolutions --------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Convolution:
    """What a kernel computes that starts with a convolution of its parameters at the positions
    `data` and `weight`, and goes on element by element."""

    op: Conv2d
    data: int
    image: tuple[int, ...]
    filters: tuple[int, ...]
    result: tuple[int, ...]
    is_depthwise: bool
    is_arithmetic: bool


def _convolution(function: Function) -> _Convolution | None:
    """What a kernel is, if it is such a one, of float32, packed, with or without groups of one."""
    if function.attrs.keys() != {"primitive"} or not function.body.bindings:
        return None
    first, *others = function.body.bindings
    match first.value:
        case Call(Conv2d() as op, (Var() as data, Var() as weight)):
            pass
        case _:
            return None
    if function.body.result is not function.body.bindings[-1].var:
        return None
    kernel = parse_layout(op.kernel_layout)
    image, filters, result = map(_extents, (data.type, weight.type, first.var.type))
    known = image and filters and result and function.result_type == first.var.type
    uses = use_counts(function.body)
    once = uses[data] == uses[weight] == 1
    names = [_elementwise(binding) for binding in others]
    if not known or not once or not kernel.is_packed() or not all(names):
        return None
    is_depthwise = op.is_depthwise_packed(filters[0] * kernel.block("O"))
    if op.groups > 1 and not is_depthwise:
        return None
    place = function.params.index(data)
    cheap = ARITHMETIC.issuperset(names)
    return _Convolution(op, place, image, filters, result, is_depthwise, cheap)


def _extents(found: object) -> tuple[int, ...]:
    """The shape of a tensor of float32; empty for anything else."""
    if not isinstance(found, TensorType) or found.dtype != "float32":
        return ()
    known = tuple(extent for extent in found.shape if isinstance(extent, int))
    return known if len(known) == found.rank else ()


def _elementwise(binding: Binding) -> str:
    """The name of the operator that a binding applies element by element; empty for others."""
    match binding.value:
        case Call(Op() as op, _) if op.pattern <= Pattern.BROADCAST:
            return op.name
    return ""


def gains(first: _Convolution, depthwise: _Convolution, target: Target) -> bool:
    """Whether one kernel should take less time than two, both of cheap operators: it saves the
    traffic of what is between them, if that is beyond the second cache, and pays for rows that are
    computed twice, for tiles that divide the channels, and for threads with unequal pieces."""
    batch, blocks, rows, columns = first.result[:4]
    size = prod(first.result) * 4
    if not (first.is_arithmetic and depthwise.is_arithmetic) or size <= target.l2_bytes:
        return False
    saved = 2 * size / target.bytes_per_cycle(2 * target.l2_bytes)
    reduction = prod(first.filters[1:5])
    alone, tile = (choose(columns, blocks, reduction, target)
                   for choose in (choose_tile, choose_pair_tile))
    expand, expand_in_tiles = (
        batch * rows * total_cycles(t, columns, blocks, reduction) for t in (alone, tile))
    stride = depthwise.op.strides[0]
    shared = shared_rows(depthwise.filters[2], stride, depthwise.op.dilation[0])
    piece = choose_piece(depthwise.result[2], shared, stride, blocks // tile.blocks, target)
    taps = prod(depthwise.result[:4]) * prod(depthwise.filters[2:4]) / target.fma_per_cycle
    pair = (expand_in_tiles * (1 + piece.again) + taps) * piece.uneven
    return saved + expand + taps > pair


# --- pairs of calls -----------------------------------------------------------------------------


@dataclass(slots=True)
class _Fuser:
    """Rewrites blocks. `target` None: without asking what is gained."""

    module: Module
    target: Target | None
    known: dict[str, _Convolution | None] = field(default_factory=dict)
    merged_names: set[str] = field(default_factory=set)
    kernels: Kernels = field(init=False)

    def __post_init__(self) -> None:
        self.kernels = Kernels(taken=set(self.module.functions))

    def fused(self) -> Module:
        """The module with pairs of calls as one; without the kernels that nothing calls then."""
        functions = self.module.functions
        self.known = {name: _convolution(f) for name, f in functions.items() if f.is_primitive}
        changed = {
            name: function.with_body(self.block(function.body, use_counts(function.body)))
            for name, function in functions.items() if not function.is_primitive
        }
        if not self.merged_names:
            return self.module
        used = {
            binding.value.callee.name
            for function in changed.values() for binding in walk_bindings(function.body)
            if isinstance(binding.value, Call) and isinstance(binding.value.callee, GlobalVar)
        }
        kept = {name: function for name, function in functions.items()
                if name in used or name not in self.merged_names}
        return Module({**kept, **changed, **self.kernels.finished()})

    def block(self, block: Block, counts: Mapping[Var, int]) -> Block:
        """The block with one call for each pair in it and in the blocks nested in it."""
        bindings: dict[Var, Binding] = {}
        for binding in block.bindings:
            nested = self.nested(binding, counts)
            first = self.first_of(nested, bindings, counts)
            if first is not None:
                del bindings[first.var]
                nested = self.merged(first, nested)
            bindings[nested.var] = nested
        new = tuple(bindings.values())
        same = len(new) == len(block.bindings) and all(
            a is b for a, b in zip(new, block.bindings, strict=True))
        return block if same else Block(new, block.result)

    def nested(self, binding: Binding, counts: Mapping[Var, int]) -> Binding:
        """The binding with its branches rewritten."""
        match binding.value:
            case If(condition, then_block, else_block):
                branches = self.block(then_block, counts), self.block(else_block, counts)
                if branches[0] is not then_block or branches[1] is not else_block:
                    return replace(binding, value=If(condition, *branches))
        return binding

    def first_of(self, binding: Binding, bindings: Mapping[Var, Binding],
                 counts: Mapping[Var, int]) -> Binding | None:
        """The call of a convolution that only this one of a depthwise one reads, and that should
        be computed with it."""
        depthwise = self.convolution(binding)
        if depthwise is None or not depthwise.is_depthwise:
            return None
        assert isinstance(binding.value, Call)
        data = binding.value.arguments[depthwise.data]
        if not isinstance(data, Var) or data not in bindings or counts[data] != 1:
            return None
        first = self.convolution(bindings[data])
        if first is None or first.is_depthwise or first.result != depthwise.image:
            return None
        if self.target is not None and not gains(first, depthwise, self.target):
            return None
        return bindings[data]

    def convolution(self, binding: Binding) -> _Convolution | None:
        match binding.value:
            case Call(GlobalVar(name), _):
                return self.known.get(name)
        return None

    def merged(self, first: Binding, second: Binding) -> Binding:
        """One call of a kernel that computes both."""
        call = self.kernels.call([*self.operators(first), *self.operators(second)])
        return replace(call, origin=merge(first.origin, second.origin))

    def operators(self, binding: Binding) -> list[Binding]:
        """What a kernel computes, in terms of the arguments of a call and of its variable, each
        with the origins that it shares with the call."""
        assert isinstance(binding.value, Call) and isinstance(binding.value.callee, GlobalVar)
        self.merged_names.add(binding.value.callee.name)
        kernel = with_fresh_variables(self.module.functions[binding.value.callee.name])
        renamed: dict[Var, Atom] = dict(zip(kernel.params, binding.value.arguments, strict=True))
        assert isinstance(kernel.body.result, Var)
        body = map_block(kernel.body, renamed)
        own = set(binding.origin.names)
        found = [
            replace(b, origin=origin(*(own & set(b.origin.names))) or binding.origin)
            for b in body.bindings
        ]
        return [*found[:-1], replace(found[-1], var=binding.var)]
