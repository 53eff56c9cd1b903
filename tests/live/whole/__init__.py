"""Nodes with the kubelet's own program: each in mount and PID namespaces of its own, on a recorded machine.

The container runtime and the device plugins only pretend. `make live LIVE='--kubelets real'` plays scenes with them.
"""
