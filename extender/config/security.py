"""The knobs of identity, transport, limits and observation: a part of `extender.config.settings.Settings`."""

from ipaddress import ip_address
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings

from extender.identity import NAME_KINDS, AccessScope


class SecuritySettings(BaseSettings):
    """Who is believed, and how much one caller can cost."""

    host: str = Field(
        default="127.0.0.1",
        description="Address of plain HTTP. Loopback: the scheduler runs next to it. Anything else needs `insecure`; "
        "the network is for `tls_host`.",
    )
    insecure: bool = Field(
        default=False,
        description="Everybody who can connect may do everything, over plain HTTP. For a closed test network; said "
        "loudly at the start and in `numa_extender_insecure`.",
    )
    tls_cert_file: Path | None = Field(
        default=None, description="Our certificate and its chain, PEM. With it, `tls_host:tls_port` speaks TLS."
    )
    tls_key_file: Path | None = Field(default=None, description="The key of our certificate, PEM, not encrypted.")
    tls_client_ca_file: Path | None = Field(
        default=None,
        description="Who signs certificates of schedulers, PEM. None: no client is asked for a certificate.",
    )
    tls_host: str = Field(default="0.0.0.0", description="Address to listen on with TLS.")  # noqa: S104 - with identity
    tls_port: int = Field(default=9643, ge=0, le=65535, description="TCP port for TLS; 0 takes a free one.")

    scheduler_subjects: tuple[str, ...] = Field(
        default=("CN=system:kube-scheduler",),
        description="Names of client certificates that may schedule: `CN=…`, `DNS=…`, `URI=…`. A chain alone is not "
        "enough: with the cluster's CA every kubelet has one.",
    )
    loopback_scopes: frozenset[AccessScope] = Field(
        default=frozenset({AccessScope.SCHEDULE, AccessScope.READ, AccessScope.METRICS}),
        description="What callers on loopback may do without proving anything: `schedule`, `read`, `metrics`, "
        "`report`. By default what the scheduler in the same pod and people behind a port-forward need. Exporters are "
        "on other machines and show a token; add `report` for exporters on this one. On the host's network set "
        '`["schedule"]`: other pods of the host network can reach it.',
    )
    token_audience: str = Field(
        default="numa-extender",
        min_length=1,
        description="Tokens must be made for this audience, so that nobody sends us one that is worth something "
        "elsewhere, and no other service can use ours.",
    )
    read_audiences: tuple[str, ...] = Field(
        default=(), description="Further audiences for reading and metrics only, such as the API server's own."
    )
    review_grace_seconds: float = Field(
        default=900.0,
        ge=0,
        description="While the API server cannot be asked, tokens that it accepted keep working for this long, never "
        "beyond their own end.",
    )

    report_rate: float = Field(default=5.0, gt=0, description="Messages a second of one exporter; bursts of ten times.")
    read_rate: float = Field(default=20.0, gt=0, description="Questions a second of one caller; bursts of ten times.")
    refused_rate: float = Field(
        default=2.0, gt=0, description="Requests a second of one address that prove nothing; bursts of ten times."
    )
    max_scheduler_calls: int = Field(
        default=64, ge=2, description="Scheduler's verbs at once: one filter, and up to some dozen bindings."
    )
    max_reports_at_once: int = Field(default=64, ge=1, description="Messages of exporters at once.")
    max_questions_at_once: int = Field(default=16, ge=1, description="Questions of people at once, metrics included.")
    max_buffered_bytes: int = Field(
        default=256 << 20, ge=1 << 20, description="Request bodies in memory at once, all together."
    )
    max_connections: int = Field(
        default=8192,
        ge=16,
        description="Open connections, counted from `accept`; beyond, one that is unfinished or idle is closed. More "
        "than 5,000 exporters need; at most as many as the limit on open files leaves room for.",
    )
    head_seconds: float = Field(
        default=10.0,
        gt=0,
        description="Seconds for a request's head, from its first byte, and for a TLS handshake, from `accept`. "
        "Clients take milliseconds; ten seconds leave time for lost packets.",
    )
    body_seconds: float = Field(default=30.0, gt=0, description="Time for a request's body.")
    answer_seconds: float = Field(
        default=120.0, gt=0, description="Time for making an answer and for the client to read it."
    )
    drain_seconds: float = Field(
        default=3.0, ge=0, description="After a SIGTERM readiness fails this long before connections are refused."
    )

    log_format: Literal["text", "json"] = Field(
        default="text", description="`key=value` for people, or one JSON object a line for collectors."
    )
    tracing: Literal["off", "otlp"] = Field(
        default="off",
        description="`otlp`: a span of each request, sent where `OTEL_EXPORTER_OTLP_ENDPOINT` says. Needs the extra "
        "`tracing`, which the container image has.",
    )

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if not self.insecure and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host}: plain HTTP is for loopback; listen there with TLS (tls_cert_file, tls_key_file, "
                "tls_host), or let everybody in with insecure=true"
            )
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file belong together")
        if self.tls_client_ca_file is not None and self.tls_cert_file is None:
            raise ValueError("tls_client_ca_file needs tls_cert_file: certificates are shown over TLS only")
        for subject in self.scheduler_subjects:
            if not subject.startswith(NAME_KINDS) or subject.endswith("="):
                raise ValueError(f"scheduler_subjects: {subject!r} does not begin with one of {', '.join(NAME_KINDS)}")
        return self


def is_loopback(host: str) -> bool:
    """Whether listening on *host* reaches only this machine or pod."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
