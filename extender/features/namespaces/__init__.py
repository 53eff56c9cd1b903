"""Alignment that labels of namespaces demand. Setting `namespace_demands`."""
