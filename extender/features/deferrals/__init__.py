"""Keeps pods away for a while from nodes that are not ready for them, or that have just refused one like them."""
