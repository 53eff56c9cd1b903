"""People's questions: what if, how many fit, where would they go. Pure: a question and a snapshot in, an answer out."""
