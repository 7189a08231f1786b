"""Relay -> simpler relay with the same values, by the rules of `simplify_rules`."""

from __future__ import annotations

from minitvm.origin import merge
from minitvm.relay.build import BlockBuilder, rebuild_module
from minitvm.relay.ir import (
    Atom,
    Binding,
    Call,
    Constant,
    GlobalVar,
    Module,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Value,
    Var,
)
from minitvm.relay.op import Op
from minitvm.relay.passes.dead_code_elimination import without_dead_code_of
from minitvm.relay.passes.patterns import Rule
from minitvm.relay.passes.simplify_rules import RULES
from minitvm.transform import make_pass

BY_OPERATOR: dict[str, list[Rule]] = {}
for _rule in RULES:
    BY_OPERATOR.setdefault(_rule.parsed.operator, []).append(_rule)


@make_pass("SimplifyExpr", opt_level=3)
def simplify_expr(module: Module) -> Module:
    """Applies the rules until none applies, reads fields of known tuples directly, and drops what
    is no longer used.

    Before:

        def main(x: Tensor((2, 3), "float32")) -> Tensor((6,), "float32"):
            v0 = multiply(x, const(1.0, (), "float32"))  #: "a"
            v1 = reshape(v0, newshape=(3, 2))  #: "b"
            v2 = reshape(v1, newshape=(6,))  #: "c"
            return v2

    After:

        def main(x: Tensor((2, 3), "float32")) -> Tensor((6,), "float32"):
            v0 = reshape(x, newshape=(6,))  #: "b", "c"
            return v0
    """
    return without_dead_code_of(module, rebuild_module(module, _simplify))


def _simplify(builder: BlockBuilder, binding: Binding) -> Value | None:
    match binding.value:
        case Var() | Constant() | GlobalVar() as atom:
            return atom
        case TupleGetItem(source, index) if isinstance(made := builder.value_of(source), Tuple):
            return made.fields[index]
        case Tuple(fields):
            return _whole_tuple(builder, fields)
        case Call(Op()) as call if isinstance(binding.var.type, TensorType):
            return _by_rules(builder, binding, call, binding.var.type)
        case _:
            return None


def _whole_tuple(builder: BlockBuilder, fields: tuple[Atom, ...]) -> Atom | None:
    """The tuple that all fields are taken from, each in its place."""
    sources = [builder.value_of(atom) for atom in fields]
    whole = sources[0].tuple if sources and isinstance(sources[0], TupleGetItem) else None
    if not isinstance(whole, Var) or not isinstance(whole.type, TupleType):
        return None
    same = len(whole.type.fields) == len(fields) and all(
        isinstance(source, TupleGetItem) and source.tuple is whole and source.index == place
        for place, source in enumerate(sources)
    )
    return whole if same else None


def _by_rules(
    builder: BlockBuilder, binding: Binding, call: Call, found: TensorType
) -> Value | None:
    """The call after as many rules as apply, bound with the origins of what it replaces."""
    value: Value = call
    origins = [binding.origin]
    while isinstance(value, Call):
        for rule in BY_OPERATOR.get(value.callee.name, ()) if isinstance(value.callee, Op) else ():
            if (applied := rule.apply(value, found, builder)) is not None:
                value = applied[0]
                origins += applied[1]
                break
        else:
            break
    if value is call:
        return None
    source = merge(*origins)
    if isinstance(value, Call):
        return builder.emit(value, origin=source, name=binding.var.name)
    if isinstance(value, Var | Constant | GlobalVar):
        builder.add_origin(value, source)
    return value
