"""From a report to what the cluster keeps of a node."""
