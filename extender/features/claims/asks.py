"""What a pod asks of DRA drivers on a node, and which devices kube-scheduler would allocate there.

Rules of this file
- A claim that does not exist yet asks for what its template says.
- Extended resources for which a class stands get one more claim, the last one, where no device plugin serves them.
- Nothing is known of a pod if one of its claims cannot be read, or has no template and does not exist, or if its claims
  ask for too much (`MAX_ASKED`).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from itertools import chain, repeat
from typing import Final, NamedTuple

from extender.dra.cel import match
from extender.dra.extended import CANNOT_FIT, RequestingContainer, class_of_name, classes_by_resource, special_claim
from extender.dra.objects import ClaimRequest, DeviceClass, DraNode, ResourceClaim
from extender.dra.pools import SliceIndex
from extender.dra.replay import AllocatorAnswer, ClusterDevices, allocate
from extender.dra.requests import AllocatedState
from extender.dra.rules import AllocatorRules
from extender.features.claims.feed import MAX_ASKED, asked_by
from extender.features.claims.outcomes import EXTENDED
from extender.kubelet.pod import ContainerKind
from extender.replay.pod import Pod

MAX_STEPS: Final = 10_000
"""Steps of one search. Of 100 recorded answers 99 take fewer than 5,000."""


def digest(*parts: object) -> str:
    """A short key that stands for values of any size."""
    return sha256(repr(parts).encode()).hexdigest()


class PodAsk(NamedTuple):
    """The claims that kube-scheduler allocates on a node, in order. `key`: equal if they ask for the same."""

    key: str
    claims: Sequence[ResourceClaim]


class PodAsks:
    """What a pod asks for on nodes of each kind. `key` as that of `PodAsk`. `claims`: those of the pod's own.

    `depends_on_node`: whether a device plugin may serve what a claim could.
    """

    def __init__(
        self,
        pod: Pod,
        claims: Sequence[ResourceClaim],
        standing: Mapping[str, DeviceClass],
        classes: Mapping[str, DeviceClass],
    ) -> None:
        """*standing*: the classes that stand for extended resources of the pod, by resource. *classes*: all."""
        names = dict.fromkeys(o.class_name for claim in claims for each in claim.requests for o in each.options)
        asked = "".join(map(asked_by, claims))
        self.claims, self.key = claims, digest(asked, standing, [classes.get(name) for name in names])
        self.depends_on_node: Final = bool(standing)
        self._classes = list(standing.values())
        self._containers = [
            RequestingContainer(
                each.name,
                {name: -(-milli // 1000) for name, milli in each.requests_milli.items()},
                each.kind is ContainerKind.INIT,
            )
            for each in (pod.containers if standing else ())
        ]
        self._wanted = sorted({name for each in self._containers for name in each.requests})
        self._known: dict[tuple[int | None, ...], PodAsk | None] = {}

    @property
    def is_empty(self) -> bool:
        """Whether the pod asks for nothing."""
        return not self.claims and not self.depends_on_node

    def on(self, allocatable: Mapping[str, int] | None) -> PodAsk | None:
        """What it asks for on a node. *allocatable*: of the node, None: not known.

        None: not known, or kube-scheduler refuses the node before it looks at claims.
        """
        if not self.depends_on_node:
            return PodAsk(self.key, self.claims)
        if allocatable is None:
            return None
        kind = tuple(min(1, allocatable[name]) if name in allocatable else None for name in self._wanted)
        if kind not in self._known:
            self._known[kind] = self._made(dict(zip(self._wanted, kind, strict=True)))
        return self._known[kind]

    def _made(self, kind: Mapping[str, int | None]) -> PodAsk | None:
        allocatable = {name: amount for name, amount in kind.items() if amount is not None}
        special = special_claim(self._containers, self._classes, allocatable)
        if special.verdict == CANNOT_FIT:
            return None
        requests = tuple(ClaimRequest(each.name, (each,)) for each in special.requests)
        last = [ResourceClaim(EXTENDED, requests)] if requests else []
        return PodAsk(digest(self.key, requests), (*self.claims, *last))


def asks_of(
    pod: Pod,
    claim_of: Callable[[str], ResourceClaim | None],
    templates: Mapping[str, ResourceClaim],
    classes: Mapping[str, DeviceClass],
    rules: AllocatorRules,
) -> PodAsks | None:
    """What the pod asks for; None: it is not known.

    *claim_of*: returns a claim that exists, by name; *templates*: by name as well.
    """
    claims, total = list[ResourceClaim](), 0
    for name, template in dict(zip(pod.claims, chain(pod.templates, repeat("")), strict=False)).items():
        made_from = templates.get(template)
        claim = claim_of(name) or (made_from and made_from._replace(name=name))
        if claim is not None and claim.allocated is None:
            total += len(asked_by(claim))
        if claim is None or total > MAX_ASKED:
            return None
        claims.append(claim)
    standing = standing_for(pod, classes, rules)
    return None if standing is None else PodAsks(pod, [c for c in claims if c.allocated is None], standing, classes)


def standing_for(
    pod: Pod, classes: Mapping[str, DeviceClass], rules: AllocatorRules
) -> Mapping[str, DeviceClass] | None:
    """The classes that stand for extended resources of the pod, by resource; None: it is not known."""
    if not pod.wants_devices or not rules.extended_resources:
        return {}
    by_resource = classes_by_resource(classes.values())
    wanted = {name for each in pod.containers for name, milli in each.requests_milli.items() if milli}
    named = filter(None, (class_of_name(name, classes) for name in wanted))
    if any(by_resource.get(each.extended_resource, each) is not each for each in named):
        return None  # kube-scheduler may not know that the class stands for it
    return {name: by_resource[name] for name in sorted(wanted & by_resource.keys())}


def search(
    ask: PodAsk,
    node: DraNode,
    index: SliceIndex,
    classes: Mapping[str, DeviceClass],
    holders: Sequence[ResourceClaim],
    rules: AllocatorRules,
) -> Sequence[AllocatorAnswer]:
    """The possible answers of kube-scheduler for a node, one of them if it is `unknown`. *holders*: of devices."""
    held, matches = AllocatedState(holders, rules), partial(match, with_lists=rules.lists_in_cel)
    return allocate(ClusterDevices(index, classes, held, matches, rules), node, ask.claims, MAX_STEPS)
