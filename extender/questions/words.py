"""Small parts of sentences."""


def plural(count: int, noun: str) -> str:
    """`1 node`, `2 nodes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
