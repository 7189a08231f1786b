"""The faults that `plant_faults.py` plants: one line each, and the tests that must notice.

`old` is text that occurs once in `file`; `new` takes its place. `tests` are property tests: they
know nothing of the fault, nor of the text that the code around it gives. To add a fault, add a row;
`python tests/plant_faults.py NAME` runs it alone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Fault:
    """A mistake that someone could make."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


PIPELINE = "tests/testing/test_relay_pipeline.py"
WHOLE = "tests/end_to_end/test_whole_compiler.py"
KEEP_MEANING = "tests/relay/passes/test_passes_keep_meaning.py"
IMPORTED = "tests/relay/onnx/test_generated_attributes.py"
LIFTING = ("tests/relay/passes/test_lambda_lift.py::"
           "test_lifting_and_inlining_keep_the_meaning_of_random_programs")
LIFTED_PROGRAMS = (
    "tests/relay/passes/test_lambda_lift.py::"
    "test_functions_chosen_at_run_time_become_tags_and_what_they_capture")
FOLD_SCALE = "tests/relay/passes/test_fold_scale_axis.py"
SCALED_CHAINS = f"{FOLD_SCALE}::test_random_chains_compute_the_same"
SIGNED_SCALES = f"{FOLD_SCALE}::test_scales_of_any_sign_around_what_compares"
TE = ("tests/te/test_te_bounds.py", "tests/te/test_random_schedules.py")
SIMPLIFY = ("tests/tir/test_simplify_rules.py", "tests/tir/test_simplify_fuzz.py")
MACHINE = ("tests/codegen/test_arithmetic.py", "tests/codegen/test_fuzz.py")

