"""The bodies of POST /v1/what-if, /v1/capacity and /v1/plan."""

from typing import Annotated

from pydantic import Field

from extender.wire.questions import HypotheticalNode, Question, Workload
from extender.wire.validation import doc

MAX_HYPOTHETICAL = 64
MAX_MIX = 64
MAX_COPIES = 10_000
MAX_PLANNED_PODS = 10_000

NodeNames = Annotated[
    list[str] | None,
    Field(
        description="Live nodes by name. Null: all of them, unless `hypothetical` nodes are given. Empty: none.",
        max_length=20_000,
    ),
]


class WhatIfRequest(Question):
    """A pod, and the nodes to check."""

    pod: Workload
    nodes: NodeNames = None
    hypothetical: Annotated[
        list[HypotheticalNode], Field(description="Hypothetical nodes to check as well.", max_length=MAX_HYPOTHETICAL)
    ] = []
    explain: Annotated[bool, doc("Explain each verdict, and search for the nearest requests that fit.")] = False


class CapacityRequest(Question):
    """How many pods fit: copies of one pod, or of a mix of pods taken in turn."""

    pods: Annotated[
        list[Workload], Field(description="One pod, or a mix of pods taken in turn.", min_length=1, max_length=MAX_MIX)
    ]
    nodes: NodeNames = None
    hypothetical: Annotated[
        list[HypotheticalNode], Field(description="Hypothetical nodes to count as well.", max_length=MAX_HYPOTHETICAL)
    ] = []
    max_copies: Annotated[int, Field(ge=1, le=MAX_COPIES, description="Stop counting on a node at this many pods.")] = (
        1000
    )

    group: Annotated[
        int,
        Field(
            ge=1, le=MAX_COPIES, description="Pods that must run together: the answer counts whole groups of so many."
        ),
    ] = 1


class PlannedWorkload(Question):
    """Pods of one template in a plan."""

    pod: Workload
    copies: Annotated[
        int | None, Field(ge=0, le=MAX_PLANNED_PODS, description="Null: the number of replicas in the document.")
    ] = None


class PlanRequest(Question):
    """Pods in the order of their creation."""

    all_or_nothing: Annotated[
        bool, doc("If one pod fits on no node, none is placed: no line has a node, and `held_back` counts them.")
    ] = False

    pods: Annotated[
        list[PlannedWorkload],
        Field(description="In the order of their creation.", min_length=1, max_length=MAX_PLANNED_PODS),
    ]
    nodes: NodeNames = None
    hypothetical: Annotated[
        list[HypotheticalNode], Field(description="Hypothetical nodes to use as well.", max_length=MAX_HYPOTHETICAL)
    ] = []
