"""The processes that answer questions of people."""
