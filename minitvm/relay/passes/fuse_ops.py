"""Relay -> `main` that only calls kernels, and the kernels: primitive functions of fused operators.

`partition` says which operators share a kernel. Here a block becomes a dataflow graph for it, and
its groups become module-level functions with the attribute `primitive`:

- parameters are what the group reads: variables, and constants of more than one element, which
  `main` passes. Constants of one element stay inside, where they become immediates;
- equal groups share one function, whose bindings have the origins of all of them; each call in
  `main` has its own;
- a function that only gives its argument another shape is marked `reshape_only`: planning memory
  makes a view of it;
- tuples, fields of tuples from elsewhere, branches and calls of functions stay in `main`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from minitvm.errors import OptionError
from minitvm.relay.build import BlockBuilder, rebuild_function
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
    Value,
    Var,
    atoms,
    blocks,
    use_counts,
)
from minitvm.relay.kernels import Kernels
from minitvm.relay.op import Op, Pattern
from minitvm.relay.passes.dead_code_elimination import without_dead_code
from minitvm.relay.passes.partition import Node, Partition
from minitvm.relay.pattern.matching import Graph
from minitvm.relay.pattern.rules import FusionRule, as_rules, rule_groups
from minitvm.remarks import remark
from minitvm.transform import PassContext, make_pass

DEFAULT_MAX_DEPTH = 64
"""The most operators in a kernel, unless the option `relay.fuse_max_depth` says otherwise."""

LAYOUT_CHANGES = frozenset({"layout_transform"})
"""Operators that only level 4 fuses with others."""


@make_pass("FuseOps")
def fuse_ops(module: Module) -> Module:
    """Makes kernels of the operators of a module. The optimisation level says how: 0 one operator
    each, 1 phase 0, 2 phases 0 and 1, 3 all phases of `partition`, 4 also across layout changes.

    The option `relay.fusion_rules` takes patterns (`relay.pattern`): what they match becomes one
    kernel each, before the phases look at the rest.

    Before:

        def main(x: Tensor((3,), "int8"), y: Tensor((), "int8")) -> Tensor((3,), "int8"):
            v0 = add(x, y)  #: "a"
            v1 = abs(v0)  #: "b"
            return v1

    After:

        def main(x: Tensor((3,), "int8"), y: Tensor((), "int8")) -> Tensor((3,), "int8"):
            v0 = fused_add_abs(x, y)  #: "a", "b"
            return v0

        @function(primitive=True)
        def fused_add_abs(p0: Tensor((3,), "int8"), p1: Tensor((), "int8")) -> Tensor((3,), "int8"):
            v0 = add(p0, p1)  #: "a"
            v1 = abs(v0)  #: "b"
            return v1
    """
    return fuse_with_options(module, PassContext.current().opt_level)


def fuse_with_options(module: Module, level: int) -> Module:
    """`fuse_ops` at a level of its own, with the options of the context."""
    context = PassContext.current()
    limit = context.config.get("relay.fuse_max_depth", DEFAULT_MAX_DEPTH)
    if not isinstance(limit, int) or limit < 1:
        raise OptionError(f"relay.fuse_max_depth is {limit!r}; it takes a positive integer")
    rules = as_rules(context.config.get("relay.fusion_rules", ()))
    return fuse(module, level, limit, rules)


def fuse(
    module: Module,
    level: int,
    max_depth: int = DEFAULT_MAX_DEPTH,
    rules: Sequence[FusionRule] = (),
) -> Module:
    """`fuse_ops` at a level of its own, with at most `max_depth` operators in a kernel."""
    kernels = Kernels(taken=set(module.functions))
    for name, function in module.functions.items():
        if not function.is_primitive:
            direct = rebuild_function(function, _forward)
            if direct is not function:  # tuples that nothing reads any longer keep values alive
                direct = without_dead_code(direct)
            graph = Graph(direct.body) if rules else None
            body = _Fuser(kernels, level, max_depth, rules, graph).fuse_block(direct.body)
            if body is not function.body:
                module = module.with_function(name, direct.with_body(body))
    made = kernels.finished()
    return Module({**module.functions, **made}) if made else module


def _forward(builder: BlockBuilder, binding: Binding) -> Value | None:
    """Reads through aliases and through fields of tuples built here."""
    match binding.value:
        case Var() | Constant() | GlobalVar() as atom:
            return atom
        case TupleGetItem(source, index) if isinstance(made := builder.value_of(source), Tuple):
            return made.fields[index]
    return None


# --- a block as a dataflow graph ----------------------------------------------------------------


def dataflow(block: Block, level: int) -> tuple[list[Binding], list[Node]]:
    """The bindings that are operations, and a node for each."""
    operations: list[Binding] = []
    nodes: list[Node] = []
    index_of: dict[Var, int] = {}
    for binding in block.bindings:
        value = binding.value
        node = _node(value, index_of, level)
        for position, atom in enumerate(_reads(value)):
            source = index_of.get(atom) if isinstance(atom, Var) else None
            if source is None:
                continue
            if node is None:
                nodes[source].escapes = True
            else:
                edge = _edge_pattern(node.pattern, value, position, binding.var)
                nodes[source].users.append((len(nodes), edge))
        if node is not None:
            index_of[binding.var] = len(nodes)
            nodes.append(node)
            operations.append(binding)
    if isinstance(block.result, Var) and block.result in index_of:
        nodes[index_of[block.result]].escapes = True
    return operations, nodes


def _node(value: Value, index_of: dict[Var, int], level: int) -> Node | None:
    match value:
        case Call(Op() as op, _):
            if op.name in LAYOUT_CHANGES and level < 4:
                return Node(Pattern.OPAQUE)
            joins_many = op.arity is None and op.pattern == Pattern.INJECTIVE
            return Node(op.pattern, joins_many, op.reads_through_copies)
        case TupleGetItem(Var() as source, _) if source in index_of:
            return Node(Pattern.INJECTIVE)
        case _:
            return None


def _reads(value: Value) -> Sequence[Atom]:
    if nested := blocks(value):
        return (*atoms(value), *(var for block in nested for var in use_counts(block)))
    return atoms(value)[1:] if _is_function_call(value) else atoms(value)


def _is_function_call(value: Value) -> bool:
    return isinstance(value, Call) and isinstance(value.callee, GlobalVar)


def _edge_pattern(pattern: Pattern, value: Value, position: int, result: Var) -> Pattern:
    """How an operation reads an argument: one that broadcasts reads those of its own shape
    elementwise, and the others by broadcast."""
    if pattern > Pattern.BROADCAST:
        return pattern
    given = getattr(atoms(value)[position].type, "shape", None)
    same = given == getattr(result.type, "shape", None)
    return Pattern.ELEMWISE if same else Pattern.BROADCAST


# --- blocks -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Fuser:
    """Rewrites blocks in terms of kernels."""

    kernels: Kernels
    level: int
    limit: int
    rules: Sequence[FusionRule] = ()
    graph: Graph | None = None

    def fuse_block(self, block: Block) -> Block:
        """The block, with each group of operations replaced by a call at its last member."""
        if self.graph is not None:
            block = self._by_rules(block, self.graph)
        operations, nodes = dataflow(block, self.level)
        partition = Partition(nodes, self.level, self.limit)
        self._remark(partition, operations)
        calls = self._calls(operations, partition)
        bindings: list[Binding] = []
        for binding in block.bindings:
            if binding.var not in calls:
                bindings.append(self._nested(binding))
            elif (call := calls[binding.var]) is not None:
                bindings.append(call)
        if all(a is b for a, b in zip(bindings, block.bindings)) and not calls:
            return block
        return Block(tuple(bindings), block.result)

    def _calls(
        self, operations: list[Binding], partition: Partition
    ) -> dict[Var, Binding | None]:
        """For each operation that goes into a kernel, None, or the call that replaces it."""
        calls: dict[Var, Binding | None] = {}
        for members in partition.groups().values():
            group = _without_foreign_fields([operations[member] for member in members])
            if group:
                calls.update((binding.var, None) for binding in group)
                calls[group[-1].var] = self.kernels.call(group)
        return calls

    def _by_rules(self, block: Block, graph: Graph) -> Block:
        """The block, with what the rules match replaced by calls of kernels."""
        calls: dict[Var, Binding | None] = {}
        for rule, group in rule_groups(self.rules, block, graph):
            if len(group) > self.limit:
                reason = (
                    f"the rule {rule.name} matches {len(group)} operators; a kernel holds "
                    f"{self.limit} (relay.fuse_max_depth)"
                )
                remark("FuseOps", reason, group[-1].origin)
                continue
            calls.update((binding.var, None) for binding in group)
            calls[group[-1].var] = self.kernels.call(group, {"Composite": rule.name})
        kept = (calls.get(binding.var, binding) for binding in block.bindings)
        return Block(tuple(b for b in kept if b is not None), block.result) if calls else block

    def _nested(self, binding: Binding) -> Binding:
        match binding.value:
            case If(condition, then_block, else_block):
                then_fused, else_fused = self.fuse_block(then_block), self.fuse_block(else_block)
                if then_fused is then_block and else_fused is else_block:
                    return binding
                return Binding(binding.var, If(condition, then_fused, else_fused), binding.origin)
            case Function(_, body):
                value = binding.value.with_body(self.fuse_block(body))
                same = value is binding.value
                return binding if same else Binding(binding.var, value, binding.origin)
            case _:
                return binding

    def _remark(self, partition: Partition, operations: list[Binding]) -> None:
        seen: set[tuple[int, int]] = set()
        for refusal in partition.refusals:
            pair = (refusal.node, refusal.dominator)
            if pair not in seen:
                seen.add(pair)
                source, end = operations[refusal.node], operations[refusal.dominator]
                reason = (
                    f"{source.var.name} is not fused into {end.var.name}: the kernel would hold "
                    f"more than {self.limit} operators (relay.fuse_max_depth)"
                )
                remark("FuseOps", reason, source.origin)


def _without_foreign_fields(group: list[Binding]) -> list[Binding]:
    """The group without fields of tuples from elsewhere, which stay in `main`."""
    inside = {binding.var for binding in group}
    return [
        binding
        for binding in group
        if not isinstance(binding.value, TupleGetItem) or binding.value.tuple in inside
    ]
