"""From the body of a question to the body of its reply. Pure: takes a question and a snapshot, returns a reply."""
