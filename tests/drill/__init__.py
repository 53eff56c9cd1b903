"""A whole cluster in one process, in virtual time: `make drill`, `python -m tests.drill --help`.

What is real: the extender (its HTTP application, verbs, ledgers, feed of the watches), the scheduler's protocol byte
for byte, report and heartbeat bodies. What is simulated: the API server, kubelets (they admit by `tests.oracle`, which
shares no code with the replay), exporters with delays, losses and reordering, a scheduler with overlapping bindings,
and restarts of the extender and of the API server at any moment. One seed, one story: there is one timeline.
"""
