"""Nodes from Cluster Autoscaler and Karpenter for pods that only the extender refuses. Setting `autoscaling`."""
