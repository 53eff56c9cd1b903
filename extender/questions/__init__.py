"""What people ask about: what-if, capacity, plans, explanations. Pure functions over snapshots of nodes."""
