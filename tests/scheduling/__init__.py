"""Filter, prioritize, bind and preempt, and what they remember."""
