"""Settings of identity, transport, limits and observability; part of `extender.config.settings.Settings`."""

from ipaddress import ip_address
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings

from extender.identity import NAME_KINDS, AccessScope


class SecuritySettings(BaseSettings):
    """Authentication, and limits on the cost of one caller."""

    host: str = Field(
        default="127.0.0.1",
        description="Address for plain HTTP. Loopback, if the scheduler runs beside it. Anything else needs "
        "`insecure`; use `tls_host` for the network.",
    )
    insecure: bool = Field(
        default=False,
        description="Every caller may do everything, over plain HTTP. For a closed test network only. Shown by a "
        "warning at startup and by `numa_extender_insecure`.",
    )
    tls_cert_file: Path | None = Field(
        default=None, description="Server certificate and its chain, PEM. Enables TLS on `tls_host:tls_port`."
    )
    tls_key_file: Path | None = Field(default=None, description="Key of the server certificate, PEM, not encrypted.")
    tls_client_ca_file: Path | None = Field(
        default=None,
        description="CA of the schedulers' certificates, PEM. Not set: client certificates are not requested.",
    )
    tls_host: str = Field(default="0.0.0.0", description="Address to listen on with TLS.")  # noqa: S104 - with identity
    tls_port: int = Field(default=9643, ge=0, le=65535, description="TCP port for TLS. 0: any free port.")

    scheduler_subjects: tuple[str, ...] = Field(
        default=("CN=system:kube-scheduler",),
        description="Names in client certificates that may schedule: `CN=…`, `DNS=…`, `URI=…`. A valid chain alone is "
        "not enough: with the cluster's CA every kubelet has one.",
    )
    loopback_scopes: frozenset[AccessScope] = Field(
        default=frozenset({AccessScope.SCHEDULE, AccessScope.READ, AccessScope.METRICS}),
        description="What callers on loopback may do without credentials: `schedule`, `read`, `metrics`, `report`. The "
        "default is what the scheduler in the same pod and people behind a port-forward need. Exporters run on other "
        "machines and present a token; add `report` for exporters on this one. On the host's network set "
        '`["schedule"]`: other pods of the host network can connect to it.',
    )
    token_audience: str = Field(
        default="numa-extender",
        min_length=1,
        description="Tokens must be issued for this audience, so that tokens for other services are not accepted here, "
        "and tokens for this service are not accepted elsewhere.",
    )
    read_audiences: tuple[str, ...] = Field(
        default=(),
        description="Additional audiences for the scopes `read` and `metrics` only, such as the API server's own.",
    )
    review_grace_seconds: float = Field(
        default=900.0,
        ge=0,
        description="While the API server cannot be reached, tokens that it accepted stay valid for this long, but not "
        "beyond their own expiry.",
    )

    report_rate: float = Field(
        default=5.0, gt=0, description="Messages per second of one exporter; bursts up to ten times."
    )
    read_rate: float = Field(
        default=20.0, gt=0, description="Questions per second of one caller; bursts up to ten times."
    )
    refused_rate: float = Field(
        default=2.0, gt=0, description="Failed authentications per second of one address; bursts up to ten times."
    )
    max_scheduler_calls: int = Field(
        default=64, ge=2, description="Concurrent calls of the scheduler: one filter and up to a few dozen bindings."
    )
    max_reports_at_once: int = Field(default=64, ge=1, description="Concurrent messages of exporters.")
    max_questions_at_once: int = Field(default=16, ge=1, description="Concurrent questions, including metrics.")
    max_buffered_bytes: int = Field(
        default=256 << 20, ge=1 << 20, description="Total size of request bodies in memory."
    )
    max_connections: int = Field(
        default=8192,
        ge=16,
        description="Open connections, counted from `accept`. If there are more, an unfinished or idle one is closed. "
        "The default is enough for 5,000 exporters. The limit on open files may reduce it.",
    )
    head_seconds: float = Field(
        default=10.0,
        gt=0,
        description="Seconds for a request's head, from its first byte, and for a TLS handshake, from `accept`. "
        "Clients take milliseconds; ten seconds leave time for lost packets.",
    )
    body_seconds: float = Field(default=30.0, gt=0, description="Time for a request's body.")
    answer_seconds: float = Field(
        default=120.0, gt=0, description="Time for producing a reply and for the client to read it."
    )
    drain_seconds: float = Field(
        default=3.0, ge=0, description="After SIGTERM, readiness fails for this long before connections are refused."
    )

    log_format: Literal["text", "json"] = Field(
        default="text", description="`key=value` for people, or one JSON object a line for log collectors."
    )
    tracing: Literal["off", "otlp"] = Field(
        default="off",
        description="`otlp`: a span for each request, sent to `OTEL_EXPORTER_OTLP_ENDPOINT`. Needs the extra "
        "`tracing`, which the container image has.",
    )

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if not self.insecure and not is_loopback(self.host):
            raise ValueError(
                f"host {self.host}: plain HTTP is for loopback only; use TLS there (tls_cert_file, tls_key_file, "
                "tls_host), or allow every caller with insecure=true"
            )
        if (self.tls_cert_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_cert_file and tls_key_file must be set together")
        if self.tls_client_ca_file is not None and self.tls_cert_file is None:
            raise ValueError("tls_client_ca_file needs tls_cert_file: client certificates need TLS")
        for subject in self.scheduler_subjects:
            if not subject.startswith(NAME_KINDS) or subject.endswith("="):
                raise ValueError(f"scheduler_subjects: {subject!r} must begin with one of {', '.join(NAME_KINDS)}")
        return self


def is_loopback(host: str) -> bool:
    """Whether listening on *host* is reachable from this machine or pod only."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
