"""Who asks, and what they may do: the words that transport, API and Kubernetes client share.

Laws of this file
- A leaf: it imports nothing of the service.
- A right is a `AccessScope`. There are no roles, no hierarchy and no implied scopes.
- Whatever is not granted is refused, with an exception that says which of three it is: nobody (`UnauthenticatedError`),
  somebody who may not (`ForbiddenError`), or not to be settled now (`UnavailableError`). Never a default identity.
"""

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from ipaddress import IPv6Address, ip_address
from typing import Final, Protocol


class AccessScope(StrEnum):
    """What a caller can be allowed to do."""

    REPORT = "report"
    """Say what a node's kubelet has given away. Of one node only, except where the caller is trusted as a whole."""
    SCHEDULE = "schedule"
    """Call the scheduler's verbs, which bind pods and choose victims."""
    READ = "read"
    """Ask: nodes, what-if, decisions, the page and the documents."""
    METRICS = "metrics"
    """Scrape /metrics, which names no pod and no node."""


EVERYTHING: Final = frozenset(AccessScope)


class Means(StrEnum):
    """How a caller proved who it is."""

    CERTIFICATE = "certificate"
    TOKEN = "token"  # noqa: S105 - a word, no secret
    LOOPBACK = "loopback"
    INSECURE = "insecure"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks. `name`: for logs and limits. `node_name`: the only node it may report; None: any, empty: none."""

    name: str
    means: Means
    scopes: frozenset[AccessScope]
    node_name: str | None = ""

    def may_report(self, node_name: str) -> bool:
        """Whether a report of that node is believed from this caller."""
        return AccessScope.REPORT in self.scopes and self.node_name in (None, node_name)


class NotAllowedError(Exception):
    """The request is not let in."""

    def __init__(self, reason: str, means: Means = Means.NONE) -> None:
        super().__init__(reason)
        self.means: Final = means


class UnauthenticatedError(NotAllowedError):
    """The caller did not prove who it is, or what it showed proves nothing."""


class ForbiddenError(NotAllowedError):
    """The caller is known and has no right to this."""


class UnavailableError(NotAllowedError):
    """Who the caller is cannot be found out now; another try may succeed after a second or two."""


class Authority(Protocol):
    """Knows whose tokens are whose, and what these may do."""

    def known(self, token: str, scope: AccessScope) -> Principal | None:
        """As `admit`, at once, from what is remembered; None: ask."""

    async def admit(self, token: str, scope: AccessScope) -> Principal:
        """The owner of *token*, who has *scope*.

        Raises:
            UnauthenticatedError: the token is nobody's, or not meant for us.
            ForbiddenError: its owner has no right to *scope*.
            UnavailableError: it could not be found out.
        """

    def end_pods(self, uids: Iterable[str]) -> None:
        """Believe tokens of these pods no longer: they were deleted."""


class LateAuthority:
    """Refuses every token until there is somebody to ask (`use`): the API server is found only when the loop runs."""

    def __init__(self) -> None:
        self._authority: Authority | None = None

    def use(self, authority: Authority) -> None:
        """Ask *authority* from now on."""
        self._authority = authority

    def end_pods(self, uids: Iterable[str]) -> None:
        """See `Authority`."""
        if self._authority is not None:
            self._authority.end_pods(uids)

    def known(self, token: str, scope: AccessScope) -> Principal | None:
        """See `Authority`."""
        return None if self._authority is None else self._authority.known(token, scope)

    async def admit(self, token: str, scope: AccessScope) -> Principal:
        """See `Authority`."""
        if self._authority is None:
            raise UnauthenticatedError("tokens are not accepted here: no API server to ask about them", Means.TOKEN)
        return await self._authority.admit(token, scope)


@dataclass(frozen=True, slots=True)
class Peer:
    """Whom a connection leads to. `address`: empty if it has none. `certificate`: verified, as `ssl` describes it."""

    address: str = ""
    certificate: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_loopback(self) -> bool:
        """Whether it is a process of this machine, or of this pod's network: 127.0.0.1 or ::1.

        Other addresses of 127.0.0.0/8 are not: the proxy of a service mesh hands on what came over the network as
        127.0.0.6.
        """
        return _is_loopback(self.address)

    @property
    def subjects(self) -> frozenset[str]:
        """The names in its certificate: `CN=…`, `DNS=…`, `URI=…`; empty without one."""
        names = {
            f"CN={value}"
            for part in _pairs(self.certificate.get("subject"))
            for kind, value in _pairs(part)
            if kind == "commonName"
        }
        names |= {f"{kind}={value}" for kind, value in _pairs(self.certificate.get("subjectAltName"))}
        return frozenset(name for name in names if name.startswith(NAME_KINDS))

    @property
    def certificate_ends(self) -> float:
        """Unix seconds; 0 without a certificate."""
        return float(ssl.cert_time_to_seconds(str(self.certificate["notAfter"]))) if self.certificate else 0.0


@lru_cache(maxsize=64)
def _is_loopback(text: str) -> bool:
    try:
        address = ip_address(text)
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return str(mapped or address) in ("127.0.0.1", "::1")


NAME_KINDS: Final = ("CN=", "DNS=", "URI=")


def _pairs(value: object) -> tuple[tuple[object, ...], ...]:
    return tuple(part for part in value if isinstance(part, tuple)) if isinstance(value, tuple) else ()
