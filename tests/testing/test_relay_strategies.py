"""The strategies: what they draw is well-typed, varied, and depends on what is drawn alone."""

from collections import Counter

import numpy as np
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

from minitvm import relay
from minitvm.relay.ir import Call, atoms, walk_bindings
from minitvm.relay.op import Op, Pattern
from minitvm.relay.verify import verify
from minitvm.testing.features import FEATURES, features
from minitvm.testing.relay_growth import HUGE, SPECIAL_VALUES, is_exact
from minitvm.testing.relay_strategies import grow_case, relay_cases, relay_modules

EXAMPLES = 200


def collect(**arguments):
    """The distribution of features and operators over many cases."""
    found, operators, cases = Counter(), Counter(), []

    @settings(max_examples=EXAMPLES, derandomize=True, database=None, deadline=None,
              suppress_health_check=list(HealthCheck))
    @given(relay_cases(**arguments))
    def look(case):
        cases.append(case)
        found.update(case.features)
        operators.update({b.value.callee.name for b in walk_bindings(case.module.main.body)
                          if isinstance(b.value, Call)})

    look()
    return found, operators, cases


def test_every_feature_is_frequent():
    found, operators, cases = collect()
    rare = {name: found[name] for name in FEATURES if found[name] < 0.05 * len(cases)}
    assert not rare, f"of {len(cases)} cases"
    assert len(operators) > 40
    for name in ("nn.conv2d", "nn.dense", "nn.batch_norm", "reshape", "transpose", "split",
                 "concatenate", "nn.max_pool2d"):
        assert operators[name] >= 0.03 * len(cases), name


def test_special_values_and_none():
    _, _, cases = collect(special=True, exact=False)
    arrays = [array for case in cases for array in case.inputs.values() if array.size]
    share = np.mean([not np.isfinite(array).all() for array in arrays])
    assert share > 0.1
    _, _, cases = collect(special=False, exact=False)
    assert all(np.isfinite(array).all() for case in cases for array in case.inputs.values())
    assert np.isnan(SPECIAL_VALUES).any() and (np.abs(SPECIAL_VALUES[5:7]) < 1e-38).all()


def test_huge_elements_are_frequent_and_never_summed():
    _, _, cases = collect(special=True, exact=False)
    given_huge = [case for case in cases
                  if any((array == HUGE).any() for array in case.inputs.values()
                         if array.dtype == np.float32)]
    assert len(given_huge) > 0.1 * len(cases)
    for case in given_huge:
        huge = {param for param in case.module.main.params
                if (np.asarray(case.inputs[param.name], "float32") == HUGE).any()}
        for binding in walk_bindings(case.module.main.body):
            if huge & set(atoms(binding.value)):
                huge.add(binding.var)
                assert not isinstance(binding.value, Call) or (
                    isinstance(binding.value.callee, Op)
                    and binding.value.callee.pattern <= Pattern.INJECTIVE), case.module


@given(relay_cases(exact=True))
def test_exact_cases_hold_integers(case):
    assert is_exact(list(case.inputs.values()))
    assert is_exact(relay.run(case.module, case.inputs))


@given(relay_cases(branches=True))
def test_cases_are_sound_and_run(case):
    verify(case.module)
    assert case.features == features(case.module)
    assert set(case.inputs) == {param.name for param in case.module.main.params}
    relay.run(case.module, case.inputs)


@given(relay_modules(operators=["add", "nn.relu"]))
def test_operators_can_be_restricted(module):
    names = {b.value.callee.name for b in walk_bindings(module.main.body)
             if isinstance(b.value, Call)}
    assert names <= {"add", "nn.relu"}


def test_branches_are_drawn_where_wanted():
    ifs = sum("if" in relay.print_module(case.module) for case in collect(branches=True)[2])
    assert ifs > 0.1 * EXAMPLES


@given(st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=6))
def test_a_case_depends_on_its_seeds_alone(seeds):
    first, second = grow_case(seeds), grow_case(seeds)
    assert relay.print_module(first.module) == relay.print_module(second.module)
    for name, array in first.inputs.items():
        np.testing.assert_array_equal(array, second.inputs[name])


def test_failing_cases_shrink():
    small = find(
        relay_cases(), lambda case: "nn.conv2d" in relay.print_module(case.module),
        settings=settings(max_examples=300, database=None, derandomize=True, deadline=None,
                          suppress_health_check=list(HealthCheck)),
    )
    assert len(small.module.main.body.bindings) <= 4
