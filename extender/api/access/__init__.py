"""Who may call which route, and how often."""
