"""The passes over relay modules, one a file. `driver.py` holds their order."""

from minitvm.relay.ir import Module
from minitvm.relay.passes.alter_op_layout import alter_op_layout
from minitvm.relay.passes.canonicalize_cast import canonicalize_cast
from minitvm.relay.passes.canonicalize_ops import canonicalize_ops
from minitvm.relay.passes.combine_parallel_batch_matmul import combine_parallel_batch_matmul
from minitvm.relay.passes.combine_parallel_conv2d import combine_parallel_conv2d
from minitvm.relay.passes.combine_parallel_dense import combine_parallel_dense
from minitvm.relay.passes.convert_layout import convert_layout
from minitvm.relay.passes.dead_code_elimination import dead_code_elimination
from minitvm.relay.passes.defuse_ops import defuse_ops
from minitvm.relay.passes.dynamic_to_static import dynamic_to_static
from minitvm.relay.passes.eliminate_common_subexpr import eliminate_common_subexpr
from minitvm.relay.passes.fast_math import fast_math
from minitvm.relay.passes.fold_constant import fold_constant
from minitvm.relay.passes.fold_scale_axis import fold_scale_axis
from minitvm.relay.passes.fuse_attention import fuse_attention
from minitvm.relay.passes.fuse_depthwise import fuse_depthwise
from minitvm.relay.passes.fuse_gelu import fuse_gelu
from minitvm.relay.passes.fuse_layer_norm import fuse_layer_norm
from minitvm.relay.passes.fuse_ops import fuse_ops
from minitvm.relay.passes.infer_type import infer_type
from minitvm.relay.passes.inline import inline
from minitvm.relay.passes.lambda_lift import lambda_lift
from minitvm.relay.passes.legalize import legalize
from minitvm.relay.passes.partial_evaluate import partial_evaluate
from minitvm.relay.passes.remove_unused_functions import remove_unused_functions
from minitvm.relay.passes.simplify_expr import simplify_expr
from minitvm.relay.passes.simplify_inference import simplify_inference
from minitvm.relay.passes.winograd import winograd
from minitvm.transform import Pass

ALL: tuple[Pass[Module], ...] = (
    canonicalize_cast,
    canonicalize_ops,
    dead_code_elimination,
    defuse_ops,
    dynamic_to_static,
    eliminate_common_subexpr,
    fast_math,
    fold_constant,
    fold_scale_axis,
    fuse_attention,
    fuse_gelu,
    fuse_layer_norm,
    fuse_ops,
    infer_type,
    inline,
    lambda_lift,
    legalize,
    remove_unused_functions,
    simplify_expr,
    simplify_inference,
)
"""Those without options."""

WITH_OPTIONS: tuple[Pass[Module], ...] = (
    combine_parallel_batch_matmul(2),
    combine_parallel_conv2d(2),
    combine_parallel_dense(2),
    convert_layout({"nn.conv2d": ["NHWC", "default"]}),
)
"""Those with options, with the ones that the examples in their docstrings show; but for
`alter_op_layout`, `fuse_depthwise` and `winograd`, which need a target."""

EVALUATING: tuple[Pass[Module], ...] = (partial_evaluate,)
"""Those that evaluate calls of functions: nodes whose value they find to be an argument, or a part
of one, are named no longer, and `check_origins_kept` can't see through calls."""

__all__ = [
    "ALL",
    "EVALUATING",
    "WITH_OPTIONS",
    "alter_op_layout",
    "canonicalize_cast",
    "canonicalize_ops",
    "combine_parallel_batch_matmul",
    "combine_parallel_conv2d",
    "combine_parallel_dense",
    "convert_layout",
    "dead_code_elimination",
    "defuse_ops",
    "dynamic_to_static",
    "eliminate_common_subexpr",
    "fast_math",
    "fold_constant",
    "fold_scale_axis",
    "fuse_attention",
    "fuse_depthwise",
    "fuse_gelu",
    "fuse_layer_norm",
    "fuse_ops",
    "infer_type",
    "inline",
    "lambda_lift",
    "legalize",
    "partial_evaluate",
    "remove_unused_functions",
    "simplify_expr",
    "simplify_inference",
    "winograd",
]
