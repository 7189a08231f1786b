"""The modules before and after a pass -> whether it kept the origins of all code that is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from minitvm.errors import VerifyError
from minitvm.origin import NOWHERE, Origin
from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Function,
    GlobalVar,
    If,
    Module,
    Tuple,
    TupleGetItem,
    TupleType,
    Value,
    Var,
    atoms,
    blocks,
    holds_function,
    walk_bindings,
)
from minitvm.relay.op import Op, Pattern


def check_origins_kept(before: Module, after: Module) -> None:
    """Raises `VerifyError` if a pass lost a source node: no binding of `after`, and no constant
    that it uses, names the node any more. Losing one is right only where no code is left to name
    it, that is if each of its bindings in `before`

    - computed nothing: a tuple, a field of one, another name of an atom, or an `if` itself (what is
      in its branches counts);
    - or was in a function that nothing calls by name, or was this function, or gave it;
    - or was dead: the result does not depend on it, other than by the condition of an `if` or of
      `where`, which goes when both choices are found to be the same. (What a function of the module
      is given for a parameter that its result does not depend on is dead too.)
    - or was static: computed from constants alone, or in a branch not taken of an `if` whose
      condition is constant (in either branch, where it is computed from constants);
    - or may have been the identity on a parameter: it has the type of an argument (or of what the
      function that is called may have captured) which is a parameter, a constant, or itself of
      this kind, or it only moves elements of such arguments, and may have been moved back. (The
      identity on a binding is no reason: the binding that stays takes the origin over.)

    These are necessary conditions; that the value is the same is for the oracle to check.
    """
    kept = set(_origin_names(after))
    needs = _needs(before)
    lost: dict[str, Binding] = {}
    for name in _reachable(before, needs):
        for binding in _binding_losses(before.functions[name], needs[name]):
            for node in binding.origin.names:
                if node not in kept:
                    lost.setdefault(node, binding)
    if lost:
        node, binding = next(iter(lost.items()))
        more = f" ({len(lost) - 1} more nodes are lost too)" if len(lost) > 1 else ""
        raise VerifyError(
            f"the node {node!r} was computed by {describe(binding)}, and no binding names it any "
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
    return atom.origin if isinstance(atom, Constant) else NOWHERE


@dataclass(slots=True)
class _Needs:
    """Of a function: the variables that are static, and those that its result depends on."""

    static: set[Var]
    live: set[Var]


def _needs(module: Module) -> dict[str, _Needs]:
    """Of each function. A parameter is live once that is found; what is given for it is so from
    then on. Those of kernels all are."""
    functions = module.functions
    static = {name: _static_vars(function.body) for name, function in functions.items()}
    used = {name: [name == "main" or function.is_primitive for _ in function.params]
            for name, function in functions.items()}
    found: dict[str, _Needs] = {}
    waiting = list(functions)
    while waiting:
        for name in waiting:
            live = _live_vars(functions[name].body, static[name], used)
            found[name] = _Needs(static[name], live)
        waiting = []
        for name, now in used.items():
            new = [old or param in found[name].live
                   for old, param in zip(now, functions[name].params, strict=True)]
            if new != now:
                used[name], waiting = new, [n for n in functions if not functions[n].is_primitive]
    return found


def _static_vars(body: Block) -> set[Var]:
    """The variables that may be computed from constants alone, if the branches of an `if` that
    constants decide are taken that make them so."""
    static: set[Var] = set()
    _mark_static(body, static, {})
    return static


def _mark_static(block: Block, static: set[Var], fields_of: dict[Var, tuple[bool, ...]]) -> None:
    """Adds to `static`; `fields_of` says which fields of a tuple are where not all are."""

    def fields(atom: Atom, count: int) -> tuple[bool, ...]:
        known = fields_of.get(atom) if isinstance(atom, Var) else None
        return known or (_is_constant(atom, static),) * count

    for binding in block.bindings:
        for inner in blocks(binding.value):
            _mark_static(inner, static, fields_of)
        count = len(binding.var.type.fields) if isinstance(binding.var.type, TupleType) else 0
        found: Sequence[bool] = ()
        match binding.value:
            case Tuple(items):
                found = [_is_constant(atom, static) for atom in items]
            case Var() as atom:
                found = fields(atom, count)
            case If(condition, then, other) if _is_constant(condition, static):
                pairs = zip(fields(then.result, count), fields(other.result, count), strict=True)
                found = [left or right for left, right in pairs]
                if any(_is_constant(inner.result, static) for inner in (then, other)):
                    static.add(binding.var)
            case TupleGetItem(source, index) if fields(source, index + 1)[index]:
                static.add(binding.var)
        if _is_static(binding.value, static):
            static.add(binding.var)
        elif any(found):
            fields_of[binding.var] = tuple(found)


def _reachable(module: Module, needs: Mapping[str, _Needs]) -> list[str]:
    """The functions that main, or a function that it calls, calls by name to some effect."""
    found = {"main": None}
    waiting = ["main"]
    while waiting:
        name = waiting.pop()
        for callee in _callees(module.functions[name].body, needs[name].live):
            name = callee.name
            if isinstance(callee, GlobalVar) and name not in found and name in needs:
                found[name] = None
                waiting.append(name)
    return list(found)


def _callees(body: Block, live: set[Var]) -> list[Var | GlobalVar]:
    """The functions that live calls in a block call, nested blocks included; but for calls that
    give a function which is not called itself."""
    calls = [
        (binding.var, binding.value.callee) for binding in walk_bindings(body)
        if binding.var in live and isinstance(binding.value, Call)
        and isinstance(binding.value.callee, Var | GlobalVar)
    ]
    called = {callee for _, callee in calls}
    return [callee for var, callee in calls if not holds_function(var.type) or var in called]


def _binding_losses(function: Function, needs: _Needs) -> list[Binding]:
    """The bindings whose node must not vanish: live, not static, and not the identity."""
    static, live = needs.static, needs.live
    called = set(_callees(function.body, live))
    identity: set[Var] = set(function.params)
    tuples: dict[Var, Tuple] = {}
    needed: list[Binding] = []
    stack = [(function.body, 0)]
    while stack:
        block, position = stack.pop()
        if position == len(block.bindings):
            continue
        stack.append((block, position + 1))
        binding = block.bindings[position]
        match binding.value:
            case Tuple():
                tuples[binding.var] = binding.value
            case TupleGetItem(Var() as source, index) if source in tuples:
                binding = replace(binding, value=tuples[source].fields[index])
            case Function(params):
                identity.update(params)
        if binding.var not in live or binding.var in static:
            continue
        makes_function = isinstance(binding.value, Function | Call) and holds_function(
            binding.var.type)
        if makes_function and binding.var not in called:
            continue
        if _may_be_identity(binding, static, identity):
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
        case Call(callee, arguments):
            moves = isinstance(callee, Op) and callee.pattern == Pattern.INJECTIVE
            given = [a for a in arguments if known(a)]
            captured = () if isinstance(callee, Op) else identity  # what a function may give
            same = any(a.type == binding.var.type for a in (*given, *captured))
            return same or (moves and all(map(known, arguments)))
        case If(_, then_block, else_block):
            return known(then_block.result) and known(else_block.result)
        case Function():
            return False
        case value:
            return all(map(known, atoms(value)))


def _live_vars(body: Block, static: set[Var], used: Mapping[str, list[bool]]) -> set[Var]:
    """The variables that a block's result depends on, nested blocks included, conditions not;
    `used` says which parameters of functions their results depend on."""
    live: set[Var] = set()
    _mark_live(body, live, {}, static, used)
    return live


def _mark_live(block: Block, live: set[Var], fields_of: dict[Var, set[int]], static: set[Var],
               used: Mapping[str, list[bool]]) -> None:
    """Adds to `live`; `fields_of` says which fields of a tuple are live where not all are."""
    if isinstance(block.result, Var):
        live.add(block.result)
    for binding in reversed(block.bindings):
        wanted = fields_of.get(binding.var, set())
        match binding.value:
            case Tuple(items) if binding.var not in live:
                live.update(a for i, a in enumerate(items) if i in wanted and isinstance(a, Var))
                continue
            case TupleGetItem(Var() as source, index) if binding.var in live or wanted:
                fields_of.setdefault(source, set()).add(index)
                live.add(binding.var)
            case value if binding.var in live or wanted:
                live.add(binding.var)
                live.update(atom for atom in _data(value, used) if isinstance(atom, Var))
                for inner in _blocks_taken(value, static):
                    _mark_live(inner, live, fields_of, static, used)


def _data(value: Value, used: Mapping[str, list[bool]]) -> tuple[Atom, ...]:
    """The atoms of a value but for a condition, which only decides between others, and what a
    function has no use for."""
    match value:
        case Call(GlobalVar(name), arguments) if name in used:
            return tuple(atom for atom, is_used in zip(arguments, used[name], strict=True)
                         if is_used)
        case If():
            return ()
        case Call(Op(name="where"), (_, *choices)):
            return tuple(choices)
        case _:
            return atoms(value)


def describe(binding: Binding) -> str:
    """A binding in a few words, with its origin, for messages."""
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
