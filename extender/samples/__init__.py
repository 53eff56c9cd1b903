"""Sample machines and nodes: the catalogue of hypothetical nodes, the cluster of the demo, and nodes for tests."""
