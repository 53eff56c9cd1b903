"""What is known of nodes, and when."""
