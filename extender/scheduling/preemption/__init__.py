"""Preemption: which victims to evict so that the kubelet of a node admits the pod."""
