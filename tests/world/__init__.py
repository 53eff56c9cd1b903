"""The world that tests play: a kubelet, exporters, a scheduler's calls, and an extender in this process.

- `kubelet`: one node's kubelet by the naive restatement in `tests/oracle`, and the reports of what it holds.
- `exporters`: heartbeats, and the report where the extender asks for it, over whatever connection.
- `scheduler`: kube-scheduler's filter, prioritize and bind. `tests/drill/scheduler.py` adds its queue and preemption.
- `cluster`: `World`, a service with its verbs and watches, and `Answers`, an API server that binds as the test says.
- `watched`: Node objects and pods as the watches decode them.

`tests/reports.py` builds nodes (`sample`), their reports (`report_of`) and pods (`pod_of`, `with_init`). The fake API
server is `tests/fakes/apiserver.py`. The real kube-scheduler and kubelets are in `tests/live`.
"""
