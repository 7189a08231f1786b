"""A function -> for each of its calls, the form in which it is computed, by least modelled cost.

    nodes     calls that have alternatives, and values that several of these calls read
    states    of a call its alternatives; of a value the layout in which it is computed, with the
              set of other forms in which it is made
    costs     of calls their seconds; of values the transforms to these forms, each made once
    edges     a value that one call reads: the transforms between two alternatives
              a value that several read: infinite unless it is there in the forms that they take
              elementwise calls: a kernel of their own, where their argument is transformed for them

`quadratic.solve` finds the assignment of least cost. Where it had to guess, and the greedy one
(each operator follows its arguments, else takes what it prefers) costs less, that is taken: so a
plan never costs more than it. Values that depend on nothing but constants are transformed at
compile time, for nothing. Not modelled: that transforms are fused with their neighbours, and that
a branch is taken but sometimes. A value that is read in more than `MOST_FORMS` forms has its
transforms counted once for each reader.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from minitvm.relay.ir import (
    Atom,
    Binding,
    Block,
    Call,
    Constant,
    Function,
    If,
    TensorType,
    Value,
    Var,
    atoms,
    tensor_type,
)
from minitvm.relay.layout import Layout
from minitvm.relay.op import Op, Pattern
from minitvm.relay.passes.layout_alternatives import (
    Alternative,
    Alternatives,
    Enumerator,
    Paddings,
    depends_on_padding,
)
from minitvm.relay.passes.layout_costs import Costs
from minitvm.relay.passes.layout_rules import Form
from minitvm.relay.passes.quadratic import Problem, solve
from minitvm.target import Target

MOST_FORMS = 5
Forms = frozenset[Form | None]


@dataclass(frozen=True, slots=True)
class LayoutPlan:
    """What is chosen for each call, what was `considered`, the cost in seconds, that of the greedy
    choice, and whether no other choice costs less by the model."""

    chosen: dict[Var, Alternative]
    considered: dict[Var, Alternatives]
    cost: float
    greedy_cost: float
    exact: bool

    def __str__(self) -> str:
        """A line for each call that has forms to choose from, and one for their sum."""
        lines = [
            f"{var.name}: {', '.join(_priced(item, self.chosen[var]) for item in found.items)}"
            for var, found in self.considered.items() if found.chooses
        ]
        kind = "the least there is" if self.exact else "not known to be the least"
        total = f"in all {self.cost * 1e6:.1f} us, greedily {self.greedy_cost * 1e6:.1f} us; {kind}"
        return "\n".join([*lines, total])


def plan_layouts(body: Block, target: Target, greedy: bool = False) -> LayoutPlan:
    """The plan of least cost, or the greedy one, for a function's body with its nested blocks."""
    graph = read_graph(body, Costs(target))
    problem = graph.problem()
    by_greed = graph.greedy()
    states = graph.states_of(by_greed)
    greedy_cost, exact = problem.total(states), False
    cost, chosen = greedy_cost, by_greed
    if not greedy:
        solution = solve(problem)
        if solution.cost <= greedy_cost:
            cost, exact = solution.cost, solution.exact
            chosen = graph.chosen(solution.states)
    return LayoutPlan(chosen, graph.considered, cost, greedy_cost, exact)


def read_graph(body: Block, costs: Costs) -> LayoutGraph:
    """The calls of a function, with their alternatives, and who reads what."""
    graph = LayoutGraph(costs)
    graph.read(body)
    return graph


@dataclass(slots=True)
class _Reader:
    """A call that has a choice, and the forms of one value that each alternative reads."""

    var: Var
    forms: list[Forms]


