"""ONNX's recurrent layers, LSTM, GRU and RNN, unrolled: their sequences are as long as inputs say.

What depends on the input alone is one product for all steps. A step then is a product by the state,
and elementwise arithmetic that fuses into it; equal steps share their kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from minitvm.errors import ModelError
from minitvm.relay.ir import Atom, Constant
from minitvm.relay.onnx.conversion import LONGEST, Conversion, Unsupported
from minitvm.relay.onnx.table import converter
from minitvm.relay.op import Op
from minitvm.relay.ops.activations import Sigmoid
from minitvm.relay.ops.broadcast import Add, Multiply, Subtract
from minitvm.relay.ops.calculus import Tanh
from minitvm.relay.ops.join import Concatenate, StridedSlice
from minitvm.relay.ops.nn.activations import Relu
from minitvm.relay.ops.nn.dense import Dense
from minitvm.relay.ops.transform import BroadcastTo, ExpandDims, Squeeze, Transpose

ACTIVATIONS: dict[str, Op] = {"sigmoid": Sigmoid(), "tanh": Tanh(), "relu": Relu()}
DIRECTIONS = ("forward", "reverse", "bidirectional")

State = tuple[Atom, ...]
Step = Callable[["Layer", Atom, State], State]


@dataclass(slots=True)
class Layer:
    """One direction of a layer. `recurrent` are the weights of the state, `(gates, hidden)`."""

    c: Conversion
    hidden: int
    activations: list[Op]
    recurrent: Atom
    recurrent_bias: Atom | None
    peepholes: Atom | None

    def gate(self, x: Atom, number: int, axis: int = 1) -> Atom:
        """The part of a gate: `hidden` elements along an axis."""
        span = StridedSlice((number * self.hidden,), ((number + 1) * self.hidden,), axes=(axis,))
        return self.c.emit(span, x)

    def add(self, x: Atom, y: Atom) -> Atom:
        return self.c.emit(Add(), x, y)

    def times(self, x: Atom, y: Atom) -> Atom:
        return self.c.emit(Multiply(), x, y)

    def activate(self, number: int, x: Atom) -> Atom:
        return self.c.emit(self.activations[number], x)

    def peephole(self, x: Atom, number: int, cell: Atom) -> Atom:
        """A gate that also sees the cell."""
        if self.peepholes is None:
            return x
        return self.add(x, self.times(self.gate(self.peepholes, number, 0), cell))


# --- steps --------------------------------------------------------------------------------------


def lstm_step(layer: Layer, given: Atom, state: State) -> State:
    """Gates in ONNX's order: input, output, forget, cell."""
    hidden, cell = state
    gates = layer.add(given, layer.c.emit(Dense(), hidden, layer.recurrent))
    taken = layer.activate(0, layer.peephole(layer.gate(gates, 0), 0, cell))
    kept = layer.activate(0, layer.peephole(layer.gate(gates, 2), 2, cell))
    new = layer.activate(1, layer.gate(gates, 3))
    cell = layer.add(layer.times(kept, cell), layer.times(taken, new))
    shown = layer.activate(0, layer.peephole(layer.gate(gates, 1), 1, cell))
    return layer.times(shown, layer.activate(2, cell)), cell


def gru_step(layer: Layer, given: Atom, state: State) -> State:
    """Gates: update, reset, hidden; the reset acts on the state before its product."""
    hidden, = state
    update, reset, _ = _gru_gates(layer, given, layer.c.emit(Dense(), hidden, layer.recurrent))
    weights = layer.gate(layer.recurrent, 2, 0)
    product = layer.c.emit(Dense(), layer.times(reset, hidden), weights)
    if layer.recurrent_bias is not None:
        product = layer.add(product, layer.gate(layer.recurrent_bias, 2, 0))
    return _gru_state(layer, layer.add(layer.gate(given, 2), product), update, hidden)


def gru_step_linear(layer: Layer, given: Atom, state: State) -> State:
    """As `gru_step`, but the reset acts on the product with the state and its bias."""
    hidden, = state
    product = layer.c.emit(Dense(), hidden, layer.recurrent)
    update, reset, product = _gru_gates(layer, given, product)
    if layer.recurrent_bias is not None:
        product = layer.add(product, layer.gate(layer.recurrent_bias, 2, 0))
    new = layer.add(layer.gate(given, 2), layer.times(reset, product))
    return _gru_state(layer, new, update, hidden)


