"""Declared shapes: how many pods of each could start now, and nodes that keep the last room for them."""
