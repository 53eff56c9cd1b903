"""The answers of the NRI topology-aware resource policy when a runtime creates, resizes or stops a container.

The policy is a plugin of the container runtime (`containers/nri-plugins`, `cmd/plugins/topology-aware`). It places CPUs
and memory when a container is created, so a refusal is a `CreateContainerError` on a node that the pod is bound to.

Paths in docstrings are those of the plugin's repository at commit 0705acc8. `policy/…` stands for
`cmd/plugins/topology-aware/policy/…`. The rules were restated from the plugin's behaviour; docs/decisions.md says how
they were checked.
"""
