"""Tests are evidence: vectors first, then laws, then contracts across processes."""
