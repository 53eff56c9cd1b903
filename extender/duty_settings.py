"""The knobs of leadership and of waking refused pods: a part of `extender.settings.Settings`."""

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings


class DutySettings(BaseSettings):
    """What only one of several processes may do. All of it needs `kubernetes`."""

    lease: Literal["off", "on"] = Field(
        default="off",
        description="`on`: of several extenders behind one Service, only the holder of a Lease binds and wakes pods. "
        "Off next to a scheduler: that elects its own leader and only the active one asks; an extender with another "
        "leader would refuse all its bindings.",
    )
    lease_namespace: str = Field(default="numa-extender", min_length=1, description="Namespace of the Lease.")
    lease_name: str = Field(default="numa-extender", min_length=1, description="Name of the Lease.")
    lease_seconds: int = Field(
        default=7,
        ge=3,
        description="A leader that is silent for so long is replaced, a tenth later at most. It stops writing after "
        "two thirds of it; a binding gets two fifths at most (`bind_seconds`). Each of the extenders makes ten calls "
        "to the API server in this time. 7: a replacement within 8 s, and less than three calls a second of two.",
    )
    standby_ready: bool = Field(
        default=True,
        description="Whether /readyz succeeds on a standby. False: a Service leads to the leader only; needs reports "
        "that reach standbys by another way, such as NodeResourceTopology objects.",
    )
    wake_up: bool = Field(
        default=False,
        description="Touch an annotation of a node when a pod that was refused `not now` would fit there: the "
        "scheduler then tries it at once instead of after up to five minutes. Needs `patch` on nodes, a strong right.",
    )
    wake_up_seconds: float = Field(
        default=1.0, gt=0, description="Between two looks at nodes that changed; a look touches one node at most."
    )
    max_refused_pods: int = Field(default=10_000, ge=1, description="Refused pods remembered; about 1 kB each.")
    refused_seconds: float = Field(
        default=600.0,
        gt=0,
        description="How long a refused pod is remembered that the scheduler has not asked about again; it does so "
        "every five minutes at the latest, unless the pod is gone.",
    )
