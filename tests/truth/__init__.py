"""Checks against truth that is not the product's own code. Each has `check(seed)`: cases, and what was wrong."""
