"""Routes about past decisions and predictions, with their models."""
