"""Filter, prioritize, what-if, and what they remember."""
