"""Counts of alignments, with the field names of the replies."""

from collections.abc import Mapping

from extender.replay.alignment import Alignment


def alignment_counts(counts: Mapping[Alignment, int]) -> dict[str, int]:
    """Counts of `aligned`, `split` and `not_managed`."""
    return {each.value.replace("-", "_"): counts.get(each, 0) for each in Alignment}
