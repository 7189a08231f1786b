"""A pass of one's own over relay: division by a power of two becomes multiplication.

    python examples/04_add_a_pass.py

x / 4 and x * 0.25 are the same number for every x, infinities and NaN included, and a product is
much quicker; x / 3 and x * (1 / 3) are not the same, so that stays. The pass is a rule for one
binding, which `rebuild_module` applies along the program; verifier and oracle watch over it.
"""

from __future__ import annotations

import numpy as np

import minitvm
from minitvm import relay
from minitvm.instruments import VerifyEach
from minitvm.relay.build import BlockBuilder, rebuild_module
from minitvm.relay.ir import Binding, Call, Constant, Module, Value
from minitvm.relay.ops.broadcast import Divide, Multiply
from minitvm.relay.verify import check_origins_kept, verify
from minitvm.testing.oracle import Oracle
from minitvm.transform import PassContext, make_pass


def reciprocal(divisor: Constant) -> np.ndarray | None:
    """1 / divisor, if that is exact: all elements are powers of two, far from the limits."""
    if divisor.data.dtype != np.float32:
        return None
    mantissa, exponent = np.frexp(divisor.data)
    if not np.all((np.abs(mantissa) == 0.5) & (np.abs(exponent) < 100)):
        return None
    return 1 / divisor.data


@make_pass("MultiplyByPowersOfTwo", opt_level=1)
def multiply_by_powers_of_two(module: Module) -> Module:
    """Replaces divisions by constant powers of two."""

    def rule(builder: BlockBuilder, binding: Binding) -> Value | None:
        match binding.value:
            case Call(Divide(), (x, Constant() as divisor)):
                inverse = reciprocal(divisor)
                if inverse is not None:
                    return Call(Multiply(), (x, Constant(inverse, binding.origin)))
        return None

    return rebuild_module(module, rule)


def main() -> None:
    x = relay.var("x", shape=(4, 1024))
    module = relay.Module.from_expr(relay.Function([x], relay.nn.relu(x / 4.0) / 3.0))
    print(f"Before:\n\n{module}")
    checks = [VerifyEach(verify, check_origins_kept), Oracle(seed=0)]
    with PassContext(instruments=checks):
        better = multiply_by_powers_of_two(module)
    print(f"After, verified and with the same results:\n\n{better}")

    data = {"x": np.random.default_rng(0).standard_normal((4, 1024)).astype("float32")}
    plain, changed = minitvm.compile(module).run(data), minitvm.compile(better).run(data)
    assert np.array_equal(plain["output0"], changed["output0"])
    print("Compiled, both give the same bits.")

    for context in (PassContext(disabled_pass=["MultiplyByPowersOfTwo"]), PassContext(opt_level=0)):
        with context:
            assert multiply_by_powers_of_two(module) is module
    print("Disabled by its name, or below its level, the pass gives what it takes.")


if __name__ == "__main__":
    main()