FAULTS = (
    # --- relay: types, meanings, import -----------------------------------------------------------
    Fault(
        "type rule: pooling counts a window that begins in the padding",
        "minitvm/relay/ops/nn/windows.py",
        "return count - 1 if starts_in_padding else count",
        "return count",
        (IMPORTED,),
    ),
    Fault(
        "import: Gemm transposes B where it should not",
        "minitvm/relay/onnx/converters/products.py",
        'if not c.flag("transB"):',
        'if c.flag("transB"):',
        (IMPORTED,),
    ),
    Fault(
        "meaning against compute: the mean counts taps from the wrong row",
        "minitvm/relay/ops/nn/pooling.py",
        "count_y = self.counts(0, i[y], height, ir)",
        "count_y = self.counts(0, i[x], height, ir)",
        (WHOLE,),
    ),
    Fault(
        "meaning against compute: a group of a convolution reads its neighbour",
        "minitvm/relay/ops/nn/conv2d_compute.py",
        "return output // (outputs // groups) * inputs + index",
        "return output % groups * inputs + index",
        (WHOLE,),
    ),
    # --- relay: passes ----------------------------------------------------------------------------
    Fault(
        "fold scale: a value that is used elsewhere too is scaled",
        "minitvm/relay/passes/fold_scale_axis.py",
        "if self.counts[data] != 1:",
        "if self.counts[data] < 1:",
        (SCALED_CHAINS, PIPELINE),
    ),
    Fault(
        "fold scale: a negative scale passes a relu",
        "minitvm/relay/passes/scale_rules.py",
        "if needs_positive and not scale.is_positive:",
        "if needs_positive and not scale.factors.any():",
        (SIGNED_SCALES,),
    ),
    Fault(
        "layouts: a reshape stands for a transform that drops padding",
        "minitvm/relay/layout.py",
        "return unpadded and digits(source) == digits(target)",
        "return digits(source) == digits(target)",
        ("tests/relay/test_layout.py", PIPELINE),
    ),
    Fault(
        "layouts: elements of a block are stored in the wrong order",
        "minitvm/relay/layout.py",
        "split = array.reshape(shape).transpose(order + dropped)",
        "split = array.reshape(shape[::-1]).transpose(order + dropped)",
        ("tests/relay/test_layout.py", PIPELINE),
    ),
    Fault(
        "common subexpressions: attributes are not compared",
        "minitvm/relay/passes/eliminate_common_subexpr.py",
        "return (op.name, repr(op), *map(atom_key, arguments))",
        "return (op.name, *map(atom_key, arguments))",
        (PIPELINE, KEEP_MEANING),
    ),
    Fault(
        "fusion: a value that leaves the function is fused away",
        "minitvm/relay/passes/partition.py",
        "if node.users and not node.escapes:",
        "if node.users:",
        (PIPELINE, KEEP_MEANING),
    ),
    Fault(
        "fusion: an origin is lost",
        "minitvm/relay/passes/fuse_ops.py",
        "origins.append(binding.origin)",
        "origins[:] = [binding.origin]",
        (PIPELINE, "tests/end_to_end/test_provenance.py"),
    ),
    Fault(
        "functions: a call of one of several takes the wrong one at a border of tags",
        "minitvm/relay/passes/function_branches.py",
        "bound = Constant(np.array(options[half].number,",
        "bound = Constant(np.array(options[half - 1].number,",
        (LIFTING,),
    ),
    Fault(
        "functions: what one branch computes is passed around the branches",
        "minitvm/relay/passes/function_branches.py",
        "if not given or any(inner.binds(atom) for atom, inner in given):",
        "if not given:",
        (LIFTING,),
    ),
    Fault(
        "functions: slots are taken over from a choice that is laid out otherwise",
        "minitvm/relay/passes/function_branches.py",
        "return all(shapes[option.number] == shape(option) for option in known.options)",
        "return bool(shapes)",
        (LIFTED_PROGRAMS,),
    ),
    Fault(
        "functions: what a recursion gives is looked for in one round",
        "minitvm/relay/passes/lambda_lift.py",
        "changed = changed or len(search) > len(keys)",
        "changed = len(search) > len(keys)",
        (LIFTING,),
    ),
    # --- memory -----------------------------------------------------------------------------------
    Fault(
        "memory: tensors that meet in one step overlap",
        "minitvm/relay/arena.py",
        "(self._start[:count] <= block.end)",
        "(self._start[:count] < block.end)",
        ("tests/relay/test_memory.py",),
    ),
    Fault(
        "memory: what a view looks at is not kept alive",
        "minitvm/relay/memory.py",
        "                for atom in atoms(call):\n",
        "                for atom in atoms(call)[:1]:\n",
        ("tests/relay/test_memory.py", WHOLE),
    ),
    # --- te ---------------------------------------------------------------------------------------
    Fault(
        "bound inference: a difference of two moving terms starts too high",
        "minitvm/te/span.py",
        "return Span(a.low - b.low - b.width, a.width + b.width)",
        "return Span(a.low - b.low, a.width + b.width)",
        TE,
    ),
    Fault(
        "bound inference: the region of two readers is too small",
        "minitvm/te/span.py",
        "return Span(a.low, max(a.width, step + b.width))",
        "return Span(a.low, max(a.width, b.width))",
        TE,
    ),
    Fault(
        "te lowering: the parts of a fused axis are taken in the wrong order",
        "minitvm/te/bounds.py",
        "for part in reversed(parts):\n        extent = at_least_one",
        "for part in parts:\n        extent = at_least_one",
        TE,
    ),
    Fault(
        "te lowering: a split counts in steps of the outer extent",
        "minitvm/te/bounds.py",
        "values[outer] * extents[inner] + values[inner]",
        "values[outer] * extents[outer] + values[inner]",
        TE,
    ),
    Fault(
        "te lowering: a tail keeps no guard",
        "minitvm/te/nest_writer.py",
        "if not self.analyzer.prove(condition):",
        "if self.analyzer.prove(condition):",
        TE,
    ),
    Fault(
        "te lowering: a reduction starts anew inside of its second loop",
        "minitvm/te/nest_writer.py",
        "reduce = next((leaf for leaf in outer if",
        "reduce = next((leaf for leaf in reversed(outer) if",
        TE,
    ),
    Fault(
        "te inlining: what is read is not moved to where it is read",
        "minitvm/te/inline.py",
        "indices = tuple(map(self._index, indices, repeat(points)))",
        "indices = tuple(map(self._index, indices, repeat({})))",
        TE,
    ),
    Fault(
        "tensor intrinsics: a read that runs the other way matches",
        "minitvm/te/tensorize.py",
        "if self._is_local(offset) or not whole:",
        "if not whole:",
        ("tests/te/test_tensorize.py", "tests/te/test_te_intrinsics.py"),
    ),
    Fault(
        "tensor intrinsics: sums of two products saturate",
        "minitvm/te/intrinsics/dot.py",
        "SEVEN_BITS = 64",
        "SEVEN_BITS = 80",
        ("tests/te/test_te_intrinsics.py",),
    ),
    Fault(
        "tensor intrinsics: a target with one of two features will do",
        "minitvm/target.py",
        "return any(known.issuperset(each.split(\",\")) for each in sets)",
        "return any(known.intersection(each.split(\",\")) for each in sets)",
        ("tests/te/test_te_intrinsics.py", "tests/codegen/test_instructions.py"),
    ),
    # --- tir --------------------------------------------------------------------------------------
    Fault(
        "simplifier rule: the remainder of a difference loses its sign",
        "minitvm/tir/rules.py",
        "(x * y - z) % y -> (0 - z) % y",
        "(x * y - z) % y -> z % y",
        SIMPLIFY,
    ),
    Fault(
        "simplifier rule: a factor that may be negative leaves a minimum",
        "minitvm/tir/rules.py",
        "min(x * c1, y * c1) -> min(x, y) * c1  if c1 > 0",
        "min(x * c1, y * c1) -> min(x, y) * c1  if c1 != 0",
        SIMPLIFY,
    ),
    Fault(
        "loop partition: the interior begins an iteration early",
        "minitvm/tir/passes/loop_partition.py",
        "first = low if found[0] is None else max(low, found[0])",
        "first = low if found[0] is None else max(low, found[0] - 1)",
        ("tests/tir/passes/test_loop_partition.py",),
    ),
    Fault(
        "vectorize: a mask inside of another forgets that one",
        "minitvm/tir/passes/vectorize_loop.py",
        "condition if self.mask is None else And(self.mask, condition)",
        "condition",
        ("tests/tir/passes/test_vectorize_loop.py",),
    ),
    Fault(
        "codegen: of a second vector, the elements between are taken",
        "minitvm/codegen/expressions.py",
        "lane * 2 + (lane * 2 >= count)",
        "lane * 2",
        ("tests/codegen/test_llvm.py",),
    ),
    Fault(
        "vectorize: a ramp that is subtracted goes up",
        "minitvm/tir/passes/vectorize_loop.py",
        "return Ramp(a - base, 0 - stride, count)",
        "return Ramp(a - base, stride, count)",
        ("tests/tir/passes/test_vectorize_loop.py",),
    ),
    Fault(
        "loop partition: the last row is taken for the interior",
        "minitvm/tir/passes/loop_partition.py",
        "last = high if found[1] is None else min(high, found[1])",
        "last = high if found[1] is None else min(high, found[1] + 1)",
        ("tests/tir/passes/test_loop_partition.py",),
    ),
    Fault(
        "linear forms: a quotient's bound is that of its dividend",
        "minitvm/tir/affine.py",
        "form = _difference(dividend, Const(bound * divisor, dividend.dtype))",
        "form = _difference(dividend, Const(bound * divisor - 1, dividend.dtype))",
        ("tests/tir/test_affine.py",),
    ),
    Fault(
        "common subexpressions: a load is moved over a store",
        "minitvm/tir/passes/common_subexpr_elim.py",
        "key = (type(expr), _LABELS[type(expr)](expr), operands, place if reads else -1)",
        "key = (type(expr), _LABELS[type(expr)](expr), operands, -1)",
        ("tests/tir/passes/test_common_subexpr_elim.py",),
    ),
    Fault(
        "common subexpressions: what is lazy is evaluated always",
        "minitvm/tir/passes/common_subexpr_elim.py",
        "if count > 1 and number in self.eager",
        "if count > 1",
        ("tests/tir/test_passes.py", "tests/tir/passes/test_common_subexpr_elim.py"),
    ),
    Fault(
        "symbolic loops: the part without guards is one iteration too long",
        "minitvm/tir/affine.py",
        "return End((limit - moving.high) // factor, moving.is_point)",
        "return End((limit - moving.high) // factor + 1, moving.is_point)",
        ("tests/tir/passes/test_partition_symbolic_loops.py",),
    ),
    Fault(
        "rolling buffers: the last new row is taken for one that is kept",
        "minitvm/te/rolling.py",
        "offset >= self.extent - self.stride",
        "offset > self.extent - self.stride",
        ("tests/te/test_rolling.py",),
    ),
    Fault(
        "rolling buffers: a row comes in the place of one that is still read",
        "minitvm/te/rolling.py",
        "(index - self.base) % self.extent",
        "(index - self.base) % (self.extent - 1)",
        ("tests/te/test_rolling.py",),
    ),
    Fault(
        "scans: a copy of a state reads the step that is being computed",
        "minitvm/te/memory.py",
        "ir.minimum(step, time - 1)",
        "ir.minimum(step, time)",
        ("tests/te/test_scan.py",),
    ),
    Fault(
        "storage folding: the window is one too small",
        "minitvm/tir/passes/storage_folding.py",
        "return max(highs) - min(lows) + 1 if",
        "return max(highs) - min(lows) if",
        ("tests/tir/passes/test_storage_folding.py",),
    ),
    Fault(
        "storage folding: windows that move at different speeds fold",
        "minitvm/tir/passes/storage_folding.py",
        "len(factors) == 1 and factors != {0}",
        "factors != {0}",
        ("tests/tir/test_passes.py", "tests/tir/passes/test_storage_folding.py"),
    ),
    Fault(
        "storage rewrite: memory is reused while it is still read",
        "minitvm/tir/passes/storage_rewrite.py",
        "if memory.taken_until < first and",
        "if memory.taken_until <= first and",
        ("tests/tir/passes/test_other_passes.py",),
    ),
    Fault(
        "no-ops: a copy within a buffer counts as a store to itself",
        "minitvm/tir/passes/remove_no_op.py",
        "value.buffer is buffer and value.indices == indices",
        "value.buffer is buffer and len(value.indices) == len(indices)",
        ("tests/tir/test_passes.py", "tests/tir/passes/test_remove_no_op.py"),
    ),
    Fault(
        "hoisting: a guard that reads memory leaves its loop",
        "minitvm/tir/passes/movable.py",
        "        case Load():\n            return False\n",
        "        case Load():\n            return True\n",
        ("tests/tir/test_passes.py", "tests/tir/passes/test_other_passes.py"),
    ),
    Fault(
        "deep expressions: a lazy part is computed where it is not reached",
        "minitvm/tir/passes/narrow_deep_expressions.py",
        "        if guard is not None:\n            otherwise",
        "        if guard is None:\n            otherwise",
        ("tests/tir/passes/test_other_passes.py",),
    ),
    Fault(
        "narrow indices: an overflow in the middle of an index is not seen",
        "minitvm/tir/passes/narrow_data_type.py",
        "if not self.analyzer.interval(expr).within(low, high):",
        "if not self.analyzer.interval(expr).within(2 * low, 2 * high):",
        ("tests/tir/passes/test_narrow_data_type.py",),
    ),
    Fault(
        "bound checks: the last element counts as out of bounds",
        "minitvm/tir/passes/inject_bound_checks.py",
        "end >= Const(size, end.dtype)",
        "end >= Const(size - 1, end.dtype)",
        ("tests/tir/passes/test_inject_bound_checks.py",),
    ),
    Fault(
        "vectorize: lanes that depend on each other run together",
        "minitvm/tir/passes/lane_dependence.py",
        "for distance in range(1, extent):",
        "for distance in range(2, extent):",
        ("tests/tir/test_passes.py", "tests/tir/passes/test_vectorize_loop.py"),
    ),
    Fault(
        "flatten: an index is multiplied by the wrong extent",
        "minitvm/tir/passes/flatten_buffers.py",
        "stride = extent if stride is None else stride * extent",
        "stride = extent if stride is None else stride + extent",
        ("tests/tir/test_passes.py",),
    ),
    Fault(
        "unrolling: every round is the first",
        "minitvm/tir/passes/unroll_loop.py",
        "copy_statement(body, {var: start + i})",
        "copy_statement(body, {var: start + 0 * i})",
        ("tests/tir/test_passes.py",),
    ),
    # --- machine code and run time ----------------------------------------------------------------
    Fault(
        "machine code: a maximum loses a NaN",
        "minitvm/codegen/arithmetic.py",
        'beaten = "olt" if op == "max" else "ogt"',
        'beaten = "ult" if op == "max" else "ogt"',
        MACHINE,
    ),
    Fault(
        "machine code: unsigned integers are widened with their sign",
        "minitvm/codegen/arithmetic.py",
        'else "sext" if signed else "zext"',
        'else "sext"',
        MACHINE,
    ),
    Fault(
        "machine code: floor division rounds to zero",
        "minitvm/codegen/arithmetic.py",
        'return f.pure(f"add {kind} {quotient}, {down}")',
        "return quotient",
        MACHINE,
    ),
    Fault(
        "run time: an input of another shape is taken",
        "minitvm/runtime/tensor_info.py",
        "if array.shape != self.shape:",
        "if array.size != int(np.prod(self.shape)):",
        ("tests/runtime/test_module.py",),
    ),
    Fault(
        "cache: a kernel's key leaves out its schedule",
        "minitvm/driver.py",
        "parts = (print_function(function), repr(steps), str(self.target)",
        "parts = (print_function(function), str(self.target)",
        ("tests/end_to_end/test_compiler.py",),
    ),
)
