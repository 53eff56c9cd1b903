"""Filter, prioritize, bind and preempt: what kube-scheduler calls the extender for."""
