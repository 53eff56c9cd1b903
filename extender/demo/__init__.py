"""The demo: a sample cluster of nodes like real servers, and the placement of two pods on it.

Rules of this package
- The nodes are data (`samples/cluster/*.yaml`). What their kubelets have allocated is computed by replay.
- The exporter runs as on a real node, as a separate process, and reports over HTTP.
- `samples.files` and `exporters` take the place of the kernel and the kubelet of the sample nodes.
"""
