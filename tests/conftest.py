"""Hypothesis profiles: CI runs are fixed; `--hypothesis-profile=fuzz` searches for long."""

from hypothesis import HealthCheck, settings

_COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile("ci", derandomize=True, max_examples=40, print_blob=True, **_COMMON)
settings.register_profile("fuzz", max_examples=2000, print_blob=True, **_COMMON)
settings.load_profile("ci")
