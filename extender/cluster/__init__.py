"""The state of every node with its in-flight pods. Synchronous: the clock is an argument."""
