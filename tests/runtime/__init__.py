"""Leadership, forwarding and requeueing."""
