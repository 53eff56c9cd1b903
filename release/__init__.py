"""Builds what a release publishes: `make release`. Not part of the product."""
