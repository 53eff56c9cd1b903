"""The HTTP face: statuses, problems, limits."""