@dataclass(slots=True)
class LayoutGraph:
    """Calls in order, with their alternatives; values with the forms in which they are read."""

    costs: Costs
    enumerator: Enumerator = field(init=False)
    calls: dict[Var, Call] = field(default_factory=dict)
    considered: dict[Var, Alternatives] = field(default_factory=dict)
    readers: dict[Var, list[_Reader]] = field(default_factory=dict)
    forced: dict[Var, set[Form | None]] = field(default_factory=dict)
    """The forms in which a value is read whatever is chosen."""
    possible: dict[Atom, Paddings] = field(default_factory=dict)
    constant: set[Var] = field(default_factory=set)
    nodes: dict[Var, int] = field(default_factory=dict)
    values: dict[int, tuple[Var, list[tuple[Layout | None, Forms]]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.enumerator = Enumerator(self.costs)

    # --- reading a function ---------------------------------------------------------------------

    def read(self, block: Block) -> None:
        """Adds a block's calls, and those of nested blocks."""
        for binding in block.bindings:
            for inner in _blocks(binding.value):
                self.read(inner)
            found = self.enumerator.alternatives(binding, self.possible)
            if found is None:
                self.force(binding.value)
            else:
                self.add(binding, found)
        if isinstance(block.result, Var):
            self.forced.setdefault(block.result, set()).add(None)

    def force(self, value: Value) -> None:
        """Everything that this reads is read in plain form."""
        for atom in atoms(value):
            if isinstance(atom, Var):
                self.forced.setdefault(atom, set()).add(None)

    def add(self, binding: Binding, found: Alternatives) -> None:
        """A call of an operator."""
        call = binding.value
        assert isinstance(call, Call)
        self.calls[binding.var] = call
        self.considered[binding.var] = found
        if all(isinstance(a, Constant) or a in self.constant for a in call.arguments):
            self.constant.add(binding.var)
        packed = {item.result: item.padding for item in reversed(found.items) if item.result}
        if packed:
            self.possible[binding.var] = packed
        for argument in dict.fromkeys(call.arguments):
            if isinstance(argument, Var):
                forms = [_forms_of(argument, call, item) for item in found.items]
                if len(forms) == 1:
                    self.forced.setdefault(argument, set()).update(forms[0])
                else:
                    reader = _Reader(binding.var, forms)
                    self.readers.setdefault(argument, []).append(reader)

    # --- the problem ----------------------------------------------------------------------------

    def problem(self) -> Problem:
        """The nodes and edges; numbers of nodes are kept in `nodes` and `values`."""
        problem = Problem()
        for var, found in self.considered.items():
            self.nodes[var] = problem.add_node([item.seconds for item in found.items])
        for var in dict.fromkeys((*self.considered, *self.readers, *self.forced)):
            self.add_value(problem, var)
        return problem

    def add_value(self, problem: Problem, var: Var) -> None:
        """What it costs to have a value in the forms in which it is read."""
        if not isinstance(var.type, TensorType):
            return
        readers, forced = self.readers.get(var, []), frozenset(self.forced.get(var, ()))
        wanted = {form for reader in readers for forms in reader.forms for form in forms} - forced
        if len(readers) < 2 or len(wanted) > MOST_FORMS:
            for reader in readers:
                self.add_transforms(problem, var, reader, forced)
            if not readers:
                self.add_transforms(problem, var, None, forced)
        else:
            self.add_shared(problem, var, readers, forced, wanted)
        for reader in readers:
            self.forbid(problem, var, reader)
            self.add_loss_of_fusion(problem, var, reader)

    def homes(self, var: Var) -> list[Layout | None]:
        """In which layout each alternative of a value's call computes it; plain if none does."""
        found = self.considered.get(var)
        return [item.result for item in found.items] if found else [None]

    def transforms(self, var: Var, home: Layout | None, forms: Forms) -> float:
        """What it costs to have a value in forms: nothing if it is constant."""
        if var in self.constant:
            return 0.0
        return self.costs.conversion(tensor_type(var), home, forms)

    def add_transforms(
        self, problem: Problem, var: Var, reader: _Reader | None, forced: Forms
    ) -> None:
        """A value that one call reads, or none that has a choice."""
        read = [forced | forms for forms in reader.forms] if reader else [forced]
        homes, distinct = list(dict.fromkeys(self.homes(var))), list(dict.fromkeys(read))
        table = np.array([[self.transforms(var, home, forms) for forms in distinct]
                          for home in homes])
        costs = table[[homes.index(home) for home in self.homes(var)]]
        costs = costs[:, [distinct.index(forms) for forms in read]]
        producer = self.nodes.get(var)
        match producer, reader:
            case int(), None:
                problem.costs[producer] += costs[:, 0]
            case int(), _Reader(other):
                problem.add_edge(producer, self.nodes[other], costs)
            case None, _Reader(other):
                problem.costs[self.nodes[other]] += costs[0]

    def add_shared(self, problem: Problem, var: Var, readers: Sequence[_Reader], forced: Forms,
                   wanted: set[Form | None]) -> None:
        """A value that several calls read: a node of its own, for the forms in which it is."""
        states: list[tuple[Layout | None, Forms]] = []
        order = sorted(wanted, key=str)
        for home in dict.fromkeys(self.homes(var)):
            there = None if home is None else Form(home)
            others = [form for form in order if form != there]
            states += [(home, forced | {there, *made}) for count in range(len(others) + 1)
                       for made in itertools.combinations(others, count)]
        node = problem.add_node([
            self.transforms(var, home, forms - {None} if home is None else forms - {Form(home)})
            for home, forms in states])
        self.values[node] = var, states
        for reader in readers:
            missing = [[0.0 if read <= forms else np.inf for read in reader.forms]
                       for _, forms in states]
            problem.add_edge(node, self.nodes[reader.var], np.array(missing))
        if var in self.nodes:
            apart = [[0.0 if home == made else np.inf for made in self.homes(var)]
                     for home, _ in states]
            problem.add_edge(node, self.nodes[var], np.array(apart))

    def forbid(self, problem: Problem, var: Var, reader: _Reader) -> None:
        """Infinite costs where a call that needs certain numbers in padding lanes would read a
        value transformed, which has zeros there."""
        result = reader.var.type
        assert isinstance(result, TensorType)
        padding = self.possible.get(var, {})
        items = self.considered[reader.var].items
        refused = np.zeros((len(self.homes(var)), len(items)))
        for column, item in enumerate(items):
            if not depends_on_padding(item, result):
                continue
            for form in reader.forms[column]:
                if form is None or form.expand or not padding.get(form.layout):
                    continue
                for row, home in enumerate(self.homes(var)):
                    if home != form.layout:
                        refused[row, column] = np.inf
        if refused.any():
            problem.add_edge(self.nodes[var], self.nodes[reader.var], refused)

    def add_loss_of_fusion(self, problem: Problem, var: Var, reader: _Reader) -> None:
        """What it costs that an elementwise call is not computed along with its argument, since
        there is a transform between them."""
        call = self.calls[reader.var]
        assert isinstance(call.callee, Op)
        if var not in self.nodes or call.callee.pattern > Pattern.BROADCAST:
            return
        items, homes = self.considered[reader.var].items, self.homes(var)
        lost = self.costs.unfused(tensor_type(reader.var))
        costs = [[lost if (None if home is None else Form(home)) not in forms else 0.0
                  for forms in reader.forms] for home in homes]
        if len(items) > 1 and np.any(costs):
            problem.add_edge(self.nodes[var], self.nodes[reader.var], np.array(costs))

    # --- choices --------------------------------------------------------------------------------

    def chosen(self, states: Sequence[int]) -> dict[Var, Alternative]:
        """The alternatives that states of the problem stand for."""
        return {var: found.items[states[self.nodes[var]]] for var, found in self.considered.items()}

    def greedy(self) -> dict[Var, Alternative]:
        """Each call follows the first of its arguments that it can, else takes what it prefers."""
        chosen: dict[Var, Alternative] = {}
        for var, found in self.considered.items():
            given = [chosen[argument].result for argument in self.calls[var].arguments
                     if isinstance(argument, Var) and argument in chosen]
            followed = [found.by_layout[layout] for layout in given
                        if layout is not None and layout in found.by_layout]
            plain = next((item for item in found.items if item.is_plain), None)
            picked = followed[0] if followed else found.preferred or plain
            assert picked is not None
            chosen[var] = picked
        return chosen

    def states_of(self, chosen: dict[Var, Alternative]) -> list[int]:
        """The states of the problem that stand for these alternatives."""
        states = [0] * (len(self.nodes) + len(self.values))
        for var, node in self.nodes.items():
            states[node] = self.considered[var].items.index(chosen[var])
        for node, (var, kinds) in self.values.items():
            home = chosen[var].result if var in chosen else None
            forms = {None if home is None else Form(home), *self.forced.get(var, ())}
            for reader in self.readers[var]:
                item = self.considered[reader.var].items.index(chosen[reader.var])
                forms |= reader.forms[item]
            states[node] = kinds.index((home, frozenset(forms)))
        return states


def _priced(item: Alternative, chosen: Alternative) -> str:
    """An alternative with its cost, marked if it is taken."""
    return f"{'* ' if item == chosen else ''}{item} {item.seconds * 1e6:.1f} us"


def _blocks(value: Value) -> Iterator[Block]:
    """The blocks directly in a value."""
    match value:
        case If(_, then_block, else_block):
            yield from (then_block, else_block)
        case Function(_, body):
            yield body


def _forms_of(argument: Var, call: Call, item: Alternative) -> Forms:
    """In which forms an alternative of a call reads an argument."""
    assert isinstance(call.callee, Op)
    return frozenset(form for atom, form in zip(call.arguments, item.forms, strict=True)
                     if atom is argument)
