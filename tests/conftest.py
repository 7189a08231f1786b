"""Hypothesis profiles: CI runs are fixed; `fuzz` searches for long; `faults` draws what CI does,
but does not look for the least example of a failure."""

from hypothesis import HealthCheck, Phase, settings

_COMMON = {"deadline": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile("ci", derandomize=True, max_examples=40, print_blob=True, **_COMMON)
settings.register_profile("faults", derandomize=True, max_examples=40,
                          phases=[Phase.explicit, Phase.generate], **_COMMON)
settings.register_profile("fuzz", max_examples=2000, print_blob=True, **_COMMON)
settings.load_profile("ci")
