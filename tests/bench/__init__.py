"""Measurements: `python -m tests.bench [MODULE…]`, `make bench`."""
