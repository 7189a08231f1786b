"""Relay -> the same relay with every type inferred anew.

Variables carry their types from the moment they are built, so this only matters to code that put
bindings together by hand or replaced a parameter by one of another shape.
"""

from __future__ import annotations

from dataclasses import replace

from minitvm.relay.infer import atom_type, value_type
from minitvm.relay.ir import Atom, Binding, Block, Function, If, Module, Value, Var, map_atoms
from minitvm.transform import make_pass


@make_pass("InferType")
def infer_type(module: Module) -> Module:
    """Gives each variable the type that its value has; raises `TypeInferenceError` where it has
    none. Functions are typed in the order of the module; calls of later ones use their signature.

    Before:

        def main(x: Tensor((2, 3), "float32")) -> Tensor((2, 3), "float32"):
            v0 = negative(x)  #: "a"
            return v0

    After:

        def main(x: Tensor((2, 3), "float32")) -> Tensor((2, 3), "float32"):
            v0 = negative(x)  #: "a"
            return v0
    """
    for name, function in module.functions.items():
        module = module.with_function(name, _typed_function(function, {}, module))
    return module


def _typed_function(function: Function, mapping: dict[Var, Atom], module: Module) -> Function:
    body = _typed_block(function.body, mapping, module)
    result_type = atom_type(body.result, module.functions)
    if body is function.body and result_type == function.result_type:
        return function
    return replace(function, body=body, result_type=result_type)


def _typed_block(block: Block, mapping: dict[Var, Atom], module: Module) -> Block:
    bindings = tuple(_typed_binding(binding, mapping, module) for binding in block.bindings)
    result = _lookup(block.result, mapping)
    if result is block.result and all(
        new is old for new, old in zip(bindings, block.bindings, strict=True)
    ):
        return block
    return Block(bindings, result)


def _typed_binding(binding: Binding, mapping: dict[Var, Atom], module: Module) -> Binding:
    value = _typed_value(binding.value, mapping, module)
    found = value_type(value, module.functions)
    if value is binding.value and found == binding.var.type:
        return binding
    var = binding.var
    if found != var.type:
        var = mapping[binding.var] = Var(var.name, found)
    return Binding(var, value, binding.origin)


def _typed_value(value: Value, mapping: dict[Var, Atom], module: Module) -> Value:
    match value:
        case If(condition, then_block, else_block):
            test = _lookup(condition, mapping)
            then_typed = _typed_block(then_block, mapping, module)
            else_typed = _typed_block(else_block, mapping, module)
            same = test is condition and then_typed is then_block and else_typed is else_block
            return value if same else If(test, then_typed, else_typed)
        case Function():
            return _typed_function(value, mapping, module)
        case _:
            return map_atoms(value, mapping) if mapping else value


def _lookup(atom: Atom, mapping: dict[Var, Atom]) -> Atom:
    return mapping.get(atom, atom) if isinstance(atom, Var) else atom
