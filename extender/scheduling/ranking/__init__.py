"""Strategies: how good an admitting node is for a pod."""
