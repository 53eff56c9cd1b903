"""What was decided, what was predicted, and which pods were refused. All records are bounded."""
