"""Metrics, logs, traces, and whether the process is ready."""
