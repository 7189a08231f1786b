"""Every pass of this room keeps the value of random modules, is idempotent, and verifies."""

from __future__ import annotations

import pytest
from hypothesis import given
from random_graphs import assert_same, modules

from minitvm.relay import passes
from minitvm.relay.ir import walk_bindings
from minitvm.relay.verify import verify
from minitvm.testing.relay_strategies import relay_modules
from minitvm.transform import PassContext

EXACT = [
    passes.canonicalize_cast,
    passes.canonicalize_ops,
    passes.dead_code_elimination,
    passes.eliminate_common_subexpr,
    passes.fold_constant,
    passes.fuse_ops,
    passes.infer_type,
    passes.legalize,
    passes.simplify_expr,
    passes.simplify_inference,
]


@pytest.mark.parametrize("item", EXACT, ids=lambda item: item.name)
@given(module=modules())
def test_pass_keeps_the_result(item, module):
    after = item(module)
    verify(after)
    assert_same(module, after)


@given(module=relay_modules())
def test_passes_keep_the_results_of_all_operators(module):
    after = module
    for item in EXACT:
        if item is not passes.simplify_inference:  # which rounds differently
            after = item(after)
    verify(after)
    assert_same(module, after)


@pytest.mark.parametrize("item", EXACT, ids=lambda item: item.name)
@given(module=modules())
def test_pass_is_idempotent(item, module):
    once = item(module)
    assert item(once) is once


@given(module=modules())
def test_passes_together_keep_the_result(module):
    after = module
    with PassContext(opt_level=3):
        for item in EXACT:
            after = item(after)
    verify(after)
    assert_same(module, after)


@pytest.mark.parametrize("item", EXACT, ids=lambda item: item.name)
@given(module=modules())
def test_every_binding_keeps_an_origin(item, module):
    for function in item(module).functions.values():
        for binding in walk_bindings(function.body):
            assert binding.origin, f"{binding.var} has no origin after {item.name}"
