"""TVM's names of the passes over relay, as functions that give a `Pass`.

    from minitvm.relay import transform
    passes = minitvm.transform.Sequential([transform.SimplifyInference(), transform.FoldConstant()])
    module = passes(module)

Options that a pass takes through `PassContext` there are arguments here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from minitvm.relay import passes
from minitvm.relay.function_pass import function_pass as function_pass
from minitvm.relay.ir import Module
from minitvm.relay.passes.combine_parallel import DEFAULT_BRANCHES
from minitvm.relay.passes.fuse_ops import fuse_with_options
from minitvm.relay.pattern.partition import partition_by_rules
from minitvm.relay.pattern.rules import as_rules
from minitvm.target import Target
from minitvm.transform import Pass


def InferType() -> Pass[Module]:
    """Infers every type anew."""
    return passes.infer_type


def LambdaLift() -> Pass[Module]:
    """Moves closures to the module, and specialises functions that take or give functions."""
    return passes.lambda_lift


def Inline() -> Pass[Module]:
    """Inlines functions with the attribute `inline`, and those called once."""
    return passes.inline


def RemoveUnusedFunctions() -> Pass[Module]:
    """Drops the functions that `main` cannot reach."""
    return passes.remove_unused_functions


def Legalize() -> Pass[Module]:
    """Decomposes composite operators."""
    return passes.legalize


def CanonicalizeOps() -> Pass[Module]:
    """Makes of special cases the operator that other passes know."""
    return passes.canonicalize_ops


def CanonicalizeCast() -> Pass[Module]:
    """Gives each reader of a cast to a wider dtype a cast of its own."""
    return passes.canonicalize_cast


def SimplifyInference() -> Pass[Module]:
    """Simplifies what differs between training and inference."""
    return passes.simplify_inference


def FoldConstant() -> Pass[Module]:
    """Evaluates what depends on constants alone."""
    return passes.fold_constant


def FoldScaleAxis() -> Pass[Module]:
    """Multiplies scales of channels into weights."""
    return passes.fold_scale_axis


def SimplifyExpr() -> Pass[Module]:
    """Applies algebraic rules."""
    return passes.simplify_expr


def EliminateCommonSubexpr() -> Pass[Module]:
    """Computes nothing twice."""
    return passes.eliminate_common_subexpr


def DeadCodeElimination() -> Pass[Module]:
    """Drops what nothing needs."""
    return passes.dead_code_elimination


def AlterOpLayout(target: Target | str | None = None) -> Pass[Module]:
    """Packs tensors for a target; by default for this machine."""
    machine = target if isinstance(target, Target) else Target(target) if target else Target.host()
    return passes.alter_op_layout(machine)


def FuseOps(fuse_opt_level: int = -1) -> Pass[Module]:
    """Makes kernels; at a level of its own, or, for -1, at that of the context."""
    if fuse_opt_level < 0:
        return passes.fuse_ops
    return Pass("FuseOps", lambda module: fuse_with_options(module, fuse_opt_level))


def DefuseOps() -> Pass[Module]:
    """Undoes `FuseOps`."""
    return passes.defuse_ops


def MergeComposite(rules: Sequence[Any]) -> Pass[Module]:
    """Makes primitive functions of what patterns match: (name, pattern) or (name, pattern,
    check), the first rule before the next."""
    known = as_rules(rules)
    return Pass("MergeComposite", lambda module: partition_by_rules(known, module))


# --- on request ---------------------------------------------------------------------------------


def CombineParallelConv2D(min_num_branches: int = DEFAULT_BRANCHES) -> Pass[Module]:
    """Makes one wide convolution of several of one image; from level 4 on."""
    return passes.combine_parallel_conv2d(min_num_branches)


def CombineParallelDense(min_num_branches: int = DEFAULT_BRANCHES) -> Pass[Module]:
    """Makes one wide dense layer of several; from level 4 on."""
    return passes.combine_parallel_dense(min_num_branches)


def CombineParallelBatchMatmul(min_num_branches: int = DEFAULT_BRANCHES) -> Pass[Module]:
    """Makes one wide product of several; from level 4 on."""
    return passes.combine_parallel_batch_matmul(min_num_branches)


def ConvertLayout(desired_layouts: Mapping[str, Sequence[str]]) -> Pass[Module]:
    """Converts operators to layouts: `{"nn.conv2d": ["NHWC", "default"]}`."""
    return passes.convert_layout(desired_layouts)


def FastMath() -> Pass[Module]:
    """Approximates functions; from level 4 on."""
    return passes.fast_math


def DynamicToStatic() -> Pass[Module]:
    """Makes attributes of shapes that are constants."""
    return passes.dynamic_to_static


def PartialEvaluate() -> Pass[Module]:
    """Makes use of what is known of arguments."""
    return passes.partial_evaluate


def ToANormalForm() -> Pass[Module]:
    """Nothing to do: relay is in A-normal form here, always."""
    return Pass("ToANormalForm", lambda module: module)
