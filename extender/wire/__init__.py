"""Converts JSON to replay values and back.

Malformed input becomes a `WireError` that names the field and the reason.
"""
