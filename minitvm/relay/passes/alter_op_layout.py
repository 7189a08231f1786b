"""Relay -> relay in which convolutions, and what lies between them, work on packed tensors.

Which form each operator works in is planned for a whole function (`layout_plan`): the forms cost
time by a model, and so do the transforms between them, and the least sum is taken, which may be to
pack nothing. Here the plan is carried out. Every value is remembered in the forms in which it
exists; a transform is emitted where a form is first needed, and never again, so that packed values
flow from convolution to convolution and are unpacked only at the edges.

The idea of transforms that are eliminated rather than optimised, and of choosing layouts for a
whole network by their costs, is from "Optimizing CNN Model Inference on CPUs" (Liu et al., USENIX
ATC 2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from minitvm.errors import LoweringError, OptionError
from minitvm.origin import Origin
from minitvm.relay.build import BlockBuilder
from minitvm.relay.ir import (
    Atom,
    Binding,
    Call,
    Constant,
    Module,
    Value,
    Var,
    tensor_type,
    walk_bindings,
)
from minitvm.relay.layout import Layout, keeps_order
from minitvm.relay.op import Op
from minitvm.relay.ops.layout_transform import LayoutTransform
from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.relay.ops.transform import ExpandDims, Reshape
from minitvm.relay.passes.convert_layout import convert_layout
from minitvm.relay.passes.layout_alternatives import Alternative, depends_on_padding
from minitvm.relay.passes.layout_costs import plain_layout
from minitvm.relay.passes.layout_plan import LayoutPlan, plan_layouts
from minitvm.relay.passes.layout_rules import (
    Followed,
    Form,
    Given,
    is_padded,
    packed_type,
    padding_of,
)
from minitvm.relay.passes.value_forms import rewrite_block
from minitvm.remarks import remark
from minitvm.target import Target
from minitvm.transform import PASS_NAMES, Pass, PassContext

NAME = "AlterOpLayout"
LEVEL = 3
LAYOUTS = "relay.layouts"
PASS_NAMES[NAME] = LEVEL  # known to `PassContext` before a target makes the pass


def alter_op_layout(target: Target) -> Pass[Module]:
    """The pass for a target. A convolution works on plain tensors, on channels in blocks of the
    vector's lanes, here 8, or in blocks of half of that; other operators follow. What costs least in
    all is taken, transforms included; `relay.layouts: "greedy"` has each convolution take blocks of
    the lanes without looking ahead. Convolutions in NHWC become ones in NCHW first
    (`convert_layout`). Where a convolution declines the form that it prefers, a remark says why.

    Before:

        def main(x: Tensor((1, 8, 4, 4), "float32"), w: Tensor((16, 8, 3, 3), "float32")) -> Tensor((1, 16, 2, 2), "float32"):
            v0 = nn.conv2d(x, w)  #: "conv"
            v1 = nn.relu(v0)  #: "relu"
            return v1

    After:

        def main(x: Tensor((1, 8, 4, 4), "float32"), w: Tensor((16, 8, 3, 3), "float32")) -> Tensor((1, 16, 2, 2), "float32"):
            x_NCHW8c = layout_transform(x, src_layout="NCHW", dst_layout="NCHW8c")  #: "conv"
            w_OIHW8i8o = layout_transform(w, src_layout="OIHW", dst_layout="OIHW8i8o")  #: "conv"
            v0 = nn.conv2d(x_NCHW8c, w_OIHW8i8o, data_layout="NCHW8c", kernel_layout="OIHW8i8o")  #: "conv"
            v1 = nn.relu(v0)  #: "relu"
            v1_NCHW = layout_transform(v1, src_layout="NCHW8c", dst_layout="NCHW")  #: "relu"
            return v1_NCHW

    Channels that are shuffled, cut or joined move among blocks:

    Before:

        def main(x: Tensor((1, 16, 4, 4), "float32"), w: Tensor((16, 16, 3, 3), "float32")) -> Tensor((1, 16, 2, 2), "float32"):
            v0 = nn.conv2d(x, w)  #: "conv"
            v1 = nn.channel_shuffle(v0, groups=2)  #: "shuffle"
            v2 = strided_slice(v1, begin=(0,), end=(12,), axes=(1,))  #: "split"
            v3 = strided_slice(v1, begin=(12,), end=(16,), axes=(1,))  #: "split"
            v4 = concatenate(v3, v2, axis=1)  #: "join"
            return v4

    After:

        def main(x: Tensor((1, 16, 4, 4), "float32"), w: Tensor((16, 16, 3, 3), "float32")) -> Tensor((1, 16, 2, 2), "float32"):
            x_NCHW8c = layout_transform(x, src_layout="NCHW", dst_layout="NCHW8c")  #: "conv"
            w_OIHW8i8o = layout_transform(w, src_layout="OIHW", dst_layout="OIHW8i8o")  #: "conv"
            v0 = nn.conv2d(x_NCHW8c, w_OIHW8i8o, data_layout="NCHW8c", kernel_layout="OIHW8i8o")  #: "conv"
            v1 = nn.channel_shuffle(v0, groups=2, layout="NCHW8c", channels=16)  #: "shuffle"
            v2 = nn.slice_channels(v1, begin=0, count=12, layout="NCHW8c")  #: "split"
            v3 = nn.slice_channels(v1, begin=12, count=4, layout="NCHW8c")  #: "split"
            v4 = nn.concatenate_channels(v3, v2, sizes=(4, 12), layout="NCHW8c")  #: "join"
            v4_NCHW = layout_transform(v4, src_layout="NCHW8c", dst_layout="NCHW")  #: "join"
            return v4_NCHW
    """  # noqa: E501

    def run(module: Module) -> Module:
        greedy = _is_greedy()
        if any(_is_channels_last(binding.value) for function in module.functions.values()
               if not function.is_primitive for binding in walk_bindings(function.body)):
            module = CHANNELS_FIRST.function(module)
        for name, function in module.functions.items():
            if not function.is_primitive:
                plan = plan_layouts(function.body, target, greedy)
                body = rewrite_block(function.body, _Layouts(plan))
                module = module.with_function(name, function.with_body(body))
        return module

    return Pass(NAME, run, LEVEL)


CHANNELS_FIRST = convert_layout({"nn.conv2d": ["NCHW", "OIHW"]})
"""What comes before packing, which is from NCHW alone."""


def _is_greedy() -> bool:
    """What the current `PassContext` says about `relay.layouts`."""
    search = PassContext.current().config.get(LAYOUTS, "planned")
    if search not in ("planned", "greedy"):
        raise OptionError(f"{LAYOUTS} is {search!r}; it may be 'planned' or 'greedy'")
    return bool(search == "greedy")


def _microseconds(item: Alternative) -> str:
    return f"{item.seconds * 1e6:.1f} us"


def _is_channels_last(value: Value) -> bool:
    """Whether a convolution is in a plain layout that is not packed directly."""
    op = value.callee if isinstance(value, Call) else None
    if not isinstance(op, Conv2d) or not (op.data_layout + op.kernel_layout).isupper():
        return False
    return (op.data_layout, op.kernel_layout) != ("NCHW", "OIHW")


@dataclass(frozen=True, slots=True)
class _Packed:
    """A value that was computed packed: `atom` holds it in `layout`, `padding` in its padding
    lanes."""

    atom: Var
    layout: Layout
    origin: Origin
    padding: float | int = 0


class _Layouts:
    """One function being rewritten: the forms in which each of its values exists."""

    def __init__(self, plan: LayoutPlan, outer: _Layouts | None = None) -> None:
        self.plan = plan
        self.builder: BlockBuilder = BlockBuilder(parent=outer.builder if outer else None)
        self.packed: dict[Atom, _Packed] = dict(outer.packed) if outer else {}
        self.plain: dict[Var, Atom] = dict(outer.plain) if outer else {}
        self.forms: dict[tuple[Atom, Form], Atom] = dict(outer.forms) if outer else {}

    def inner(self) -> _Layouts:
        """Those of a nested block."""
        return _Layouts(self.plan, self)

    def adds(self, binding: Binding) -> bool:
        """Adds an operator in the layout that suits it, if it is not plain."""
        match binding.value:
            case Call(Op() as op, arguments):
                return self.altered(binding, op, arguments)
            case _:
                return False

    def plain_atom(self, atom: Atom, origin: Origin) -> Atom:
        """A value in plain form."""
        return self.get(atom, None, origin)

    def computed_at(self, atom: Atom) -> Origin | None:
        """The origin of a packed value."""
        return self.packed[atom].origin if atom in self.packed else None

    # --- operators ------------------------------------------------------------------------------

    def altered(self, binding: Binding, op: Op, arguments: tuple[Atom, ...]) -> bool:
        """Adds the operator in the form that is planned; says no where it stays as it is."""
        chosen = self.plan.chosen.get(binding.var)
        if chosen is None:
            return False
        self.explain(binding, op, chosen)
        given = {
            index: Given(self.packed[argument].layout, self.packed[argument].padding)
            for index, argument in enumerate(arguments)
            if isinstance(argument, Var) and argument in self.packed
        }
        if chosen.result is None:
            self.tell_unpacked(binding, op, arguments, {
                index: form for index, form in given.items() if chosen.forms[index] is None})
        if chosen.is_plain and chosen.op == op:
            return False
        followed = chosen.followed
        if followed is None:
            self.emit_plain(binding, chosen.op, chosen.forms, arguments)
            return True
        if depends_on_padding(chosen, tensor_type(binding.var)):
            padding = padding_of(followed, arguments, given)
            if padding is None:
                remark(NAME, f"{op.name} may fill padded channels with infinite or different "
                       f"numbers, so its arguments are unpacked", binding.origin)
                return False
            followed = replace(followed, padding=padding)
        types = [tensor_type(argument) for argument in arguments]
        if packed_type(followed, types, tensor_type(binding.var)) is None:
            raise LoweringError(
                f"{op.name}, of {binding.origin}, does not give {followed.result} of "
                f"{binding.var.type} in the form that its alter_layout chose; correct alter_layout "
                f"or infer"
            )
        self.emit_packed(binding, followed, arguments)
        return True

    def tell_unpacked(self, binding: Binding, op: Op, arguments: tuple[Atom, ...],
                      given: Mapping[int, Given]) -> None:
        """The remark that an operator doesn't follow its packed arguments."""
        if any(not _is_free(form.layout, arguments[index]) for index, form in given.items()):
            found = self.plan.considered[binding.var]
            reason = found.reason or f"{op.name} costs less on plain ones"
            remark(NAME, f"{reason}, so its arguments are unpacked", binding.origin)

    def explain(self, binding: Binding, op: Op, chosen: Alternative) -> None:
        """The remark that an operator gives another form than it prefers, and why."""
        found = self.plan.considered[binding.var]
        preferred = found.preferred
        if found.chooses and preferred is not None and chosen.result != preferred.result:
            remark(NAME, f"{op.name} works {chosen}: by the model that takes "
                   f"{_microseconds(chosen)}, {preferred} {_microseconds(preferred)} and its "
                   "transforms", binding.origin)

    def emit_packed(
        self, binding: Binding, followed: Followed, arguments: tuple[Atom, ...]
    ) -> None:
        """Adds a call whose result is packed."""
        atoms_wanted = self.get_all(arguments, followed.forms, binding.origin)
        var = self.builder.emit(
            followed.op, *atoms_wanted, origin=binding.origin, name=binding.var.name
        )
        self.packed[binding.var] = _Packed(
            var, followed.result, binding.origin, followed.padding
        )

    def emit_plain(
        self, binding: Binding, op: Op, forms: tuple[Form | None, ...], arguments: tuple[Atom, ...]
    ) -> None:
        """Adds a call that takes packed arguments, such as weights, and gives a plain result."""
        call = Call(op, tuple(self.get_all(arguments, forms, binding.origin)))
        self.builder.append(Binding(binding.var, call, binding.origin))

    # --- forms ----------------------------------------------------------------------------------

    def get_all(
        self, arguments: tuple[Atom, ...], forms: tuple[Form | None, ...], origin: Origin
    ) -> list[Atom]:
        """Each argument in its form."""
        return [self.get(a, form, origin) for a, form in zip(arguments, forms, strict=True)]

    def get(self, atom: Atom, form: Form | None, origin: Origin) -> Atom:
        """A value in a form (None: plain), transformed where it does not exist in it yet."""
        packed = self.packed.get(atom) if isinstance(atom, Var) else None
        if form is None:
            return atom if packed is None else self.get_plain(atom, packed, origin)
        if packed is not None and form == Form(packed.layout):
            return packed.atom
        key = (atom, form)
        if key not in self.forms:
            self.forms[key] = self.transform(atom, packed, form, origin)
        return self.forms[key]

    def get_plain(self, atom: Atom, packed: _Packed, origin: Origin) -> Atom:
        """A packed value unpacked."""
        assert isinstance(atom, Var)
        if atom not in self.plain:
            self.plain[atom] = self.emit_transform(
                packed.atom, packed.layout, Form(plain_layout(packed.layout)), atom, origin
            )
        return self.plain[atom]

    def transform(
        self, atom: Atom, packed: _Packed | None, form: Form, origin: Origin
    ) -> Atom:
        """A value newly transformed to a form: from its packed one if that will do."""
        if packed is not None and not form.expand and packed.layout.logical == form.layout.logical:
            return self.emit_transform(packed.atom, packed.layout, form, atom, origin)
        source = self.get(atom, None, origin)
        if form.expand:
            new_axes = tuple(range(form.expand))
            source = self.builder.emit(ExpandDims(axis=new_axes), source, origin=origin)
        return self.emit_transform(source, plain_layout(form.layout), form, source, origin)

    def emit_transform(
        self, source: Atom, layout: Layout, form: Form, logical: Atom, origin: Origin
    ) -> Atom:
        """A `layout_transform` of `source`, or a reshape where that does the same; `logical` is the
        same value in plain form."""
        shape: Any = tensor_type(logical).shape
        cut = shape if is_padded(layout, shape) else ()
        op: Op = LayoutTransform(str(layout), str(form.layout), cut)
        if keeps_order(layout, form.layout, dict(zip(form.layout.logical, shape, strict=True))):
            op = Reshape(newshape=form.layout.pack_shape(shape))
        stem = "" if isinstance(source, Constant) else f"{getattr(logical, 'name', 'v')}_"
        return self.builder.emit(op, source, origin=origin, name=f"{stem}{form.layout}")


def _is_free(layout: Layout, logical: Atom) -> bool:
    """Whether unpacking a value is a mere reshape."""
    shape = dict(zip(layout.logical, tensor_type(logical).shape, strict=True))
    return keeps_order(layout, plain_layout(layout), shape)
