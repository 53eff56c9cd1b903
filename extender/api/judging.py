"""How the service judges classes of nodes: in another thread, in bounded time, each class for itself.

Laws of this file
- On the event loop a replay has `LOOP_STEPS`; what needs more goes to the thread.
- A class that could not be judged is unknown. It is logged and counted once, with what is needed to see it again.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import Final

from extender.api.service import Service
from extender.cluster.node_class import NodeClass
from extender.scheduling.cache import Judgements, ShapeMemo, judge_all, judge_quickly
from extender.scheduling.judge import Judgement, Trouble

LOG: Final = logging.getLogger(__name__)
_MAX_NAMES: Final = 5
_MAX_SHAPE: Final = 1_500
"""Characters of a pod shape in a log entry."""


async def judge_missing(
    service: Service, memo: ShapeMemo, missing: Collection[NodeClass], deadline: float | None = None
) -> frozenset[int]:
    """Judge these classes in another thread and remember the judgements. *deadline*: by the service's clock.

    Returns the ids of those that are not judged because their own replays took the time; others that are not judged
    had to wait for too many.
    """

    def out_of_time() -> bool:
        return deadline is not None and service.clock() > deadline

    judged = await service.offload(
        judge_all, service.judge, memo.shape, missing, out_of_time, service.troubles.is_heavy
    )
    service.memo.store(memo, _settled(service, memo, missing, judged.judgements))
    for each in missing:
        if each.id in judged.heavy:
            _tell(service, memo, each, Trouble.TIME, "")
    return judged.heavy


def judge_at_once(service: Service, memo: ShapeMemo, missing: Collection[NodeClass]) -> None:
    """Judge here those of the classes that are quickly judged, and remember the judgements.

    For one or two classes, another thread costs more than the replay.
    """
    judged = judge_quickly(service.judge, memo.shape, missing)
    service.memo.store(memo, _settled(service, memo, missing, judged))


def _settled(
    service: Service, memo: ShapeMemo, classes: Iterable[NodeClass], judgements: Mapping[int, Judgement]
) -> Judgements:
    """The judgements as they are remembered, counted; those with trouble are told to people."""
    service.metrics.judgements.labels("replayed").inc(len(judgements))
    troubled = [each for each in classes if each.id in judgements and judgements[each.id].trouble is not None]
    if not troubled:
        return judgements
    settled = dict(judgements)
    for each in troubled:
        judgement = settled[each.id]
        settled[each.id] = judgement._replace(detail="")
        if judgement.trouble is not None:
            _tell(service, memo, each, judgement.trouble, judgement.detail)
    return settled


def _tell(service: Service, memo: ShapeMemo, node_class: NodeClass, trouble: Trouble, detail: str) -> None:
    service.metrics.unjudged.labels(trouble.value).inc()
    pod = memo.shape.pod
    if not service.troubles.note(node_class.id, trouble, pod):
        return
    names = list(islice((r.name for r in service.cluster if r.node_class is node_class), _MAX_NAMES))
    shape = repr(pod.shape)[:_MAX_SHAPE]
    LOG.log(
        logging.ERROR if trouble is Trouble.DEFECT else logging.WARNING,
        "class of nodes not judged trouble=%s class=%d nodes=%s pod=%s/%s shape=%s%s",
        trouble.value,
        node_class.id,
        ",".join(names),
        pod.namespace,
        pod.name,
        shape,
        f"\n{detail}" if detail else "",
    )
