"""All settings of the service, from the environment (`NUMA_EXTENDER_…`). Flags of the command line take precedence.

Each field states its unit, what its default means, and the reason for it. A variable with an empty value counts as
unset.
"""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import SettingsConfigDict

from extender.config.cluster import ClusterSettings
from extender.config.leadership import LeadershipSettings
from extender.config.questions import QuestionSettings
from extender.config.security import SecuritySettings, is_loopback
from extender.scheduling.judgement import Action, UncertaintyPolicy
from extender.scheduling.ranking.strategies import STRATEGIES, Weights
from extender.wire.groups import apis_of
from extender.wire.parsing import switches_from_text

PREFIX: Final = "NUMA_EXTENDER_"
_SERVICE_LINK: Final = re.compile(r"_SERVICE_(HOST|PORT)|_PORT_\d+_(TCP|UDP|SCTP)")
"""Parts of the variables that the kubelet creates for Services (`enableServiceLinks`). They are not settings."""
MIB = 1 << 20
ANSWER_SHARE = 0.9
"""Share of `answer_seconds` for a question to wait and be answered. The rest is for the client to read the reply."""
BINDING_SHARE = 0.4
"""Share of `lease_seconds` for one binding: what a leader still has (2/3) if the last renewal was two attempts ago."""


class Settings(SecuritySettings, ClusterSettings, LeadershipSettings, QuestionSettings):
    """All settings of one extender."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="ignore")

    port: int = Field(default=9600, ge=0, le=65535, description="TCP port. 0: any free port.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lines below this level are not logged."
    )

    strategy: str = Field(
        default="least-numa-fragmentation",
        description="How prioritize scores nodes that admit the pod; see docs/strategies.md.",
    )
    resource_weights: str = Field(
        default="",
        description="Weight of each resource in all strategies but least-numa: `cpu=2,vendor.example/gpu=10`, "
        "0 to 100, 0 ignores it. Resources that are not named have weight 1.",
    )
    unknown_nodes: Literal[Action.PASS, Action.REFUSE] = Field(
        default=Action.PASS,
        description="A node without a usable report. `pass`, with score 0: nodes are not excluded while exporters roll "
        "out, or where a node needs no alignment. Use `refuse` where every node must be known.",
    )
    stale_nodes: Action = Field(
        default=Action.REPLAY,
        description="A node without a message for `stale_after_seconds`. `replay`: use its last state, at half the "
        "score.",
    )
    possible_nodes: Literal[Action.PASS, Action.REFUSE] = Field(
        default=Action.REFUSE,
        description="A node where the kubelet's random choice of devices decides, or the order in which pods come and "
        "go. Refused, because an admission is promised only where it is certain.",
    )
    degraded_nodes: Action = Field(
        default=Action.REPLAY,
        description="A node with counts per NUMA node only (NodeResourceTopology objects of other programs). "
        "`replay`: refused where the counts prove that its kubelet must refuse, offered at half the score elsewhere.",
    )
    nri_annotations: Literal[Action.PASS, Action.REFUSE] = Field(
        default=Action.PASS,
        description="A pod with a faulty annotation of the NRI topology-aware policy, such as an unknown key, on a "
        "node with that policy. `pass`: notes of questions and `lint` name the fault, and the policy ignores the "
        "annotation. What the policy would refuse, or what would end its process, is refused anyway.",
    )
    newer_kubelets: Action = Field(
        default=Action.REPLAY,
        description="A node whose kubelet is newer than the newest that this version knows. `replay`: use the rules of "
        "the newest known one. `pass`: score the node by them but never refuse it, until the extender is upgraded. "
        "`refuse`: not offered to pods that need alignment.",
    )
    kubelet_switches: str = Field(
        default="",
        description="Fixes that the kubelets of this cluster carry before the minor that brings them, such as "
        "`distribute_inside_hint,spread_by_topology`; docs/kubernetes-versions.md lists them. `NAME=false` is a fix "
        "that they lack. The `NUMA_RULES` of a node's exporter take precedence. Empty: kubelets behave as their "
        "minor version does.",
    )
    warm_up_seconds: float = Field(
        default=0.0,
        ge=0,
        description="For this long after startup the service refuses pods that need alignment on nodes that have not "
        "reported yet: after a restart, exporters report again with their next heartbeat (30 s). 60 in the manifests. "
        "Off by default, so that a first try works at once.",
    )
    stale_after_seconds: float = Field(
        default=120.0, gt=0, description="Exporters send every 30 s. 120 s allows for three lost messages and jitter."
    )
    preempt_seconds: float = Field(
        default=1.0,
        gt=0,
        description="Time for choosing victims, over all candidates of a request. Undecided candidates are dropped. "
        "Keep it below the `httpTimeout` of the scheduler (5 s unless set, 7 s in our recipes).",
    )
    failed_nodes_resolvable: bool = Field(
        default=False,
        description="Name nodes that refuse only for now in `FailedNodes`. Off: up to kube-scheduler 1.36 an "
        "extender's refusal can never lead to preemption, and `FailedNodes` makes its dry run fail with an error.",
    )

    max_scheduler_body_bytes: int = Field(
        default=128 * MIB, ge=MIB, description="Filter and prioritize; 5,000 full Node objects are about 62 MB."
    )
    max_body_bytes: int = Field(
        default=16 * MIB, ge=MIB, description="Every other request; the report of a large node is under 1 MB."
    )
    max_nodes: int = Field(default=20_000, ge=1, description="Reports of more nodes are refused, to limit memory.")
    max_remembered_judgements: int = Field(
        default=1_000_000,
        ge=1000,
        description="Cached verdicts by pod shape and node class; about 100 bytes each. A shape counts as one for each "
        "100 bytes that it takes. If each of 5,000 nodes has a state of its own, the default is enough for 200 shapes.",
    )
    keep_alive_seconds: int = Field(
        default=120, ge=91, description="Idle connections stay open longer than kube-scheduler keeps them (90 s)."
    )
    shutdown_seconds: int = Field(default=10, ge=0, description="Time for requests in progress after SIGTERM.")

    @model_validator(mode="after")
    def _leader_ends_in_time(self) -> Self:
        longest = self.lease_seconds * BINDING_SHARE
        if self.lease == "on" and "bind_seconds" in self.model_fields_set and self.bind_seconds > longest:
            raise ValueError(
                f"bind_seconds is {self.bind_seconds:g}, but with lease_seconds {self.lease_seconds} the limit is "
                f"{longest:g} s: lower or unset bind_seconds, or raise lease_seconds"
            )
        return self

    @model_validator(mode="after")
    def _own_url_is_private(self) -> Self:
        if not self.own_url:
            return self
        url = urlsplit(self.own_url)
        if url.scheme != "https" and not (url.scheme == "http" and is_loopback(url.hostname or "")):
            raise ValueError(f"own_url {self.own_url!r}: calls are forwarded over https:// only, or on loopback")
        if self.lease == "off":
            raise ValueError("own_url without lease=on: there is no leader to forward calls to")
        return self

    @property
    def binding_seconds(self) -> float:
        """Time limit for one binding call to the API server: `bind_seconds`, or a leader's share if that is less."""
        if self.lease == "off":
            return self.bind_seconds
        return min(self.bind_seconds, self.lease_seconds * BINDING_SHARE)

    @property
    def question_share(self) -> float:
        """Factor for `question_seconds` and `question_wait_seconds`, so that both fit into `answer_seconds`.

        Otherwise the connection would be closed before the question could be refused with a reason.
        """
        return min(1.0, ANSWER_SHARE * self.answer_seconds / (self.question_seconds + self.question_wait_seconds))

    @field_validator("strategy")
    @classmethod
    def _known(cls, name: str) -> str:
        if name not in STRATEGIES:
            raise ValueError(f"unknown strategy; use one of {', '.join(sorted(STRATEGIES))}")
        return name

    @field_validator("resource_weights")
    @classmethod
    def _parses(cls, text: str) -> str:
        Weights.parse(text)
        return text

    @field_validator("gang_apis")
    @classmethod
    def _are_apis(cls, text: str) -> str:
        list(apis_of(text))
        return text

    @field_validator("kubelet_switches")
    @classmethod
    def _are_switches(cls, text: str) -> str:
        switches_from_text(text)
        return text

    @cached_property
    def switches(self) -> Mapping[str, bool]:
        """`kubelet_switches`, by name."""
        return switches_from_text(self.kubelet_switches)

    @property
    def uncertainty(self) -> UncertaintyPolicy:
        """How uncertain nodes are treated."""
        return UncertaintyPolicy(
            unknown=self.unknown_nodes,
            stale=self.stale_nodes,
            possible=self.possible_nodes,
            degraded=self.degraded_nodes,
            newer=self.newer_kubelets,
            annotations=self.nri_annotations,
        )


def unknown_variables(names: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    """Environment variables that look like settings of this program but are not, with the most similar setting.

    The setting is None if none is similar. A variable without our prefix counts only if it is very similar to a
    setting.
    """
    known = [f"{PREFIX}{field.upper()}" for field in Settings.model_fields]
    for name in sorted(names):
        upper = name.upper()
        if upper in known or not upper.startswith("NUMA_") or _SERVICE_LINK.search(upper):
            continue
        is_ours = upper.startswith(PREFIX)
        near = difflib.get_close_matches(upper, known, n=1, cutoff=0.8 if is_ours else 0.9)
        if near or is_ours:
            yield name, near[0] if near else None
