"""minitvm against other engines: what `benchmarks/run.py` does."""