def _gru_gates(layer: Layer, given: Atom, product: Atom) -> tuple[Atom, Atom, Atom]:
    """The update gate, the reset gate, and the product's part for the hidden one."""
    gates = []
    for number in range(2):
        gate = layer.add(layer.gate(given, number), layer.gate(product, number))
        if layer.recurrent_bias is not None:
            gate = layer.add(gate, layer.gate(layer.recurrent_bias, number, 0))
        gates.append(layer.activate(0, gate))
    return gates[0], gates[1], layer.gate(product, 2)


def _gru_state(layer: Layer, new: Atom, update: Atom, hidden: Atom) -> State:
    """(1 - update) * new + update * hidden."""
    one = layer.c.make(1, layer.c.type(hidden).dtype)
    rest = layer.c.emit(Subtract(), one, update)
    return (layer.add(layer.times(rest, layer.activate(1, new)), layer.times(update, hidden)),)


def rnn_step(layer: Layer, given: Atom, state: State) -> State:
    """One product and an activation."""
    hidden, = state
    return (layer.activate(0, layer.add(given, layer.c.emit(Dense(), hidden, layer.recurrent))),)


# --- layers -------------------------------------------------------------------------------------


def _recurrent(c: Conversion, gates: int, step: Step, defaults: Sequence[str],
               joined_bias: bool) -> tuple[Atom | None, ...]:
    """Outputs: all hidden states, and the last of each part of the state. `joined_bias`: that of
    the state is added to that of the input, as nothing comes between."""
    batch_first = c.opset >= 14 and c.flag("layout")
    x = c.emit(Transpose((1, 0, 2)), c.input(0)) if batch_first else c.input(0)
    length, batch, _ = _three(c, x)
    direction = c.text("direction", "forward", DIRECTIONS)
    count = 2 if direction == "bidirectional" else 1
    if length * count > LONGEST:
        raise Unsupported(f"{length} steps in {count} directions",
                          f"give shorter sequences: at most {LONGEST} steps are unrolled")
    hidden = _three(c, c.input(2))[2]
    _check_lengths(c, length)
    activations = _activations(c, defaults, count)
    states: list[list[Atom]] = [[] for _ in range(2 if gates == 4 else 1)]
    sequences = []
    for number in range(count):
        layer, given = _layer(c, x, number, gates, hidden, joined_bias,
                              activations[number * len(defaults):])
        state = tuple(_initial(c, 5 + part, number, batch, hidden, batch_first)
                      for part in range(len(states)))
        backward = direction == "reverse" or number == 1
        sequence = _run(c, layer, step, given, state, backward, length)
        sequences.append([step_state[0] for step_state in sequence])
        last = sequence[0 if backward else -1]
        for part, atom in enumerate(last):
            states[part].append(atom)
    return _outputs(c, sequences, states, batch_first)


def _run(c: Conversion, layer: Layer, step: Step, given: Atom, state: State, backward: bool,
         length: int) -> list[State]:
    """The states after each step, in the order of the sequence."""
    found: list[State] = []
    for place in reversed(range(length)) if backward else range(length):
        piece = given
        if length > 1:
            piece = c.emit(StridedSlice((place,), (place + 1,), axes=(0,)), given)
        state = step(layer, c.emit(Squeeze((0,)), piece), state)
        found.append(state)
    return found[::-1] if backward else found


def _outputs(c: Conversion, sequences: list[list[Atom]], states: list[list[Atom]],
             batch_first: bool) -> tuple[Atom | None, ...]:
    results: list[Atom | None] = [None]
    if c.wants(0):
        axis = 2 if batch_first else 1
        joined = [_stack(c, sequence, 1 if batch_first else 0) for sequence in sequences]
        results[0] = _stack(c, joined, axis)
    for part in states:
        results.append(_stack(c, part, 1 if batch_first else 0))
    return tuple(results[:len(c.node.outputs)])


def _stack(c: Conversion, atoms: list[Atom], axis: int) -> Atom:
    """Tensors of one shape along a new axis."""
    wide = [c.emit(ExpandDims((axis,)), atom) for atom in atoms]
    return wide[0] if len(wide) == 1 else c.emit(Concatenate(axis), *wide)


