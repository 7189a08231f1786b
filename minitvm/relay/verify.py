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

`check_origins_kept` compares the modules before and after a pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NoReturn

from minitvm import dtypes
from minitvm.errors import TypeInferenceError, VerifyError
from minitvm.origin import Origin
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
    If,
    Module,
    TensorType,
    Tuple,
    TupleGetItem,
    TupleType,
    Type,
    Value,
    Var,
    atoms,
    blocks,
)
from minitvm.relay.op import Op


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
        where = _describe(binding)
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
                    self.fail("R8", _describe(binding), "a primitive function only calls operators")
        if not isinstance(function.body.result, Var):
            self.fail("R8", where, "the result of a primitive function is a variable")


def _describe(binding: Binding) -> str:
    value = binding.value
    match value:
        case Call(callee, arguments):
            head = callee.name if isinstance(callee, Op) else repr(callee)
            names = (a.name if isinstance(a, Var | GlobalVar) else "const" for a in arguments)
            text = f"{head}({', '.join(names)})"
        case _:
            text = type(value).__name__
    place = f", of {binding.origin}" if binding.origin else ""
    return f"{binding.var.name} = {text}{place}"


# --- origins across a pass ----------------------------------------------------------------------


def check_origins_kept(before: Module, after: Module) -> None:
    """Raises `VerifyError` if a pass lost a source node: no binding of `after`, and no constant
    that it uses, names the node any more. Losing one is right only where no code is left to name
    it, that is if each of its bindings in `before`

    - computed nothing: a tuple, a field of one, another name of an atom, or an `if` itself (what is
      in its branches counts);
    - or was dead: the result does not depend on it, other than by the condition of an `if` or of
      `where`, which goes when both choices are found to be the same;
    - or was static: computed from constants alone, or in a branch not taken of an `if` whose
      condition is constant (in either branch, where it is computed from constants);
    - or may have been the identity on a parameter: it has the type of an argument which is a
      parameter, a constant, or itself of this kind. (The identity on a binding is no reason: the
      binding that stays takes the origin over.)

    These are necessary conditions; that the value is the same is for the oracle to check.
    """
    kept = set(_origin_names(after))
    lost: dict[str, Binding] = {}
    for name in _reachable(before):
        for binding in _binding_losses(before.functions[name]):
            for node in binding.origin.names:
                if node not in kept:
                    lost.setdefault(node, binding)
    if lost:
        node, binding = next(iter(lost.items()))
        more = f" ({len(lost) - 1} more nodes are lost too)" if len(lost) > 1 else ""
        raise VerifyError(
            f"the node {node!r} was computed by {_describe(binding)}, and no binding names it any "
            f"more{more}; give what replaces it the merged origin"
        )


def _origin_names(module: Module) -> Iterable[str]:
    for function in module.functions.values():
        stack = [function.body]
        while stack:
            block = stack.pop()
            yield from _constant_origin(block.result).names
            for binding in block.bindings:
                yield from binding.origin.names
                for atom in atoms(binding.value):
                    yield from _constant_origin(atom).names
                stack.extend(blocks(binding.value))


def _constant_origin(atom: Atom) -> Origin:
    return atom.origin if isinstance(atom, Constant) else Origin()


def _reachable(module: Module) -> list[str]:
    """The functions that main needs."""
    found = {"main": None}
    waiting = ["main"]
    while waiting:
        for name in _global_names(module.functions[waiting.pop()].body):
            if name not in found and name in module.functions:
                found[name] = None
                waiting.append(name)
    return list(found)


def _global_names(body: Block) -> list[str]:
    names: list[str] = []
    stack = [body]
    while stack:
        block = stack.pop()
        used = [block.result, *(atom for b in block.bindings for atom in atoms(b.value))]
        names.extend(atom.name for atom in used if isinstance(atom, GlobalVar))
        stack.extend(inner for b in block.bindings for inner in blocks(b.value))
    return names


def _binding_losses(function: Function) -> list[Binding]:
    """The bindings whose node must not vanish: live, not static, and not the identity."""
    live = _live_vars(function.body)
    static: set[Var] = set()
    identity: set[Var] = set(function.params)
    needed: list[Binding] = []
    stack = [(function.body, 0)]
    while stack:
        block, position = stack.pop()
        if position == len(block.bindings):
            continue
        stack.append((block, position + 1))
        binding = block.bindings[position]
        if binding.var not in live:
            continue
        if _is_static(binding.value, static):
            static.add(binding.var)
        elif _may_be_identity(binding, static, identity):
            identity.add(binding.var)
        elif isinstance(binding.value, Call | Function):
            needed.append(binding)
        stack.extend((inner, 0) for inner in _blocks_taken(binding.value, static))
    return needed


def _blocks_taken(value: Value, static: set[Var]) -> tuple[Block, ...]:
    """The nested blocks that a pass must keep: not those of an `if` whose condition is static, but
    for the branch that a constant takes."""
    match value:
        case If(Constant(condition), then_block, else_block):
            return (then_block if condition.item() else else_block,)
        case If(condition) if condition in static:
            return ()
    return blocks(value)


def _is_constant(atom: Atom, static: set[Var]) -> bool:
    return isinstance(atom, Constant) or atom in static


def _is_static(value: Value, static: set[Var]) -> bool:
    if isinstance(value, If | Function) or (
        isinstance(value, Call) and not isinstance(value.callee, Op)
    ):
        return False
    return all(_is_constant(atom, static) for atom in atoms(value))


def _may_be_identity(binding: Binding, static: set[Var], identity: set[Var]) -> bool:
    def known(atom: Atom) -> bool:
        return _is_constant(atom, static) or atom in identity

    match binding.value:
        case Call(_, arguments):
            return any(a.type == binding.var.type for a in arguments if known(a))
        case If(_, then_block, else_block):
            return known(then_block.result) and known(else_block.result)
        case Function():
            return False
        case value:
            return all(map(known, atoms(value)))


def _live_vars(body: Block) -> set[Var]:
    """The variables that a block's result depends on, nested blocks included, conditions not."""
    live: set[Var] = set()
    _mark_live(body, live, {})
    return live


def _mark_live(block: Block, live: set[Var], fields_of: dict[Var, set[int]]) -> None:
    """Adds to `live`; `fields_of` says which fields of a tuple are live where not all are."""
    if isinstance(block.result, Var):
        live.add(block.result)
    for binding in reversed(block.bindings):
        used = fields_of.get(binding.var, set())
        match binding.value:
            case Tuple(items) if binding.var not in live:
                live.update(a for i, a in enumerate(items) if i in used and isinstance(a, Var))
                continue
            case TupleGetItem(Var() as source, index) if binding.var in live or used:
                fields_of.setdefault(source, set()).add(index)
                live.add(binding.var)
            case value if binding.var in live or used:
                live.add(binding.var)
                live.update(atom for atom in _data(value) if isinstance(atom, Var))
                for inner in blocks(value):
                    _mark_live(inner, live, fields_of)


def _data(value: Value) -> tuple[Atom, ...]:
    """The atoms of a value but for a condition, which only decides between others."""
    match value:
        case If():
            return ()
        case Call(Op(name="where"), (_, *choices)):
            return tuple(choices)
        case _:
            return atoms(value)
