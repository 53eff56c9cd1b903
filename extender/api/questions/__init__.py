"""Routes for questions of people, with their models."""
