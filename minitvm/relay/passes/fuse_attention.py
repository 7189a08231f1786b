"""Relay -> relay in which two products with a softmax between them are one `nn.attention`."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from minitvm.origin import Origin, merge_all
from minitvm.relay.build import BlockBuilder, rebuild_function
from minitvm.relay.ir import (
    Atom,
    Binding,
    Call,
    Constant,
    Module,
    Value,
    Var,
    tensor_type,
    use_counts,
)
from minitvm.relay.op import Op
from minitvm.relay.ops.broadcast import Add, Divide, Multiply
from minitvm.relay.ops.nn.attention import Attention
from minitvm.relay.ops.nn.dense import BatchMatmul
from minitvm.relay.ops.nn.matmul import Matmul
from minitvm.relay.ops.nn.softmax import Softmax
from minitvm.relay.ops.transform import Reshape, Transpose
from minitvm.relay.passes.dead_code_elimination import without_dead_code
from minitvm.transform import make_pass


@make_pass("FuseAttention", opt_level=3)
def fuse_attention(module: Module) -> Module:
    """Makes a `nn.attention` of `matmul(softmax(scale * matmul(q, k) + mask), v)`, scale and mask
    optional, where nothing else reads what is in between. The products are `matmul` or
    `nn.batch_matmul`, of rank 3 or 4; results differ by rounding.

    Before:

        def main(q: Tensor((2, 3, 4), "float32"), k: Tensor((2, 4, 5), "float32"), v: Tensor((2, 5, 6), "float32")) -> Tensor((2, 3, 6), "float32"):
            v0 = matmul(q, k)  #: "scores"
            v1 = multiply(v0, const(0.5, (), "float32"))  #: "scaled"
            v2 = nn.softmax(v1)  #: "softmax"
            v3 = matmul(v2, v)  #: "mixed"
            return v3

    After:

        def main(q: Tensor((2, 3, 4), "float32"), k: Tensor((2, 4, 5), "float32"), v: Tensor((2, 5, 6), "float32")) -> Tensor((2, 3, 6), "float32"):
            v0 = reshape(q, newshape=(2, 3, 1, 4))  #: "scores"
            v1 = transpose(k, axes=(0, 2, 1))  #: "scores"
            v2 = reshape(v1, newshape=(2, 5, 1, 4))  #: "scores"
            v3 = reshape(v, newshape=(2, 5, 1, 6))  #: "mixed"
            v4 = nn.attention(v0, v2, v3, scale=0.5)  #: "mixed", "scaled", "scores", "softmax"
            v5 = reshape(v4, newshape=(2, 3, 6))  #: "mixed", "scaled", "scores", "softmax"
            return v5
    """  # noqa: E501
    for name, function in module.functions.items():
        if not function.is_primitive:
            counts = use_counts(function.body)

            def rule(
                builder: BlockBuilder, binding: Binding, counts: dict[Var, int] = counts
            ) -> Value | None:
                return _fused(builder, binding, counts)

            fused = rebuild_function(function, rule)
            if fused is not function:
                module = module.with_function(name, without_dead_code(fused))
    return module


@dataclass(frozen=True, slots=True)
class _Product:
    """Two factors, of which the first has the rows and the second the columns of the result, unless
    they are transposed; and where the product comes from."""

    left: Atom
    right: Atom
    left_transposed: bool
    right_transposed: bool
    origin: Origin


@dataclass(slots=True)
class _Chain:
    """Follows values that are used once, from the last one up, and collects their origins."""

    builder: BlockBuilder
    counts: dict[Var, int]
    origins: list[Origin] = field(default_factory=list)

    def call(self, atom: Atom) -> Call | None:
        """The call of an operator that gives an atom, which is used once; else None."""
        binding = self.builder.binding_of(atom)
        if binding is None or self.counts.get(binding.var) != 1:
            return None
        if not isinstance(binding.value, Call) or not isinstance(binding.value.callee, Op):
            return None
        return binding.value

    def take(self, atom: Atom) -> None:
        """Counts the atom's binding in."""
        binding = self.builder.binding_of(atom)
        assert binding is not None
        self.origins.append(binding.origin)


def _fused(builder: BlockBuilder, binding: Binding, counts: dict[Var, int]) -> Value | None:
    """The attention that a product ends; None where it ends none."""
    mixture = _product(binding.value, binding.origin)
    if mixture is None or mixture.left_transposed:
        return None
    chain = _Chain(builder, counts, [binding.origin])
    softmax = chain.call(mixture.left)
    if softmax is None or not isinstance(softmax.callee, Softmax):
        return None
    (scores,) = softmax.arguments
    if softmax.callee.axis % tensor_type(scores).rank != tensor_type(scores).rank - 1:
        return None
    chain.take(mixture.left)
    mask, scores = _without_mask(chain, scores)
    scale, scores = _without_scale(chain, scores)
    call = chain.call(scores)
    product = None if call is None else _product(call, _origin_of(builder, scores))
    if product is None or not _fits(product, mixture, mask, scores):
        return None
    chain.take(scores)
    return _attention(builder, product, mixture, mask, scale, merge_all(chain.origins))


