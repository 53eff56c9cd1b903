"""What is known of every node, pods in flight, freshness. Synchronous; the clock is an argument."""
