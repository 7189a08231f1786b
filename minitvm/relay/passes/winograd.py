"""Relay -> relay in which 3x3 convolutions take fewer products, by Winograd's minimal filtering."""

from __future__ import annotations

from math import prod

from minitvm.errors import OptionError
from minitvm.relay.build import BlockBuilder, rebuild_module
from minitvm.relay.ir import Atom, Binding, Call, Constant, Module, TensorType, Value, Var
from minitvm.relay.layout import parse_layout
from minitvm.relay.ops.nn.conv2d import Conv2d
from minitvm.relay.ops.nn.winograd import WinogradInput, WinogradOutput, WinogradWeight, tiles_of
from minitvm.target import Target
from minitvm.transform import PASS_NAMES, Pass, PassContext

NAME = "Winograd"
LEVEL = 3
PASS_NAMES[NAME] = LEVEL  # known to `PassContext` before a target makes the pass
TILE = "relay.winograd_tile"

NEAR_SHARE = 0.75
"""How much of the second cache's speed transforms get: they read and write with strides."""
HIDDEN = 2.0
"""How much faster weights come where each is used for a whole window, and the products hide their
way."""
TRANSFORM_CYCLES = 1.5
"""To transform one vector of an element of a tile, in or out, besides its memory."""
KERNEL_CYCLES = 15_000.0
"""For each kernel more: waking threads, and code and data that no cache has yet."""
GAIN = 0.9
"""Tiles are worth their loss of precision if they need at most this share of the time."""


def winograd(target: Target) -> Pass[Module]:
    """The pass for a target, here one of vectors of 8. It comes behind the packing of layouts, and
    takes convolutions of constant weights, 3x3 and stride 1, that should gain by it: those of many
    channels. `relay.winograd_tile` says how many results a side each tile has (0: no tiles); of 4,
    results are less precise.

    Before:

        def main(x: Tensor((1, 32, 14, 14, 8), "float32")) -> Tensor((1, 32, 14, 14, 8), "float32"):
            v0 = zeros(shape=(32, 32, 3, 3, 8, 8))  #: "w"
            v1 = nn.conv2d(x, v0, padding=(1, 1, 1, 1), data_layout="NCHW8c", kernel_layout="OIHW8i8o")  #: "conv"
            return v1

    After:

        def main(x: Tensor((1, 32, 14, 14, 8), "float32")) -> Tensor((1, 32, 14, 14, 8), "float32"):
            v0 = zeros(shape=(32, 32, 3, 3, 8, 8))  #: "w"
            v1 = nn.winograd_input(x, padding=(1, 1, 1, 1))  #: "conv"
            v2 = nn.winograd_weight(v0)  #: "conv"
            v3 = nn.conv2d(v1, v2, groups=16, data_layout="NCHW8c", kernel_layout="OIHW8i8o")  #: "conv"
            v4 = nn.winograd_output(v3, rows=14, columns=14)  #: "conv"
            return v4
    """  # noqa: E501

    def run(module: Module) -> Module:
        tile = tile_side()
        return rebuild_module(module, _Tiler(tile, target).rule) if tile else module

    return Pass(NAME, run, LEVEL)


class _Tiler:
    """The rule, and which variables only depend on constants."""

    def __init__(self, tile: int, target: Target) -> None:
        self.tile = tile
        self.target = target
        self.constant: set[Var] = set()

    def rule(self, builder: BlockBuilder, binding: Binding) -> Value | None:
        value = binding.value
        if not isinstance(value, Call):
            return None
        if all(map(self.is_constant, value.arguments)):
            self.constant.add(binding.var)
        match value.callee, value.arguments:
            case Conv2d() as op, (data, weight) if self.is_constant(weight):
                return self.tiled(builder, op, data, weight)
        return None

    def is_constant(self, atom: Atom) -> bool:
        return isinstance(atom, Constant) or (isinstance(atom, Var) and atom in self.constant)

    def tiled(self, builder: BlockBuilder, op: Conv2d, data: Atom, weight: Atom) -> Value | None:
        image, filters = _shape(data), _shape(weight)
        if not is_candidate(op, image, filters):
            return None
        rows, columns = op.window(3, 3).positions(image[2], image[3])
        if tiled_share(image[0], (rows, columns), filters, self.target, self.tile) == 1:
            return None
        transformed = builder.emit(WinogradInput(self.tile, op.padding), data)
        elements = builder.emit(WinogradWeight(self.tile), weight)
        product = Conv2d(groups=(self.tile + 2) ** 2, data_layout=op.data_layout,
                         kernel_layout=op.kernel_layout)
        products = builder.emit(product, transformed, elements)
        return Call(WinogradOutput(rows, columns, self.tile), (products,))


