"""From a report, or a NodeResourceTopology object, to what the cluster keeps of a node."""
