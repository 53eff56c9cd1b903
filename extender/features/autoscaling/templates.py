"""Answers filter calls of an autoscaler about nodes that do not exist yet.

Cluster Autoscaler simulates with a template of the node that a pool would get. Its name is
`template-node-for-POOL-NUMBER`, and newer versions also give it the label `TEMPLATE`.

Rules of this file
- A filter call with such a node is a simulation. No pod is bound after it, so nothing of it is recorded.
- A node that the API server has, or that has reported, is no template node, whatever its name and its labels are.
- A template node is judged as the empty nodes of the pools that its labels name (`pools`), all of which have to admit
  the pod. Of other pools a profile counts whose labels the template node has.
- A template node without any of these, or of which the call has only the name, is judged as a node that has not
  reported. Nodes of the call that exist are judged on their present state, and no feature objects to them.
- A call with more than `MAX_POOLS` kinds of template nodes, or that takes longer than `filter_seconds`, is an error.

Sources: cluster-autoscaler, July 2026; kubernetes/autoscaler#9786.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count, repeat
from typing import Final

from extender.api.service import Service
from extender.bounded import BoundedMap
from extender.cluster.node_class import NodeClass
from extender.features.autoscaling.pools import MAX_COMPARED, MAX_POOLS, Model, Pools
from extender.kube.objects import mapping, strings
from extender.scheduling.cached_judge import NotReadyError
from extender.scheduling.filter import filtered_by_judgements
from extender.scheduling.objections import Filtered, Objector
from extender.wire.scheduler import SchedulerArgs

PREFIX: Final = "template-node-for-"
TEMPLATE: Final = "cluster-autoscaler.kubernetes.io/template-node"


class TemplateNodes(Objector):
    """The objector, which answers simulations and objects to nothing else."""

    def __init__(self, service: Service, pools: Pools) -> None:
        self._service, self._pools = service, pools
        self._classes: Final[BoundedMap[object, NodeClass]] = BoundedMap(MAX_POOLS * MAX_COMPARED)
        """The classes of empty nodes, by kubelet and devices: judgements of them are kept."""
        self._ids: Final = count(-2, -1)
        """Ids of classes that no node has; -1 is `AWAITED`."""

    async def simulate(self, args: SchedulerArgs) -> Filtered | None:
        """The answer to a call with template nodes; None: it has none. Raises NotReadyError."""
        templates = dict(self._templates(args))
        if not templates:
            return None
        judging, now = self._service.judging, self._service.clock()
        entry, deadline = judging.entry(args.pod), now + self._service.settings.filter_seconds
        if not judging.is_aligned(entry.shape):
            return Filtered(feasible=args.names)
        classes = self._classes_of(templates)
        await judging.answer(entry, frozenset(each for found in classes.values() for each in found), deadline)
        refused = {}
        for name, found in classes.items():
            judgements = [each for one in found if (each := entry.get(one.id)) is not None]
            if len(judgements) < len(found):
                raise NotReadyError(f"out of time with {len(classes)} template nodes to judge")
            if reasons := [each.refusal.text for each in judgements if each.refusal is not None]:
                refused[name] = reasons[0]
        others = [name for name in args.names if not classes.get(name)]
        refused |= filtered_by_judgements(await judging.answer_nodes(entry, others, now, deadline)).refused
        return Filtered(feasible=[name for name in args.names if name not in refused], refused=refused)

    def _templates(self, args: SchedulerArgs) -> Iterator[tuple[str, Mapping[str, str]]]:
        """Name and labels of each template node of a call; no labels if it has names only."""
        known = self._service.known.nodes
        if args.nodes is None and not any(map(str.startswith, args.names, repeat(PREFIX))):
            return
        for name, node in zip(args.names, args.nodes or repeat({}), strict=args.nodes is not None):
            metadata = mapping(node, "metadata")
            is_named = name.startswith(PREFIX) or mapping(metadata, "labels").get(TEMPLATE) == "true"
            if is_named and name not in self._pools and known.get(name) is None:
                yield name, strings(metadata, "labels")

    def _classes_of(self, templates: Mapping[str, Mapping[str, str]]) -> Mapping[str, Sequence[NodeClass]]:
        """The classes that each template node may have; empty if none is known. Raises NotReadyError: too many."""
        kinds: dict[object, Sequence[NodeClass]] = {}
        found = {}
        for name, labels in templates.items():
            kind = self._pools.kind_of(labels)
            if kind not in kinds:
                if len(kinds) == MAX_POOLS:
                    raise NotReadyError(f"the call has more than {MAX_POOLS} kinds of template nodes")
                kinds[kind] = [self._class_of(model) for model in self._pools.models_for(labels)]
            found[name] = kinds[kind]
        return found

    def _class_of(self, model: Model) -> NodeClass:
        """The class of an empty node; the same object for nodes that are equal."""
        empty = model.empty()
        assert empty.kubelet is not None
        key = empty.kubelet.identity, empty.states[0].devices.key
        if key not in self._classes:
            self._classes[key] = replace(empty.node_class, id=next(self._ids))
        return self._classes[key]
