"""Scores: how good a node that admits the pod is for it."""
