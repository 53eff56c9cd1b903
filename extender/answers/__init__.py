"""From the body of a question to the body of its answer. Pure: a question and a snapshot in, an answer out."""
