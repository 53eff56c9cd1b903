"""Requeues refused pods when a node changes. Setting `wake_up`."""
