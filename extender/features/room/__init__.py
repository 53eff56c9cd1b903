"""Evicts pods, within limits, so that a waiting pod or a missing pod of a declared shape gets an aligned place."""
