"""DefuseOps gives back what FuseOps took."""

from __future__ import annotations

from hypothesis import given
from random_graphs import assert_same, emitter, main, modules, op

from minitvm.origin import origin
from minitvm.relay import passes
from minitvm.relay.ir import Function, GlobalVar, TensorType, Var, walk_bindings
from minitvm.relay.printer import print_module
from minitvm.relay.structural_hash import structural_hash
from minitvm.relay.verify import check_origins_kept, verify


@given(modules())
def test_fused_modules_are_defused(module):
    fused = passes.fuse_ops(module)
    after = passes.defuse_ops(fused)
    verify(after)
    check_origins_kept(fused, after)
    assert_same(module, after)
    assert list(after.functions) == ["main"]
    assert passes.defuse_ops(after) is after
    again = passes.fuse_ops(after)
    assert sorted(structural_hash(f) for f in again.functions.values() if f.is_primitive) == (
        sorted(structural_hash(f) for f in fused.functions.values() if f.is_primitive))
    for binding in walk_bindings(after.main.body):
        assert not isinstance(binding.value, Function)
        assert not isinstance(getattr(binding.value, "callee", None), GlobalVar)


def test_each_copy_has_the_origins_of_its_call():
    def build(b, x):
        e = emitter(b)
        first = e(op("abs"), e(op("negative"), x))
        between = e(op("cumsum"), first)
        return e(op("abs"), e(op("negative"), between))

    module = main([Var("x", TensorType((4,), "float32"))], build)
    fused = passes.fuse_ops(module)
    assert any(len(b.origin.names) > 1 for f in fused.functions.values() if f.is_primitive
               for b in f.body.bindings)
    after = passes.defuse_ops(fused)
    by_origin = {b.origin for b in after.main.body.bindings}
    assert all(len(item.names) == 1 for item in by_origin), print_module(after)
    assert origin("n0") in by_origin