def _origin_of(builder: BlockBuilder, atom: Atom) -> Origin:
    binding = builder.binding_of(atom)
    return builder.origin if binding is None else binding.origin


def _product(value: Value, origin: Origin) -> _Product | None:
    match value:
        case Call(Matmul(), (left, right)):
            return _Product(left, right, False, False, origin)
        case Call(BatchMatmul(a, b), (left, right)):
            return _Product(left, right, a, b, origin)
    return None


def _without_mask(chain: _Chain, scores: Atom) -> tuple[Atom | None, Atom]:
    """The mask that is added, and what it is added to: the one that ends in a product."""
    call = chain.call(scores)
    if call is None or not isinstance(call.callee, Add):
        return None, scores
    for mask, inner in (call.arguments[::-1], call.arguments):
        if tensor_type(inner) == tensor_type(scores) and _ends_in_product(chain, inner):
            chain.take(scores)
            return mask, inner
    return None, scores


def _ends_in_product(chain: _Chain, atom: Atom) -> bool:
    _, inner = _without_scale(_Chain(chain.builder, chain.counts), atom)
    call = chain.call(inner)
    return call is not None and _product(call, chain.builder.origin) is not None


def _without_scale(chain: _Chain, scores: Atom) -> tuple[float, Atom]:
    """The number that the scores are multiplied with, and the scores before that."""
    match chain.call(scores):
        case Call(Multiply(), (Constant() as factor, inner)) if _is_number(factor):
            scale = float(factor.data.item())
        case Call(Multiply(), (inner, Constant() as factor)) if _is_number(factor):
            scale = float(factor.data.item())
        case Call(Divide(), (inner, Constant() as factor)) if _is_number(factor):
            scale = 1 / float(factor.data.item())
        case _:
            return 1.0, scores
    if tensor_type(inner) != tensor_type(scores):
        return 1.0, scores
    chain.take(scores)
    return scale, inner


def _is_number(constant: Constant) -> bool:
    return constant.data.size == 1 and bool(np.isfinite(constant.data).all()) and bool(
        constant.data.all())


def _fits(product: _Product, mixture: _Product, mask: Atom | None, scores: Atom) -> bool:
    """Whether shapes are known, of rank 3 or 4, and no factor broadcasts."""
    whole = tensor_type(scores)
    factors = [product.left, product.right, mixture.right]
    if whole.rank not in (3, 4) or any(
        tensor_type(factor).shape[:-2] != whole.shape[:-2] for factor in factors
    ):
        return False
    dims = [dim for factor in factors for dim in tensor_type(factor).shape]
    if mask is not None and tensor_type(mask).rank > whole.rank:
        return False
    return all(isinstance(dim, int) and dim > 0 for dim in dims)


def _attention(
    builder: BlockBuilder, product: _Product, mixture: _Product, mask: Atom | None, scale: float,
    origin: Origin,
) -> Value:
    arguments = [
        _rows_outside(builder, product.left, product.left_transposed, product.origin),
        _rows_outside(builder, product.right, not product.right_transposed, product.origin),
        _rows_outside(builder, mixture.right, mixture.right_transposed, mixture.origin),
    ]
    rank = tensor_type(mixture.right).rank
    if mask is not None:
        shape = tensor_type(mask).shape
        if len(shape) == rank == 3:
            mask = builder.emit(Reshape(newshape=(shape[0], 1, *shape[1:])), mask)
        arguments.append(mask)
    mixed = builder.emit(Attention(scale), *arguments, origin=origin)
    if rank == 4:
        result = builder.emit(Transpose(axes=(0, 2, 1, 3)), mixed, origin=origin)
    else:
        batch, rows, _, columns = tensor_type(mixed).shape
        result = builder.emit(Reshape(newshape=(batch, rows, columns)), mixed, origin=origin)
    return result


def _rows_outside(builder: BlockBuilder, x: Atom, transposed: bool, origin: Origin) -> Atom:
    """A stack of matrices [B, H, rows, columns] as [B, rows, H, columns]; one of rank 3 has one
    head. `transposed`: it has columns first."""
    if tensor_type(x).rank == 4:
        axes = (0, 3, 1, 2) if transposed else (0, 2, 1, 3)
        return builder.emit(Transpose(axes=axes), x, origin=origin)
    if transposed:
        x = builder.emit(Transpose(axes=(0, 2, 1)), x, origin=origin)
    batch, rows, columns = tensor_type(x).shape
    return builder.emit(Reshape(newshape=(batch, rows, 1, columns)), x, origin=origin)
