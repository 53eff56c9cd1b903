"""The only users of the Kubernetes client: watches, bindings, leases, token reviews."""
