"""Preemption: which victims make room that the kubelet would really give."""
