"""The explanation of one verdict, step by step, with the nearest requests that fit."""

from extender.kubelet.sets import iter_bits
from extender.kubelet.verdict import HintsOffered, Merged, Provider, TraceEvent
from extender.nri.comparison import PoolComparison
from extender.questions.explain import MAX_HINTS, MAX_POOLS, AdmissionStory
from extender.wire.pod_replies import AllocationStep, ComparedPool, Explanation, Hint, HintsStep, MergeStep, PoolsStep
from extender.wire.verdicts import shown_amount


def explanation_of(story: AdmissionStory) -> Explanation:
    """The explanation of one node's answer."""
    return Explanation.filled(
        story,
        steps=[*map(_step, story.events), *map(_pools_step, story.pools)],
        steps_left_out=story.events_left_out,
        nearest=list(story.nearest.suggestions),
        replays=story.nearest.replays,
    )


def _step(event: TraceEvent) -> HintsStep | MergeStep | AllocationStep:
    if isinstance(event, HintsOffered):
        return _offer(event)
    if isinstance(event, Merged):
        return MergeStep.filled(event, affinity=None if event.affinity is None else list(iter_bits(event.affinity)))
    return AllocationStep.filled(event, provider=Provider(event.provider))


def _offer(event: HintsOffered) -> HintsStep:
    hints = event.hints or ()
    return HintsStep.filled(
        event,
        provider=Provider(event.provider),
        wanted=shown_amount(event.wanted) or 0,
        opinion="none" if event.hints is None else "hints" if hints else "impossible",
        hints=[Hint(numa=list(iter_bits(each.mask)), preferred=each.preferred) for each in hints[:MAX_HINTS]],
        hints_left_out=max(0, len(hints) - MAX_HINTS),
        preferred_count=sum(each.preferred for each in hints),
    )


def _pools_step(comparison: PoolComparison) -> PoolsStep:
    pools = [
        ComparedPool.filled(
            row,
            shared_left_millicpu=row.shared_left,
            memory_numa=None if row.memory_nodes is None else list(iter_bits(row.memory_nodes)),
            hint_score=None if row.hint_score is None else round(row.hint_score, 3),
            containers=row.colocated,
            why_not=row.lost_by.sentence,
        )
        for row in comparison.pools[:MAX_POOLS]
    ]
    return PoolsStep.filled(comparison, pools=pools, pools_left_out=max(0, len(comparison.pools) - MAX_POOLS))
