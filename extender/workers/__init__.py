"""The processes that answer questions of people, so that the scheduler never waits for them."""
