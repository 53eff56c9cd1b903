"""What-if, capacity, plans and explanations. Pure functions over snapshots of nodes."""
