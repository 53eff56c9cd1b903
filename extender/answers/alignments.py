"""Alignments, counted, in the field names of the answers."""

from collections.abc import Mapping

from extender.replay.alignment import Alignment


def alignment_counts(counts: Mapping[Alignment, int]) -> dict[str, int]:
    """`aligned`, `split` and `not_managed`."""
    return {each.value.replace("-", "_"): counts.get(each, 0) for each in Alignment}
