"""The product on real etcd, kube-apiserver and kube-scheduler on loopback; README.md describes the scenes.

The kubelets are the restatement of `tests/oracle`, which speaks to the real API server and keeps its files and sockets
as a kubelet does. Exporters and extender are the programs that a cluster would run.
"""
