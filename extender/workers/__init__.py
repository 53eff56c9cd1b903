"""Worker processes that answer people's questions, so that the scheduler's calls never wait for them."""
