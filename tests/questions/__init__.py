"""What-if, capacity, plans and explanations."""
