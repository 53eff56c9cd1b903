"""The world that tests play: a kubelet, exporters, a scheduler's calls, and an extender in this process.

- `kubelet`: one node's kubelet by the naive restatement in `tests/oracle`, and the reports of what it holds.
- `exporters`: heartbeats, and the report where the extender asks for it, over whatever connection.
- `scheduler`: kube-scheduler's filter, prioritize and bind. `tests/drill/scheduler.py` adds its queue and preemption.
- `cluster`: `World`, a service with its verbs and watches, and `Answers`, an API server that binds as the test says.
- `watched`: Node objects and pods as the watches decode them.

`tests/reports.py` builds nodes (`sample`), their reports (`report_of`) and pods (`pod_of`, `with_init`). The fake API
server is `tests/fakes/apiserver.py`. The real kube-scheduler and kubelets are in `tests/live`.

Mutants of the extender, and what saw them before tests moved here and since. *Stories*: `tests/cluster/test_truth.py`;
*others*: `test_feed`, both `test_bind`, `test_kubelet_rules` and `test_steps`. Each ran once with `CI=true`.

========================================================  ===============  ===============
what the extender does wrong                              before           since
========================================================  ===============  ===============
the ledger forgets pods in flight                         stories, others  stories, others
a failed binding keeps its room                           stories, others  stories, others
an unclear outcome of a binding gives the room back       others           others
an older report wins                                      nobody           stories, others
an ended pod keeps its CPUs                               stories, others  stories, others
finished init containers keep their memory                nobody           stories
app containers take over no CPUs of init containers       stories, others  stories, others
pods of one second are admitted in one order              stories, others  stories, others
sudden exits are not looked for                           example, others  stories, others
========================================================  ===============  ===============

*Example*: only a story written by hand saw it; now stories that are drawn do. Rules of the kubelet are seen because the
stories' kubelet is the naive one: before, it was the replay, and both had the same fault.
"""
