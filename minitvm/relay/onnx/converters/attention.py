"""ONNX's Attention: softmax(scale * q k' + bias) v by heads, with a cache of keys and values; and
RotaryEmbedding."""

from __future__ import annotations

import math

import numpy as np

from minitvm import dtypes
from minitvm.errors import ModelError
from minitvm.relay.ir import Atom
from minitvm.relay.onnx.conversion import Conversion, Unsupported
from minitvm.relay.onnx.converters.shapes import reshape_to
from minitvm.relay.onnx.table import converter
from minitvm.relay.ops.broadcast import Add, Where
from minitvm.relay.ops.gather import Take
from minitvm.relay.ops.join import Concatenate
from minitvm.relay.ops.nn.attention import Attention
from minitvm.relay.ops.nn.rotary import RotaryEmbedding
from minitvm.relay.ops.transform import Transpose

HEADS_FIRST = Transpose(axes=(0, 2, 1, 3))
"""From [batch, rows, heads, size] to [batch, heads, rows, size], and back."""


@converter("Attention", 23)
def attention(c: Conversion) -> Atom | tuple[Atom | None, ...]:
    """Inputs of rank 3 hold the heads one after the other in their last axis; those of rank 4 have
    them in axis 1. A mask of bools says which keys take part."""
    _check_attributes(c)
    queries, keys, values = c.input(0), c.input(1), c.input(2)
    has_heads = c.type(queries).rank == 4
    if has_heads:
        q = c.emit(HEADS_FIRST, queries)
    else:
        q = _with_heads(c, queries, "q_num_heads")
        keys, values = (c.emit(HEADS_FIRST, _with_heads(c, x, "kv_num_heads"))
                        for x in (keys, values))
    c.ignore("q_num_heads", "kv_num_heads")
    before = 0
    past_keys, past_values = c.optional(4), c.optional(5)
    if past_keys is not None and past_values is not None:
        before = c.shape(past_keys)[2]
        keys = c.emit(Concatenate(2), past_keys, keys)
        values = c.emit(Concatenate(2), past_values, values)
    scale = c.number("scale", 1 / math.sqrt(max(1, c.shape(q)[3])))
    bias = _bias(c, c.type(q).dtype, (c.shape(q)[1], c.shape(keys)[2]), before)
    parts = [q, c.emit(HEADS_FIRST, keys), c.emit(HEADS_FIRST, values)]
    op = Attention(scale, masked_is_zero=bias is not None)
    result = c.emit(op, *parts, *([] if bias is None else [bias]))
    if has_heads:
        result = c.emit(HEADS_FIRST, result)
    else:
        batch, rows, heads, size = c.shape(result)
        result = reshape_to(c, result, (batch, rows, heads * size))
    outputs = (result, keys, values)
    return outputs[:len(c.node.outputs)] if len(c.node.outputs) > 1 else result


def _check_attributes(c: Conversion) -> None:
    """Refuses what is not supported; `softmax_precision` may be less precise than here."""
    c.ignore("softmax_precision")
    if c.number("softcap", 0.0) != 0:
        raise Unsupported("softcap is not 0", "scores that are not capped are supported")
    if any(c.integer(name, -1) != -1 for name in ("left_window_size", "right_window_size")):
        raise Unsupported("it attends to a window of keys", "give the window as a mask")
    if c.optional(6) is not None:
        raise Unsupported("it has nonpad_kv_seqlen", "give the keys that take part as a mask")
    c.ignore("qk_matmul_output_mode")
    if c.wants(3):
        raise Unsupported("it asks for the scores", "they are not kept; leave the output out")


def _with_heads(c: Conversion, x: Atom, attribute: str) -> Atom:
    """[batch, rows, heads * size] as [batch, rows, heads, size]."""
    heads = c.required_integer(attribute)
    batch, rows, width = c.shape(x)
    if heads < 1 or width % heads:
        raise ModelError(f"{c.node}: {heads} heads do not divide a width of {width}")
    return reshape_to(c, x, (batch, rows, heads, width // heads))


def _bias(c: Conversion, dtype: str, scores: tuple[int, int], before: int) -> Atom | None:
    """What is added to the scores (rows, keys): the mask, and minus infinity for keys that come
    later than a row, of which the first stands behind `before` keys."""
    rows, keys = scores
    mask = c.optional(3)
    if mask is not None and c.shape(mask)[-1] not in (1, keys):
        raise Unsupported(f"its mask is for {c.shape(mask)[-1]} of {keys} keys",
                          "give a mask for all keys")
    if mask is not None and dtypes.is_bool(c.type(mask).dtype):
        mask = c.emit(Where(), mask, c.make(0, dtype), c.make(-np.inf, dtype))
    if not c.flag("is_causal"):
        return mask
    later = np.arange(keys) > np.arange(rows)[:, None] + before
    causal = c.make(np.where(later, -np.inf, 0), dtype)
    return causal if mask is None else c.emit(Add(), mask, causal)


# --- positions ----------------------------------------------------------------------------------


@converter("RotaryEmbedding", 23)
def rotary_embedding(c: Conversion) -> Atom:
    """Data of rank 3 holds the heads one after the other in its last axis. Positions, if given, say
    which rows of the cosines and sines to take."""
    x = c.input(0)
    shape = c.shape(x)
    heads_first = len(shape) == 4
    data = x if heads_first else _with_heads(c, x, "num_heads")
    c.ignore("num_heads")
    size = c.shape(data)[3]
    turned = c.integer("rotary_embedding_dim", 0) or size
    tables = [c.input(1), c.input(2)]
    positions = c.optional(3)
    if positions is not None:
        tables = [c.emit(Take(axis=0), table, positions) for table in tables]
    for table in tables:
        if turned % 2 or c.shape(table)[-1] != turned // 2:
            raise ModelError(f"{c.node}: {turned} elements of a row are to be turned, which "
                             f"{c.shape(table)[-1]} cosines and sines do not do")
    op = RotaryEmbedding(c.flag("interleaved"), heads_first)
    return reshape_to(c, c.emit(op, data, *tables), shape)
