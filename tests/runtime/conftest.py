"""Gives these tests the model that code generation's tests use."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "codegen"))
