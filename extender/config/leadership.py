"""The knobs of leadership and of waking refused pods: a part of `extender.config.settings.Settings`."""

from pathlib import Path
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
    own_url: str = Field(
        default="",
        description="How the other extenders reach this one, such as `https://10.1.2.3:9643`; it is written into the "
        "Lease while this one leads. Set it in all or in none: a standby then passes the scheduler's calls on to the "
        "leader. Empty: a standby refuses to bind, so a Service must not lead there.",
    )
    leader_ca_file: Path | None = Field(
        default=None, description="Who signs the certificates of the other extenders, PEM. None: the system's CAs."
    )
    leader_server_name: str = Field(
        default="",
        description="The name in those certificates, such as `numa-extender.numa-extender.svc`: a pod's address is in "
        "none. Empty: the host of the leader's URL.",
    )
    leader_token_file: Path | None = Field(
        default=None,
        description="Token to show to the leader, made for `token_audience`; its owner needs the right to schedule.",
    )
    standby_ready: bool = Field(
        default=True,
        description="Whether /readyz succeeds on a standby. With `own_url` it should: any of several may then be "
        "called, and rollouts and drains go on. False: a standby is never ready, so that a Service leads to the leader "
        "only; connections that are open stay with a former leader, and a PodDisruptionBudget counts the standby as "
        "lost.",
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
