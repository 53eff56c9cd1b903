"""A sample cluster: nodes shaped like real servers, written as the files a real node has, and the story told with them.

Rules of this package
- The nodes are data (`cluster/*.yaml`). Which pods they run, and what their kubelets gave away, follows by replay.
- The exporter is run as on a real node, as a process of its own; everything travels over real HTTP.
- `files` and `podresources` play the kernel and the kubelet of the sample nodes, and are used nowhere else.
"""