def _shape(atom: Atom) -> tuple[int, ...]:
    """The shape of a tensor of float32; empty for anything else."""
    given = atom.type
    if not isinstance(given, TensorType) or given.dtype != "float32":
        return ()
    known = tuple(extent for extent in given.shape if isinstance(extent, int))
    return known if len(known) == given.rank else ()


def is_candidate(op: Conv2d, image: tuple[int, ...], filters: tuple[int, ...]) -> bool:
    """Whether it is a packed 3x3 convolution of stride 1 without groups or padding lanes."""
    data, kernel = parse_layout(op.data_layout), parse_layout(op.kernel_layout)
    block = data.block("C")
    return (
        len(image) == 5 and len(filters) == 6 and block > 1
        and str(data) == f"NCHW{block}c" and str(kernel) == f"OIHW{block}i{block}o"
        and filters[2:4] == (3, 3) and op.strides == op.dilation == (1, 1)
        and op.groups == 1 and op.channels is None
    )


def tile_side() -> int:
    """How many results a side tiles are to have, 0 for none; by the current `PassContext`."""
    tile: int = PassContext.current().config.get(TILE, 2)
    if tile not in (0, 2, 4):
        raise OptionError(f"{TILE} is {tile!r}; it may be 2, 4, or 0 for no tiles")
    return tile


def tiled_share(batch: int, positions: tuple[int, int], filters: tuple[int, ...], target: Target,
                tile: int) -> float:
    """Which share of the direct convolution's estimated time tiles need; 1 where they don't pay."""
    rows, columns = positions
    tiles = batch * tiles_of(rows, tile) * tiles_of(columns, tile)
    direct = direct_cycles(batch * rows * columns, filters, target)
    tiled = tiled_cycles(tiles, filters, tile, target)
    return tiled / direct if tiled <= GAIN * direct else 1.0


def direct_cycles(results: int, filters: tuple[int, ...], target: Target) -> float:
    """Estimated cycles of a direct convolution, of so many results a channel."""
    products = results * prod(filters) / filters[-1] / target.fma_per_cycle
    return products + 4 * prod(filters) / (HIDDEN * target.weight_bytes_per_cycle)


def tiled_cycles(tiles: int, filters: tuple[int, ...], tile: int, target: Target) -> float:
    """Estimated cycles with so many tiles: products, transforms, what is written and read between
    them, and weights, of which there are more than the direct convolution has."""
    blocks, inputs, _, _, lanes, _ = filters
    elements = (tile + 2) ** 2
    products = elements * tiles * blocks * inputs * lanes / target.fma_per_cycle
    vectors = elements * tiles * (blocks + inputs)
    largest = elements * tiles * max(blocks, inputs) * lanes * 4
    near = NEAR_SHARE * target.l2_bytes_per_cycle
    speed = near if largest <= target.l2_bytes else min(near, target.memory_bytes_per_cycle)
    weights = elements * blocks * inputs * lanes * lanes * 4
    memory = 2 * vectors * lanes * 4 / speed + weights / target.weight_bytes_per_cycle
    return products + vectors * TRANSFORM_CYCLES + memory + 2 * KERNEL_CYCLES
