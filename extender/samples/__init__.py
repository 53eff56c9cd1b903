"""Sample machines and nodes: the catalogue for hypothetical nodes, the cluster of the demo, and nodes for tests."""
