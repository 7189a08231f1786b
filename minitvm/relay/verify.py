"""What is true of every relay module, checked.

    R1  scoping: a variable is used where it is in scope, after its binding
    R2  single binding: within a function, a variable is bound once (as a parameter counts)
    R3  types: a variable has the type that its value has, recomputed
    R4  results: a function's result type is that of its body's result
    R5  dims and dtypes: a dim is an int of 0 or more, or depends on named sizes; dtypes are known
    R6  functions: `main` exists; a GlobalVar names a function of the module, with its type
    R7  origins: every binding has one
    R8  primitive functions: at module level, not `main`; parameters are tensors; the body is
        operator calls, tuples and their fields, and the result is a variable
    R9  constants: read-only arrays of a known dtype

`relay.origins.check_origins_kept` compares the modules before and after a pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from minitvm import dtypes
from minitvm.errors import TypeInferenceError, VerifyError
from minitvm.relay.dim import Dim, DimExpr, lower_bound
from minitvm.relay.infer import atom_type, value_type
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Function,
    FuncType,
    GlobalVar,
    Module,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Var,
    atoms,
    blocks,
)
from minitvm.relay.op import Op
from minitvm.relay.origins import check_origins_kept, describe

__all__ = ["check_origins_kept", "verify", "verify_function"]


def verify(module: Module, require_origins: bool = True) -> None:
    """Raises `VerifyError` for the first invariant that a module breaks, and says where."""
    if "main" not in module.functions:
        raise VerifyError("R6: the module has no function @main")
    for name, function in module.functions.items():
        _Verifier(module.functions, name, require_origins).module_function(function)


def verify_function(function: Function, require_origins: bool = True) -> None:
    """`verify` for one function that calls no other."""
    verify(Module({"main": function}), require_origins)


@dataclass(slots=True)
class _Verifier:
    functions: Mapping[str, Function]
    name: str
    require_origins: bool
    bound: set[Var] = field(default_factory=set)
    scope: set[Var] = field(default_factory=set)
    sound_types: set[Type] = field(default_factory=set)

    def fail(self, number: str, where: str, reason: str) -> NoReturn:
        raise VerifyError(f"{number}: in @{self.name}, {where}: {reason}")

    def module_function(self, function: Function) -> None:
        if function.is_primitive:
            self._primitive(function)
        self.function(function, f"the function @{self.name}")

    def function(self, function: Function, where: str) -> None:
        for param in function.params:
            self._bind(param, where)
        self.block(function.body, where)
        self._type(function.result_type, where)
        found = self._atom_type(function.body.result, where)
        if found != function.result_type:
            self.fail("R4", where, f"the result is {found}, declared as {function.result_type}")
        self.scope.difference_update(function.params)

    def block(self, block: Block, where: str) -> None:
        for binding in block.bindings:
            self.binding(binding)
        self._atom(block.result, where)
        self.scope.difference_update(binding.var for binding in block.bindings)

    def binding(self, binding: Binding) -> None:
        where = describe(binding)
        for atom in atoms(binding.value):
            self._atom(atom, where)
        if isinstance(binding.value, Function):
            if binding.value.is_primitive:
                self.fail("R8", where, "a primitive function stands at module level")
            self.function(binding.value, where)
        else:
            for inner in blocks(binding.value):
                self.block(inner, where)
        try:
            found = value_type(binding.value, self.functions)
        except TypeInferenceError as error:
            self.fail("R3", where, str(error))
        if found != binding.var.type:
            self.fail("R3", where, f"the value is {found}, the variable {binding.var.type}")
        if self.require_origins and not binding.origin:
            self.fail("R7", where, "the binding has no origin; a pass merges those it replaces")
        self._bind(binding.var, where)

    def _bind(self, var: Var, where: str) -> None:
        if var in self.bound:
            self.fail("R2", where, f"the variable {var.name} is bound a second time")
        self._type(var.type, where)
        self.bound.add(var)
        self.scope.add(var)

    def _atom(self, atom: Atom, where: str) -> None:
        match atom:
            case Var() if atom not in self.scope:
                reason = "is not in scope here" if atom in self.bound else "is not bound before"
                self.fail("R1", where, f"the variable {atom.name} {reason}")
            case GlobalVar(name, given):
                if name not in self.functions:
                    self.fail("R6", where, f"the module has no function @{name}")
                if given is not None and given != self.functions[name].type:
                    self.fail("R6", where, f"@{name} is {self.functions[name].type}, not {given}")
            case Constant(data):
                if data.flags.writeable:
                    self.fail("R9", where, "a constant's array can be written to")
                if data.dtype.name not in dtypes.SCALARS:
                    self.fail("R9", where, f"a constant has the dtype {data.dtype}")

    def _atom_type(self, atom: Atom, where: str) -> Type:
        try:
            return atom_type(atom, self.functions)
        except TypeInferenceError as error:
            self.fail("R3", where, str(error))

    def _type(self, wanted: Type, where: str) -> None:
        if wanted in self.sound_types:
            return
        match wanted:
            case TensorType(shape, dtype):
                if dtype not in dtypes.SCALARS:
                    self.fail("R5", where, f"{wanted} has an unknown dtype")
                for dim in shape:
                    self._dim(dim, wanted, where)
            case TupleType(items):
                for item in items:
                    self._type(item, where)
            case FuncType(params, result):
                for item in (*params, result):
                    self._type(item, where)
            case _:
                self.fail("R5", where, f"{wanted!r} is no type")
        self.sound_types.add(wanted)

    def _dim(self, dim: Dim, wanted: TensorType, where: str) -> None:
        if isinstance(dim, DimExpr):
            if lower_bound(-dim) > 0:
                self.fail("R5", where, f"{wanted} has a dim that is always negative")
        elif type(dim) is not int or dim < 0:
            self.fail("R5", where, f"{wanted} has a dim that is no integer of 0 or more: {dim!r}")

    def _primitive(self, function: Function) -> None:
        where = f"the primitive function @{self.name}"
        if self.name == "main":
            self.fail("R8", where, "main cannot be primitive")
        for param in function.params:
            if not isinstance(param.type, TensorType):
                self.fail("R8", where, f"the parameter {param.name} is no tensor: {param.type}")
        for binding in function.body.bindings:
            match binding.value:
                case Call(Op()) | Tuple() | TupleGetItem():
                    continue
                case _:
                    self.fail("R8", describe(binding), "a primitive function only calls operators")
        if not isinstance(function.body.result, Var):
            self.fail("R8", where, "the result of a primitive function is a variable")
