"""What preempt knows from watches: nominated pods, running pods and disruption budgets."""
