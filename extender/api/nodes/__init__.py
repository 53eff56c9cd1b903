"""Routes about nodes, with their models."""
