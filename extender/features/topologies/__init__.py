"""Reads NodeResourceTopology objects. Setting `topologies`."""
