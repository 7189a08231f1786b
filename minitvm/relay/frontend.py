"""Models of other frameworks -> a relay module and parameters, under TVM's names.

    mod, params = relay.frontend.from_onnx(model, {"input": (1, 3, 224, 224)})

The importer itself is `minitvm.relay.onnx`. `freeze_params` says what weights are: constants of the
module, or inputs of `main` whose values are in `params`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from minitvm.errors import InputError, ModelError
from minitvm.origin import origin
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Function,
    Module,
    TensorType,
    Tuple,
    Value,
    Var,
    atoms,
    map_block,
)
from minitvm.relay.onnx.importer import from_onnx as import_onnx
from minitvm.relay.onnx.reader import read_model


def from_onnx(
    model: Any, shape: Mapping[str, Sequence[int]] | None = None,
    dtype: str | Mapping[str, str] | None = None, opset: int | None = None,
    freeze_params: bool = True,
) -> tuple[Module, dict[str, np.ndarray]]:
    """The relay module of an ONNX model (a path, bytes or an `onnx.ModelProto`), and parameters.

    shape: the shapes of inputs by name, where the model leaves them open.
    dtype: of the inputs, all of them or by name. opset: of the model. Both are only checked.
    freeze_params: weights are constants, and the parameters empty; else initializers that `main`
    uses as they are become inputs of it, and the parameters hold their values. What importing
    changes, such as a matrix that it transposes, stays a constant.

    Raises `ModelError` for what is no such model.
    """
    module = import_onnx(model, {name: tuple(dims) for name, dims in (shape or {}).items()})
    _check_dtypes(module.main, dtype)
    if opset is None and freeze_params:
        return module, {}
    proto, _ = read_model(model)
    declared = [item.version for item in proto.opset_import if item.domain in ("", "ai.onnx")]
    if opset is not None and opset not in declared:
        raise ModelError(f"the model is of opset {', '.join(map(str, declared))}, not {opset}; "
                         "convert it with onnx.version_converter")
    if freeze_params:
        return module, {}
    main, params = lift_constants(module.main, {item.name for item in proto.graph.initializer})
    return module.with_function("main", main), params


def _check_dtypes(main: Function, dtype: str | Mapping[str, str] | None) -> None:
    for param in main.params:
        wanted = dtype.get(param.name) if isinstance(dtype, Mapping) else dtype
        found = param.type.dtype if isinstance(param.type, TensorType) else str(param.type)
        if wanted is not None and wanted != found:
            raise ModelError(f"the input {param.name!r} of the model is {found}, not {wanted}; "
                             "leave the dtype out")


def lift_constants(
    function: Function, names: set[str]
) -> tuple[Function, dict[str, np.ndarray]]:
    """The function with those constants as parameters whose origin is one of `names`, and their
    values. Constants in nested blocks stay."""
    lifted: dict[Constant, Var] = {}
    taken = {param.name for param in function.params}
    for binding in function.body.bindings:
        for atom in atoms(binding.value):
            if isinstance(atom, Constant) and atom not in lifted and len(atom.origin.names) == 1:
                name = atom.origin.names[0]
                if name in names and name not in taken:
                    taken.add(name)
                    lifted[atom] = Var(name, atom.type)

    def get(atom: Atom) -> Atom:
        return lifted.get(atom, atom) if isinstance(atom, Constant) else atom

    def lift(value: Value) -> Value:
        match value:
            case Call(callee, arguments):
                return Call(callee, tuple(map(get, arguments)))
            case Tuple(fields):
                return Tuple(tuple(map(get, fields)))
        return value

    bindings = tuple(Binding(b.var, lift(b.value), b.origin) for b in function.body.bindings)
    main = Function((*function.params, *lifted.values()), Block(bindings, function.body.result),
                    function.result_type, function.attrs)
    return main, {var.name: constant.data for constant, var in lifted.items()}


def bind_params_by_name(function: Function, params: Mapping[str, Any]) -> Function:
    """The function with constants in place of the parameters that have a value in `params`.

    Raises `InputError` for a name that is no parameter, and for a value of another type.
    """
    by_name = {param.name: param for param in function.params}
    constants: dict[Var, Atom] = {}
    for name, value in params.items():
        if name not in by_name:
            raise InputError(f"the function has no parameter {name!r} to give a value; it has "
                             f"{', '.join(by_name) or 'none'}")
        constant = Constant(np.array(value), origin(name))
        if constant.type != by_name[name].type:
            raise InputError(f"the parameter {name!r} is {by_name[name].type}, and the value given "
                             f"for it {constant.type}")
        constants[by_name[name]] = constant
    if not constants:
        return function
    left = tuple(param for param in function.params if param not in constants)
    body = map_block(function.body, constants)
    return Function(left, body, function.result_type, function.attrs)
