"""Settings of leader election and of requeueing refused pods; part of `extender.config.settings.Settings`."""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings


class LeadershipSettings(BaseSettings):
    """Tasks that only one of several processes may do. All of them need `kubernetes`."""

    lease: Literal["off", "on"] = Field(
        default="off",
        description="`on`: of several extenders behind one Service, only the holder of a Lease binds pods and requeues "
        "refused ones. Leave it off next to a scheduler: the scheduler elects its own leader, and only the active one "
        "calls its extender. If the extenders elected a leader of their own, that one could be a standby, and would "
        "refuse all bindings.",
    )
    lease_namespace: str = Field(default="numa-extender", min_length=1, description="Namespace of the Lease.")
    lease_name: str = Field(default="numa-extender", min_length=1, description="Name of the Lease.")
    lease_seconds: int = Field(
        default=7,
        ge=3,
        description="A leader that does not renew the Lease for this long is replaced, at most a tenth later. It stops "
        "writing after two thirds of it, and a binding gets two fifths at most (`bind_seconds`). Each extender makes "
        "ten calls to the API server in this time. 7: replaced within 8 s, at under three calls a second for two "
        "extenders.",
    )
    own_url: str = Field(
        default="",
        description="URL at which the other extenders reach this one, such as `https://10.1.2.3:9643`. It is written "
        "into the Lease while this one leads. Set it in all or in none: with it, a standby forwards the scheduler's "
        "calls to the leader. Empty: a standby refuses to bind, so a Service must not route to standbys.",
    )
    leader_ca_file: Path | None = Field(
        default=None, description="CA of the other extenders' certificates, PEM. Not set: the system's CAs."
    )
    leader_server_name: str = Field(
        default="",
        description="Name in those certificates, such as `numa-extender.numa-extender.svc`. They do not contain pod "
        "addresses. Empty: the host of the leader's URL.",
    )
    leader_token_file: Path | None = Field(
        default=None,
        description="Token for the leader, issued for `token_audience`. Its owner needs the scope `schedule`.",
    )
    standby_ready: bool = Field(
        default=True,
        description="Whether /readyz succeeds on a standby. Use true with `own_url`: any extender may then be called, "
        "and rollouts and drains continue. False: a standby is never ready, so that a Service routes to the leader "
        "only. Open connections stay with a former leader, and a PodDisruptionBudget counts the standby as "
        "lost.",
    )
    wake_up: bool = Field(
        default=False,
        description="Change an annotation of a node when a pod that was refused for now would fit there: the scheduler "
        "then retries the pod at once instead of after up to five minutes, from 1.30 on. Needs `patch` on nodes, a "
        "strong right.",
    )
    wake_up_seconds: float = Field(
        default=1.0, gt=0, description="Time between two scans of changed nodes. A scan touches at most one node."
    )
    pod_events: Literal["off", "on"] = Field(
        default="off",
        description="`on`: write an event on a pod that fits on no node: the reasons, on how many nodes, and the "
        "nearest request that fits. Needs `create` on events (components/pod-events). At most one in 2 s, and one for "
        "a pod in 5 minutes.",
    )
    janitor: Literal["off", "dry-run", "on"] = Field(
        default="off",
        description="`on`: delete failed pods that kubelets refused for their topology, if a ReplicaSet, "
        "ReplicationController, StatefulSet or DaemonSet owns them. Needs `delete` on pods (components/janitor). "
        "`dry-run`: log and count them only; try it first.",
    )
    janitor_after_seconds: float = Field(
        default=900.0, ge=60, description="How long a pod must have been seen as failed before it is deleted."
    )
    janitor_per_minute: float = Field(default=10.0, gt=0, le=600, description="Failed pods deleted in a minute.")
    max_refused_pods: int = Field(
        default=10_000, ge=1, description="Refused pods that one scan tries, the latest first."
    )
    refused_seconds: float = Field(
        default=600.0,
        gt=0,
        description="A refused pod is dropped if the scheduler has not sent it again for this long; the scheduler "
        "retries every five minutes at the latest, unless the pod is gone.",
    )
