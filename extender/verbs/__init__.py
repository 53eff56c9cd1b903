"""What is asked of us, one file a verb: pure functions over snapshots of nodes."""
