"""Measuring candidates: some processes build, another runs, each candidate in its own child."""
