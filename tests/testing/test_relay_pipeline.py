"""The pipeline of relay passes, on generated modules: every pass keeps the result, the invariants
and the origins, whatever the vector width."""

import numpy as np
import pytest
from hypothesis import given

from minitvm import relay
from minitvm.driver import relay_passes
from minitvm.relay.passes import alter_op_layout, convert_layout
from minitvm.relay.verify import check_origins_kept, verify
from minitvm.target import Target
from minitvm.testing.oracle import Oracle
from minitvm.testing.relay_strategies import relay_cases
from minitvm.transform import PassContext

TARGETS = [
    "llvm -mtriple=x86_64-linux-gnu -mcpu=skylake-avx512",
    "llvm -mtriple=x86_64-linux-gnu -mcpu=haswell",
    "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a76",
]


class Checks:
    """The structural checks after each pass."""

    def run_before_pass(self, name, before):
        pass

    def run_after_pass(self, name, before, after):
        verify(after)
        check_origins_kept(before, after)


ALL_BUT_APPROXIMATIONS = {"opt_level": 4, "disabled_pass": ["FastMath"]}


@pytest.mark.parametrize("target", TARGETS)
@given(case=relay_cases())
def test_every_pass_keeps_the_result(target, case):
    with PassContext(**ALL_BUT_APPROXIMATIONS, instruments=[Checks(), Oracle()]):
        relay_passes(Target(target))(case.module)


@given(case=relay_cases(branches=True))
def test_with_branches(case):
    with PassContext(**ALL_BUT_APPROXIMATIONS, instruments=[Checks(), Oracle()]):
        relay_passes(Target(TARGETS[0]))(case.module)


CONVERSIONS = [{"nn.conv2d": [image, "default"]} for image in ("NCHW", "NHWC")]


@given(case=relay_cases(branches=True))
def test_conversions_of_layouts_and_what_packs_them(case):
    passes = [*map(convert_layout, CONVERSIONS), alter_op_layout(Target(TARGETS[2]))]
    with PassContext(instruments=[Checks(), Oracle()]):
        for item in passes:
            item(case.module)
        relay_passes(Target(TARGETS[1]))(passes[1](case.module))


@given(case=relay_cases(exact=True))
def test_exact_cases_stay_exact(case):
    after = relay_passes(Target(TARGETS[1]))(case.module)
    for new, old in zip(relay.run(after, case.inputs), relay.run(case.module, case.inputs),
                        strict=True):
        np.testing.assert_array_equal(new, old)