def _layer(c: Conversion, x: Atom, number: int, gates: int, hidden: int, joined_bias: bool,
           activations: list[Op]) -> tuple[Layer, Atom]:
    """A direction, and what the input gives to its gates at each step."""
    weight, recurrent = _part(c, 1, number), _part(c, 2, number)
    if c.shape(weight)[0] != gates * hidden or c.shape(recurrent)[0] != gates * hidden:
        raise ModelError(f"{c.node}: weights {c.type(c.input(1))} and {c.type(c.input(2))} are "
                         f"not {gates} gates of {hidden}")
    given = c.emit(Dense(), x, weight)
    recurrent_bias = None
    if c.optional(3) is not None:
        bias = _part(c, 3, number)
        own = c.emit(StridedSlice((0,), (gates * hidden,), axes=(0,)), bias)
        recurrent_bias = c.emit(
            StridedSlice((gates * hidden,), (2 * gates * hidden,), axes=(0,)), bias)
        if joined_bias:
            own, recurrent_bias = c.emit(Add(), own, recurrent_bias), None
        given = c.emit(Add(), given, own)
    peepholes = _part(c, 7, number) if gates == 4 and c.optional(7) is not None else None
    return Layer(c, hidden, activations, recurrent, recurrent_bias, peepholes), given


def _part(c: Conversion, index: int, number: int) -> Atom:
    """The part of an input for a direction, which is its first axis."""
    piece = c.emit(StridedSlice((number,), (number + 1,), axes=(0,)), c.input(index))
    return c.emit(Squeeze((0,)), piece)


def _initial(c: Conversion, index: int, number: int, batch: int, hidden: int,
             batch_first: bool) -> Atom:
    given = c.optional(index)
    if given is None:
        return c.emit(BroadcastTo((batch, hidden)), c.make(0, c.type(c.input(0)).dtype))
    axis = 1 if batch_first else 0
    piece = c.emit(StridedSlice((number,), (number + 1,), axes=(axis,)), given)
    return c.emit(Squeeze((axis,)), piece)


def _three(c: Conversion, x: Atom) -> tuple[int, int, int]:
    extents = c.shape(x)
    if len(extents) != 3 or 0 in extents:
        raise ModelError(f"{c.node} takes tensors of three axes, not {c.type(x)}")
    return extents[0], extents[1], extents[2]


def _check_lengths(c: Conversion, length: int) -> None:
    lengths = c.optional(4)
    if lengths is None:
        return
    if not isinstance(lengths, Constant) or (lengths.data != length).any():
        raise Unsupported("sequences of different lengths (sequence_lens)",
                          "leave sequence_lens out, and pad the sequences")


def _activations(c: Conversion, defaults: Sequence[str], count: int) -> list[Op]:
    """The functions of all directions; and what else would change a step is refused."""
    c.ignore("hidden_size")
    given = c.attribute("activations", None, (tuple,), "a list of names")
    names = [str(name).lower() for name in given] if given else [*defaults] * count
    unknown = [name for name in names if name not in ACTIVATIONS]
    if unknown or len(names) != len(defaults) * count:
        raise Unsupported(f"the activations {tuple(names)}",
                          f"{len(defaults) * count} of {', '.join(ACTIVATIONS)} are needed")
    for name in ("clip", "activation_alpha", "activation_beta"):
        if c.node.attributes.get(name):
            raise Unsupported(f"the attribute {name} is set", "export without it")
        c.ignore(name)
    return [ACTIVATIONS[name] for name in names]


@converter("LSTM", 7)
def lstm(c: Conversion) -> tuple[Atom | None, ...]:
    """All hidden states, the last hidden state, the last cell."""
    if c.flag("input_forget"):
        raise Unsupported("the attribute input_forget is 1", "export without coupled gates")
    return _recurrent(c, 4, lstm_step, ("sigmoid", "tanh", "tanh"), joined_bias=True)


@converter("GRU", 7)
def gru(c: Conversion) -> tuple[Atom | None, ...]:
    """All hidden states, the last one."""
    step = gru_step_linear if c.flag("linear_before_reset") else gru_step
    return _recurrent(c, 3, step, ("sigmoid", "tanh"), joined_bias=False)


@converter("RNN", 7)
def rnn(c: Conversion) -> tuple[Atom | None, ...]:
    """All hidden states, the last one."""
    return _recurrent(c, 1, rnn_step, ("tanh",), joined_bias=True)
