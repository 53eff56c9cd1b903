"""A file for each question, from its body to that of its reply, and what questions share. Pure: on a snapshot."""
