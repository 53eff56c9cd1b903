"""Nodes from Cluster Autoscaler for pods that only the extender refuses. Setting `autoscaling`."""
