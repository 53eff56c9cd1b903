"""What was decided, what was predicted, and which pods were refused: bounded memories."""
