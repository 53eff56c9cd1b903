"""The devices that kube-scheduler allocates for the claims of a pod (Dynamic Resource Allocation), replayed.

The allocator searches on each node by itself: depth first, first solution, no scores. Its answer follows from the
objects of the API server. `docs/dra.md` says for which versions. Restated from the behaviour of Kubernetes 1.36.2 and
1.36.3; `allocator` in docstrings is `k8s.io/dynamic-resource-allocation/structured/internal/incubating`.
"""
