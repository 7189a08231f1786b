"""`nn.attention`: softmax(scale * q k' + mask) v for each head, without its scores in memory.

The te stages, by tag; L lanes, S keys padded to whole blocks of lanes, E columns of values as well:

    attention_keys      b, g, so, d, si    keys, packed: lanes are different keys
    attention_values    b, g, eo, s, ei    values, packed
    attention_queries   b, h, t, d         queries times the scale
    attention_scores    b, h, t, so, si    reduces over d
    attention_masked    b, h, t, so, si    plus the mask; minus infinity for keys that do not exist
    attention_maxima    b, h, t, si        reduces over so
    attention_maximum   b, h, t            reduces over si
    attention_powers    b, h, t, so, si    exp(masked - maximum)
    attention_sums, attention_sum          as the maxima
    attention_mix       b, h, t, eo, ei    sums up powers times values over s
    attention           b, t, h, e         mix / sum
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from minitvm import dtypes, te
from minitvm.relay.dim import Dim
from minitvm.relay.ir import TensorType
from minitvm.relay.op import LayoutChoice, Op, Pattern, register
from minitvm.relay.ops.families import read_broadcast
from minitvm.relay.ops.nn.rows import greater
from minitvm.relay.ops.nn.windows import stage
from minitvm.te.recipes import schedule_attention
from minitvm.tir import ir
from minitvm.tir.ir import Expr

if TYPE_CHECKING:
    from minitvm.target import Target


@register
@dataclass(frozen=True, slots=True)
class Attention(Op):
    """q[B, T, H, D], k[B, S, G, D], v[B, S, G, E] and perhaps a mask that broadcasts to
    [B, H, T, S] -> [B, T, H, E]; G divides H, and each H/G heads in a row share keys and values.

    A row whose scores are all minus infinity gives NaN, as softmax does; zeros where
    `masked_is_zero`. `lanes`: how many keys, and columns of values, are computed together
    (`alter_layout` says).
    """

    name = "nn.attention"
    pattern = Pattern.OUT_ELEMWISE_FUSABLE
    arity = None
    reads_through_copies = True

    scale: float = 1.0
    lanes: int = 1
    masked_is_zero: bool = False

    def infer(self, *types: TensorType) -> TensorType:
        if len(types) not in (3, 4):
            raise self.fail(types, "it takes queries, keys, values and perhaps a mask")
        q, k, v = types[:3]
        if any(given.dtype != q.dtype for given in types) or not dtypes.is_float(q.dtype):
            raise self.fail(types, "all arguments must have one dtype of floats; cast them")
        if (q.rank, k.rank, v.rank) != (4, 4, 4):
            raise self.fail(types, "queries, keys and values must be of rank 4")
        batch, rows, heads, depth = q.shape
        if k.shape[:3] != v.shape[:3] or k.shape[0] != batch or k.shape[3] != depth:
            raise self.fail(types, "queries [B, T, H, D] go with keys [B, S, G, D] and values "
                                   "[B, S, G, E]")
        groups = k.shape[2]
        if not isinstance(heads, int) or not isinstance(groups, int) or not groups or (
            heads % groups
        ):
            raise self.fail(types, f"{groups} heads of keys do not serve {heads} of queries")
        scores = (batch, heads, rows, k.shape[1])
        if len(types) == 4 and not _broadcasts(types[3].shape, scores):
            raise self.fail(types, f"the mask does not broadcast to the scores {scores}")
        return TensorType((batch, rows, heads, v.shape[3]), q.dtype)

    def evaluate(self, *values: np.ndarray) -> np.ndarray:
        q, k, v = (value.transpose(0, 2, 1, 3) for value in values[:3])
        shared = q.shape[1] // k.shape[1]
        k, v = (np.repeat(value, shared, axis=1) for value in (k, v))
        with np.errstate(all="ignore"):
            scores = (q * q.dtype.type(self.scale)) @ k.swapaxes(2, 3)
            scores = scores + values[3] if len(values) == 4 else scores
            maximum = scores.max(-1, keepdims=True, initial=-np.inf)
            if self.masked_is_zero:
                maximum[np.isneginf(maximum)] = 0
            powers = np.exp(scores - maximum)
            total = powers.sum(-1, keepdims=True)
            mix = powers @ v / total
            mix = np.where(total == 0, 0, mix) if self.masked_is_zero else mix
        return np.ascontiguousarray(mix.transpose(0, 2, 1, 3), q.dtype)

    def compute(self, *inputs: te.Tensor) -> te.Tensor:
        q, k, v, *mask = inputs
        return _Stages(self, q, k, v, mask[0] if mask else None).result()

    def schedule(
        self, s: te.Schedule, anchor: te.Tensor, output: te.Tensor, target: Target
    ) -> None:
        schedule_attention(s, anchor, output, target)

    def alter_layout(self, types: tuple[Any, ...], target: Target) -> LayoutChoice | None:
        lanes = target.lanes(types[0].dtype)
        if self.lanes != 1 or lanes == 1:
            return None
        return LayoutChoice(replace(self, lanes=lanes), (None,) * len(types), None)


def _broadcasts(shape: tuple[Dim, ...], whole: tuple[Dim, ...]) -> bool:
    """Whether a tensor broadcasts to a shape."""
    if len(shape) > len(whole):
        return False
    pairs = zip(shape, whole[len(whole) - len(shape):], strict=True)
    return all(own in (1, dim) for own, dim in pairs)


class _Stages:
    """The computations of one attention."""

    def __init__(
        self, op: Attention, q: te.Tensor, k: te.Tensor, v: te.Tensor, mask: te.Tensor | None
    ) -> None:
        self.op, self.scale, self.lanes, self.q, self.mask = op, op.scale, op.lanes, q, mask
        self.batch, self.rows, self.heads, self.depth = q.extents()
        _, self.keys, self.groups, self.columns = v.extents()
        self.shared = self.heads // self.groups
        self.key_blocks = -(-self.keys // self.lanes)
        self.packed_keys = self._pack_keys(k)
        self.packed_values = self._pack_values(v)

    def _padded(self, index: Expr, extent: int, value: Expr) -> Expr:
        """The value; zero where an index is in the padding of its extent."""
        if extent % self.lanes == 0:
            return value
        return te.if_then_else(index < extent, value, ir.convert(0.0, value.dtype))

    def _pack_keys(self, k: te.Tensor) -> te.Tensor:
        def element(b: Expr, g: Expr, so: Expr, d: Expr, si: Expr) -> Expr:
            key = so * self.lanes + si
            return self._padded(key, self.keys, k[b, key, g, d])

        shape = (self.batch, self.groups, self.key_blocks, self.depth, self.lanes)
        return stage(shape, element, "attention_keys")

    def _pack_values(self, v: te.Tensor) -> te.Tensor:
        def element(b: Expr, g: Expr, eo: Expr, s: Expr, ei: Expr) -> Expr:
            column = eo * self.lanes + ei
            return self._padded(column, self.columns, v[b, s, g, column])

        blocks = -(-self.columns // self.lanes)
        shape = (self.batch, self.groups, blocks, self.keys, self.lanes)
        return stage(shape, element, "attention_values")

    def _masked(self) -> te.Tensor:
        """The scores of queries with keys, times the scale, plus the mask."""
        q, scale = self.q, ir.convert(self.scale, self.q.dtype)
        queries = stage((self.batch, self.heads, self.rows, self.depth),
                        lambda b, h, t, d: q[b, t, h, d] * scale, "attention_queries")
        d = te.reduce_axis((0, self.depth), "d")
        shape = (self.batch, self.heads, self.rows, self.key_blocks, self.lanes)

        def score(b: Expr, h: Expr, t: Expr, so: Expr, si: Expr) -> Any:
            key = self.packed_keys[b, self._group(h), so, d, si]
            return te.sum(queries[b, h, t, d] * key, axis=d)

        scores = stage(shape, score, "attention_scores")

        def masked(b: Expr, h: Expr, t: Expr, so: Expr, si: Expr) -> Expr:
            key, value = so * self.lanes + si, scores[b, h, t, so, si]
            if self.mask is not None:
                value = value + read_broadcast(self.mask, (b, h, t, key))
            if self.keys % self.lanes == 0:
                return value
            return te.if_then_else(key < self.keys, value, te.min_value(value.dtype))

        return stage(shape, masked, "attention_masked")

    def _group(self, h: Expr) -> Expr:
        return h // self.shared if self.shared > 1 else h

    def _reduced(self, x: te.Tensor, reducer: Any, tag: str) -> te.Tensor:
        """x reduced over its last two axes: blocks first, then lanes."""
        so, si = te.reduce_axis((0, self.key_blocks), "so"), te.reduce_axis((0, self.lanes), "si")
        lanes = stage((*x.extents()[:3], self.lanes),
                      lambda b, h, t, lane: reducer(x[b, h, t, so, lane], axis=so),
                      f"attention_{tag}s" if tag == "sum" else "attention_maxima")
        return stage(x.extents()[:3], lambda b, h, t: reducer(lanes[b, h, t, si], axis=si),
                     f"attention_{tag}")

    def result(self) -> te.Tensor:
        """The values mixed as the softmax of the scores says."""
        masked = self._masked()
        maximum = self._reduced(masked, greater, "maximum")
        zero = ir.convert(0.0, self.q.dtype)

        def power(b: Expr, h: Expr, t: Expr, so: Expr, si: Expr) -> Any:
            most = maximum[b, h, t]
            if self.op.masked_is_zero:
                most = te.select(ir.equal(most, te.min_value(most.dtype)), zero, most)
            return te.decay(masked[b, h, t, so, si] - most)

        powers = stage(masked.shape, power, "attention_powers")
        total = self._reduced(powers, te.sum, "sum")
        s = te.reduce_axis((0, self.keys), "s")

        def mixed(b: Expr, h: Expr, t: Expr, eo: Expr, ei: Expr) -> Any:
            weight = powers[b, h, t, s.var // self.lanes, s.var % self.lanes]
            return te.sum(weight * self.packed_values[b, self._group(h), eo, s, ei], axis=s)

        blocks = -(-self.columns // self.lanes)
        mix = stage((self.batch, self.heads, self.rows, blocks, self.lanes), mixed,
                    "attention_mix")

        def element(b: Expr, t: Expr, h: Expr, e: Expr) -> Expr:
            value = mix[b, h, t, e // self.lanes, e % self.lanes] / total[b, h, t]
            if not self.op.masked_is_zero:
                return value
            return te.select(ir.equal(total[b, h, t], zero), zero, value)

        return stage((self.batch, self.rows, self.heads, self.columns), element, "attention")
