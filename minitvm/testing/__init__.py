"""What tests of compiled programs are made of: oracles, strategies, the model zoo."""

from minitvm.testing.compare import assert_allclose

__all__ = ["assert_allclose"]
