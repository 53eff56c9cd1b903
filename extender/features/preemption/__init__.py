"""Room for pods that preempt others: `docs/preemption.md`. Nominated pods, and the preempt verb."""
