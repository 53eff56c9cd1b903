"""The world of tests: a naive kubelet, a scheduler's calls, and an extender in this process."""
