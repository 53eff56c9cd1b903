"""The explanation of one verdict, step by step, with the nearest requests that fit."""

from typing import Annotated, Final, Literal

from extender.kubelet.sets import iter_bits
from extender.kubelet.verdict import HintsOffered, Merged, Provider, TraceEvent
from extender.nri.comparison import PoolComparison
from extender.nri.pools import PoolRule
from extender.questions.explain import MAX_HINTS, MAX_POOLS, AdmissionStory
from extender.questions.suggestions import NearestRequest
from extender.wire.replies import NUMAIds, ReplyBody, about
from extender.wire.verdicts import shown_amount

_POOL_RULES: Final = ", ".join(f"`{rule.value}`" for rule in PoolRule if rule is not PoolRule.USED)


class Hint(ReplyBody):
    """NUMA nodes that could serve a request together."""

    numa: NUMAIds
    preferred: Annotated[bool, about("Whether it has as few NUMA nodes as the hardware allows.")]


class HintsStep(ReplyBody, tag_field="step", tag="hints"):
    """The hints of one manager for one resource."""

    container: Annotated[str | None, about("Null: for the pod as a whole (pod scope).")]
    provider: Annotated[Provider, about("The manager.")]
    resource: Annotated[str, about("The resource.")]
    wanted: Annotated[int, about("CPUs, bytes or devices.")]
    opinion: Annotated[
        Literal["none", "impossible", "hints"],
        about("`none`: any NUMA node is possible. `impossible`: no set of NUMA nodes has enough."),
    ]
    minimum_width: Annotated[
        int | None, about("Smallest number of NUMA nodes that can have this amount. Hints of this width are preferred.")
    ]
    hints: Annotated[list[Hint], about("Narrowest first; at most 32.")]
    hints_left_out: Annotated[int, about("Number of hints that are not listed.")]
    preferred_count: Annotated[int, about("Number of preferred hints, including those that are not listed.")]


class MergeStep(ReplyBody, tag_field="step", tag="merge"):
    """The Topology Manager's merge of the hints."""

    container: Annotated[str | None, about("Null: for the pod as a whole (pod scope).")]
    policy: Annotated[str, about("The topology policy.")]
    affinity: Annotated[list[int] | None, about("The chosen NUMA nodes; null: any.")]
    preferred: Annotated[bool, about("Whether every manager prefers the result.")]
    admitted: Annotated[bool, about("Whether the policy admits it.")]
    why: Annotated[str, about("The rule that decided.")]


class AllocationStep(ReplyBody, tag_field="step", tag="allocation"):
    """What one manager allocated to one container."""

    container: Annotated[str, about("The container.")]
    provider: Annotated[Provider, about("The manager.")]
    taken: Annotated[str, about("The allocated resources.", "CPUs 8-9,24-25")]


class ComparedPool(ReplyBody):
    """A pool of the NRI topology-aware policy, as the policy sees it for a container."""

    pool: Annotated[str, about("Its name.", "NUMA node #1")]
    depth: Annotated[int, about("Levels below the root.")]
    shared_left_millicpu: Annotated[int, about("Left with the container in it; negative: it does not fit.")]
    isolated_left: Annotated[int, about("Isolated CPUs left with the container in it.")]
    memory_numa: Annotated[list[int] | None, about("Where its memory would be; null: nowhere.")]
    hint_score: Annotated[
        float | None, about("How well it satisfies the hints of devices, 0 to 1; null: the container has none.")
    ]
    containers: Annotated[int, about("Containers with a grant of the same kind of CPUs at this pool.")]
    lost_by: Annotated[PoolRule, about(f"Why it is not the used pool; empty: it is. {_POOL_RULES}. `why_not` says it.")]
    why_not: Annotated[str, about("The same in words, for people.", "memory of more NUMA nodes")]


class PoolsStep(ReplyBody, tag_field="step", tag="pools"):
    """How the NRI topology-aware policy compares its pools for one container."""

    container: Annotated[str, about("The container.")]
    refusal: Annotated[str, about("Why the container does not fit in the first pool; empty: it gets its place there.")]
    pools: Annotated[list[ComparedPool], about("The used one first; empty: the policy looks at no pool.")]
    pools_left_out: Annotated[int, about("Number of pools that are not listed.")]


class Explanation(ReplyBody):
    """The explanation of one verdict."""

    first_fault: Annotated[str | None, about("The first reason for the refusal, in one sentence; null: admitted.")]
    steps: Annotated[
        list[HintsStep | MergeStep | AllocationStep | PoolsStep], about("In the kubelet's order; at most 256.")
    ]
    steps_left_out: Annotated[int, about("Number of steps that are not listed.")]
    nearest: Annotated[list[NearestRequest], about("Empty if the pod is admitted, or if none was found.")]
    replays: Annotated[int, about("Number of admissions replayed in the search, which is limited.")]


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
