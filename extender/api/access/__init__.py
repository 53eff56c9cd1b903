"""Access control and rate limits for every route."""
