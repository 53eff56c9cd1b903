"""Decides which report of a node is newer.

A report has the id of the node's boot and a sequence number within it. Boots are in the order of arrival of their first
reports. The ids of some past boots are kept, so that a late report of one is recognized.
"""

from extender.cluster.errors import OutdatedError
from extender.cluster.node import REMEMBERED_BOOTS, NodeRecord, Observation


def past_boots_after(held: NodeRecord | None, observation: Observation) -> tuple[str, ...]:
    """The past boots of the node after *observation* replaces the report in *held*.

    Raises:
        OutdatedError: it may not replace that report.
    """
    if held is None:
        return ()
    known = held.observation
    if known.counts is not None:
        return held.past_boots
    if observation.boot_id in held.past_boots:
        raise OutdatedError(f"boot {observation.boot_id!r} is over", known)
    if observation.boot_id != known.boot_id:
        return (*held.past_boots, known.boot_id)[-REMEMBERED_BOOTS:]
    if observation.sequence == known.sequence:
        raise OutdatedError(f"sequence {observation.sequence} was used for another report", known)
    if observation.sequence < known.sequence:
        raise OutdatedError(f"sequence {observation.sequence} is older", known)
    return held.past_boots
