"""All settings of the service, from variables `NUMA_EXTENDER_…`; an empty one is unset. Flags take precedence."""

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from extender.identity import NAME_KINDS, AccessScope, is_local
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


class Settings(BaseSettings):
    """All settings of one extender. `settings.toml` has the unit, what the default means, and the reason for it."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, frozen=True, extra="ignore")

    # Questions of people
    node_metrics: int = Field(default=0, ge=0, le=5000)
    question_workers: int = Field(default=2, ge=0, le=64)
    question_seconds: float = Field(default=60.0, gt=0)
    max_waiting_questions: int = Field(default=8, ge=0)
    question_wait_seconds: float = Field(default=30.0, gt=0)
    max_question_bytes: int = Field(default=256 << 20, ge=32 << 20)

    # Tasks that only one of several processes may do
    lease: Literal["off", "on"] = "off"
    lease_namespace: str = Field(default="numa-extender", min_length=1)
    lease_name: str = Field(default="numa-extender", min_length=1)
    lease_seconds: int = Field(default=7, ge=3)
    own_url: str = ""
    leader_ca_file: Path | None = None
    leader_server_name: str = ""
    leader_token_file: Path | None = None
    standby_ready: bool = True
    wake_up: bool = True
    wake_up_seconds: float = Field(default=1.0, gt=0)
    pod_events: Literal["off", "on"] = "off"
    janitor: Literal["off", "dry-run", "on"] = "off"
    janitor_after_seconds: float = Field(default=900.0, ge=60)
    janitor_per_minute: float = Field(default=10.0, gt=0, le=600)
    room: Literal["off", "dry-run", "on"] = "off"
    room_after_seconds: float = Field(default=60.0, ge=1)
    room_seconds: float = Field(default=120.0, ge=1)
    room_per_hour: int = Field(default=6, ge=1, le=100)
    room_cooldown_seconds: float = Field(default=300.0, ge=0)
    room_window: str = Field(default="", pattern=r"^(([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d)?$")
    max_refused_pods: int = Field(default=10_000, ge=1)
    refused_seconds: float = Field(default=600.0, gt=0)

    # The API server, pods in flight, deadlines, the audit of predictions
    kubernetes: Literal["off", "on"] = "off"
    kubeconfig: Path | None = None
    topologies: Literal["off", "on"] = "off"
    namespace_demands: Literal["off", "on"] = "off"
    dra: Literal["off", "on"] = "off"
    dra_scheduler: str = ""
    dra_cpus: Literal["off", "on"] = "off"
    sibling_labels: str = ""
    autoscaling: Literal["off", "dry-run", "on"] = "off"
    autoscaling_wait_seconds: float = Field(default=30.0, ge=0)
    autoscaling_max_requests: int = Field(default=10, ge=1, le=200)
    autoscaling_nodes_per_hour: int = Field(default=30, ge=1)
    autoscaling_expander_port: int = Field(default=0, ge=0, le=65535)
    pool_labels: str = ""
    kueue: Literal["off", "dry-run", "on"] = "off"
    kueue_hold_seconds: float = Field(default=120.0, ge=1, le=3600)
    gangs: Literal["off", "on"] = "off"
    gang_apis: str = ""
    gang_hold_seconds: float = Field(default=30.0, gt=0)
    gang_rest_seconds: float = Field(default=60.0, ge=0)
    gang_max_pods: int = Field(default=256, ge=2, le=4096)
    shapes: Literal["off", "on"] = "off"
    node_profiles: Path | None = None
    filter_seconds: float = Field(default=1.5, gt=0)
    late_nodes: Literal["error", "refuse", "pass"] = "refuse"
    barrier_seconds: float = Field(default=0.0, ge=0, le=1)
    bind_seconds: float = Field(default=3.0, gt=0)
    assume_seconds: float = Field(default=120.0, gt=0)
    finish_seconds: float = Field(default=3.0, ge=0)
    bind_wait_seconds: float = Field(default=3.0, ge=0)
    hold_back_seconds: float = Field(default=10.0, ge=0)
    young_node_seconds: float = Field(default=60.0, ge=0)
    kubelet_start_seconds: float = Field(default=10.0, ge=0)
    kubelet_down_seconds: float = Field(default=50.0, ge=0)
    watch_silent_seconds: float = Field(default=150.0, gt=0)
    max_remembered_pods: int = Field(default=50_000, ge=100)
    leave_out_seconds: float = Field(default=30.0, ge=0)
    placement_annotations: Literal["off", "on"] = "off"
    audit_window: int = Field(default=20, ge=1, le=1000)
    distrust_after: int = Field(default=0, ge=0)

    # Identity, transport, limits, logs
    host: str = "127.0.0.1"
    insecure: bool = False
    tls_cert_file: Path | None = None
    tls_key_file: Path | None = None
    tls_client_ca_file: Path | None = None
    tls_host: str = "0.0.0.0"  # noqa: S104 - with identity
    tls_port: int = Field(default=9643, ge=0, le=65535)
    scheduler_subjects: tuple[str, ...] = ("CN=system:kube-scheduler",)
    loopback_scopes: frozenset[AccessScope] = frozenset({AccessScope.SCHEDULE, AccessScope.READ, AccessScope.METRICS})
    token_audience: str = Field(default="numa-extender", min_length=1)
    read_audiences: tuple[str, ...] = ()
    review_grace_seconds: float = Field(default=900.0, ge=0)
    report_rate: float = Field(default=5.0, gt=0)
    read_rate: float = Field(default=20.0, gt=0)
    refused_rate: float = Field(default=2.0, gt=0)
    max_scheduler_calls: int = Field(default=64, ge=2)
    max_reports_at_once: int = Field(default=64, ge=1)
    max_questions_at_once: int = Field(default=16, ge=1)
    max_buffered_bytes: int = Field(default=256 << 20, ge=1 << 20)
    max_connections: int = Field(default=8192, ge=16)
    head_seconds: float = Field(default=10.0, gt=0)
    body_seconds: float = Field(default=30.0, gt=0)
    answer_seconds: float = Field(default=120.0, gt=0)
    drain_seconds: float = Field(default=3.0, ge=0)
    log_format: Literal["text", "json"] = "text"
    tracing: Literal["off", "otlp"] = "off"

    # Verbs, nodes and memory
    port: int = Field(default=9600, ge=0, le=65535)
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    strategy: str = "least-numa-fragmentation"
    resource_weights: str = ""
    unknown_nodes: Literal[Action.PASS, Action.REFUSE] = Action.PASS
    stale_nodes: Action = Action.REPLAY
    possible_nodes: Literal[Action.PASS, Action.REFUSE] = Action.REFUSE
    degraded_nodes: Action = Action.REPLAY
    nri_annotations: Literal[Action.PASS, Action.REFUSE] = Action.PASS
    newer_kubelets: Action = Action.REPLAY
    kubelet_switches: str = ""
    warm_up_seconds: float = Field(default=0.0, ge=0)
    stale_after_seconds: float = Field(default=120.0, gt=0)
    preempt_seconds: float = Field(default=1.0, gt=0)
    failed_nodes_resolvable: bool = False
    max_scheduler_body_bytes: int = Field(default=128 * MIB, ge=MIB)
    max_body_bytes: int = Field(default=16 * MIB, ge=MIB)
    max_nodes: int = Field(default=20_000, ge=1)
    max_remembered_judgements: int = Field(default=1_000_000, ge=1000)
    keep_alive_seconds: int = Field(default=120, ge=91)
    shutdown_seconds: int = Field(default=10, ge=0)

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if not self.insecure and not is_local(self.host):
            raise ValueError(
                f"host {self.host}: plain HTTP is for loopback only; use TLS there (tls_cert_file, tls_key_file, "
                "tls_host), or allow every caller with insecure=true"
            )
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file must be set together")
        if self.tls_cert_file is None and (self.tls_client_ca_file is not None or self.autoscaling_expander_port):
            raise ValueError("one of tls_client_ca_file and autoscaling_expander_port is set, and needs tls_cert_file")
        for subject in self.scheduler_subjects:
            if not subject.startswith(NAME_KINDS) or subject.endswith("="):
                raise ValueError(f"scheduler_subjects: {subject!r} must begin with one of {', '.join(NAME_KINDS)}")
        return self

    @property
    def watches(self) -> bool:
        """Whether there is an API server to watch."""
        return self.kubernetes == "on" or self.kubeconfig is not None

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
        if url.scheme != "https" and not (url.scheme == "http" and is_local(url.hostname or "")):
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


for _name, _text in tomllib.loads(files("extender.config").joinpath("settings.toml").read_text()).items():
    Settings.model_fields[_name].description = _text


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
