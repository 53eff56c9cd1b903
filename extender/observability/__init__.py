"""Metrics, logs, traces and readiness."""
