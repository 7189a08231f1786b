"""TVM's names of the passes over relay, as functions that give a `Pass`.

    from minitvm.relay import transform
    passes = minitvm.transform.Sequential([transform.SimplifyInference(), transform.FoldConstant()])
    module = passes(module)

Options that a pass takes through `PassContext` there are arguments here.
"""

from __future__ import annotations

from minitvm.relay import passes
from minitvm.relay.ir import Module
from minitvm.relay.passes.fuse_ops import fuse
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
    return Pass("FuseOps", lambda module: fuse(module, fuse_opt_level))
