"""CanonicalizeCast: what is stored between kernels is narrow."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import minitvm
from minitvm.relay import passes
from minitvm.relay.interpret import run
from minitvm.relay.ir import Module
from minitvm.relay.origins import check_origins_kept
from minitvm.relay.parser import parse_module
from minitvm.relay.printer import print_module
from minitvm.relay.verify import verify
from minitvm.transform import PassContext

HEADER = 'def main(x: Tensor((4,), "int8"), y: Tensor((4,), "float32")) -> '


def module(body: str, result: str = 'Tensor((4,), "float32")') -> Module:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    return parse_module(f"{HEADER}{result}:\n{lines}\n")


UNCHANGED = {
    "one reader": """
        v0 = cast(x, dtype="float32")  #: "cast"
        v1 = add(v0, v0)  #: "a"
        return v1""",
    "a narrower dtype": """
        v0 = cast(y, dtype="int8")  #: "cast"
        v1 = abs(v0)  #: "a"
        v2 = add(v1, v0)  #: "b"
        v3 = cast(v2, dtype="float32")  #: "c"
        return v3""",
    "as wide": """
        v0 = cast(y, dtype="int32")  #: "cast"
        v1 = abs(v0)  #: "a"
        v2 = add(v1, v0)  #: "b"
        v3 = cast(v2, dtype="float32")  #: "c"
        return v3""",
    "readers that fuse with no operand": """
        v0 = cast(x, dtype="float32")  #: "cast"
        v1 = sum(v0, axis=(0,), keepdims=True)  #: "a"
        v2 = nn.softmax(v0)  #: "b"
        v3 = add(v1, v2)  #: "c"
        return v3""",
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_nothing_to_do(name):
    before = module("\n".join(line.strip() for line in UNCHANGED[name].splitlines()))
    assert passes.canonicalize_cast(before) is before


def test_the_result_and_other_readers_share_the_first_cast():
    before = module("""
v0 = cast(x, dtype="float32")  #: "cast"
v1 = exp(v0)  #: "a"
v2 = sum(v0, axis=(0,), keepdims=True)  #: "b"
v3 = add(v1, v2)  #: "c"
v4 = (v3, v0)  #: "d"
return v4""", 'Tuple(Tensor((4,), "float32"), Tensor((4,), "float32"))')
    after = passes.canonicalize_cast(before)
    verify(after)
    check_origins_kept(before, after)
    text = print_module(after)
    assert text.count("cast(x") == 2 and text.index("cast(x") < text.index("exp(")
    assert passes.canonicalize_cast(after) is after


def test_kernels_read_the_narrow_tensor():
    """A convolution's int8 result is kept, not its float32 copy."""
    text = """
def main(x: Tensor((1, 8, 6, 6), "int8"), w: Tensor((8, 8, 1, 1), "int8")) -> Tensor((1, 8, 6, 6), "float32"):
    v0 = maximum(x, const(3, (), "int8"))  #: "narrow"
    v1 = cast(v0, dtype="float32")  #: "cast"
    v2 = nn.softmax(v1, axis=1)  #: "softmax"
    v3 = exp(v1)  #: "exp"
    v4 = nn.softmax(v3, axis=1)  #: "again"
    v5 = multiply(v1, v4)  #: "product"
    v6 = add(v5, v2)  #: "sum"
    return v6
"""  # noqa: E501
    x = np.random.default_rng(0).integers(-9, 9, (1, 8, 6, 6)).astype("int8")
    inputs = {"x": x, "w": np.zeros((8, 8, 1, 1), "int8")}
    expected = run(parse_module(text), inputs)[0]
    params = {}
    for disabled in ([], ["CanonicalizeCast"]):
        with PassContext(disabled_pass=disabled):
            compiled = minitvm.compile(parse_module(text))
        np.testing.assert_allclose(compiled.run(inputs)["output0"], expected, rtol=1e-5)
        kernels = compiled.relay.functions.items()
        params[not disabled] = [param.type.dtype for name, kernel in kernels
                                if "multiply" in name for param in kernel.params]
    assert "int8" in params[True] and "int8" not in params[False]


@given(st.data())
def test_random_chains_compute_the_same(data):
    """Casts of casts, readers of all kinds, in any order."""
    names = {"x": "int8", "y": "float32"}
    lines = []
    for index in range(data.draw(st.integers(1, 9))):
        source = data.draw(st.sampled_from(sorted(names)))
        kind = data.draw(st.sampled_from(["cast", "cast", "abs", "sum", "add"]))
        name = f"v{index}"
        match kind:
            case "cast":
                dtype = data.draw(st.sampled_from(["int8", "int32", "float32", "float64"]))
                lines.append(f'{name} = cast({source}, dtype="{dtype}")')
                names[name] = dtype
            case "add":
                lines.append(f"{name} = add({source}, {source})")
                names[name] = names[source]
            case "sum":
                lines.append(f"{name} = sum({source}, axis=(0,), keepdims=True)")
                names[name] = names[source]
                lines.append(f"w{index} = add({source}, {name})")
                names[f"w{index}"] = names.pop(name)
            case _:
                lines.append(f"{name} = abs({source})")
                names[name] = names[source]
    made = sorted(set(names) - {"x", "y"})
    lines.append(f"t = ({', '.join(made)},)")
    kinds = ", ".join(f'Tensor((4,), "{names[name]}")' for name in made)
    text = "\n".join(f'{line}  #: "{line.split()[0]}"' for line in lines) + "\nreturn t"
    before = module(text, f"Tuple({kinds})")
    after = passes.canonicalize_cast(before)
    verify(after)
    check_origins_kept(before, after)
    assert passes.canonicalize_cast(after) is after
    inputs = {"x": np.array([-128, -3, 0, 127], "int8"), "y": np.array([0.5, -2, 3, 9], "float32")}
    for a, b in zip(run(before, inputs), run(after, inputs), strict=True):
        np.testing.assert_array_equal(a, b)
