"""Counts of alignments, with the field names of the replies."""

from collections.abc import Mapping
from typing import TypedDict

from extender.replay.alignment import Alignment


class AlignmentCounts(TypedDict):
    """Pods or nodes by alignment."""

    aligned: int
    split: int
    not_managed: int


def alignment_counts(counts: Mapping[Alignment, int]) -> AlignmentCounts:
    """*counts* as fields of a reply."""
    return {
        "aligned": counts.get(Alignment.ALIGNED, 0),
        "split": counts.get(Alignment.SPLIT, 0),
        "not_managed": counts.get(Alignment.NOT_MANAGED, 0),
    }
