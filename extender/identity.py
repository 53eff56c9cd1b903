"""Identities and scopes, shared by the transport, the API and the Kubernetes client.

Rules of this file
- A leaf: it imports nothing of the service.
- A right is an `AccessScope`. There are no roles, no hierarchy and no implied scopes.
- Anything that is not granted is refused, with an exception that says why (`NotAllowedError`): not authenticated, not
  authorized, or cannot be decided now. There is no default identity.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from http import HTTPStatus
from ipaddress import ip_address
from typing import Final


class AccessScope(StrEnum):
    """What a caller may be allowed to do."""

    REPORT = "report"
    """Send reports of a node: of one node only, unless the caller may report all nodes."""
    SCHEDULE = "schedule"
    """Call the scheduler's routes, which bind pods and choose victims."""
    READ = "read"
    """Read: nodes, what-if, decisions, the page and the documents."""
    METRICS = "metrics"
    """Scrape /metrics, which contains no pod and no node name."""


EVERYTHING: Final = frozenset(AccessScope)


class Means(StrEnum):
    """How a caller authenticated."""

    CERTIFICATE = "certificate"
    TOKEN = "token"  # noqa: S105 - a word, no secret
    LOOPBACK = "loopback"
    INSECURE = "insecure"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """An authenticated caller.

    `name` identifies it in logs and limits. `node_name`: the only node that it may report; None: any node.

    An empty `node_name` means no node.
    """

    name: str
    means: Means
    scopes: frozenset[AccessScope]
    node_name: str | None = ""


class NotAllowedError(Exception):
    """The request is refused.

    `status`: UNAUTHORIZED if the caller has no valid credentials; FORBIDDEN if it is known and lacks the scope;
    SERVICE_UNAVAILABLE if its identity cannot be checked now: a retry after a second or two may succeed.
    """

    def __init__(self, status: HTTPStatus, reason: str, means: Means = Means.NONE) -> None:
        super().__init__(reason)
        self.status: Final = status
        self.means: Final = means


@dataclass(frozen=True)
class Peer:
    """The other end of a connection. `address`: empty if it has none. `certificate`: verified, as `ssl` returns it."""

    address: str = ""
    certificate: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def subjects(self) -> frozenset[str]:
        """The names in its certificate: `CN=…`, `DNS=…`, `URI=…`. Empty without a certificate."""
        names = {
            f"CN={value}"
            for part in _pairs(self.certificate.get("subject"))
            for kind, value in _pairs(part)
            if kind == "commonName"
        }
        names |= {f"{kind}={value}" for kind, value in _pairs(self.certificate.get("subjectAltName"))}
        return frozenset(name for name in names if name.startswith(NAME_KINDS))

    @cached_property
    def certificate_ends(self) -> float:
        """Unix seconds of the certificate's expiry. 0 without a certificate."""
        return float(ssl.cert_time_to_seconds(str(self.certificate["notAfter"]))) if self.certificate else 0.0


LOOPBACK_ADDRESSES: Final = frozenset({"127.0.0.1", "::1", "::ffff:127.0.0.1"})
"""The addresses of a process of this machine, or of this pod's network namespace, as sockets write them.

Other addresses of 127.0.0.0/8 are not among them: the proxy of a service mesh forwards requests from the network as
127.0.0.6."""


def is_local(host: str) -> bool:
    """Whether only this machine or pod can reach *host*: localhost, or an address that is never on a network."""
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


NAME_KINDS: Final = ("CN=", "DNS=", "URI=")


def _pairs(value: object) -> tuple[tuple[object, ...], ...]:
    return tuple(part for part in value if isinstance(part, tuple)) if isinstance(value, tuple) else ()
