"""Who presents a token (TokenReview) and what they may do (SubjectAccessReview), asked of the API server.

Answers are remembered for a short time: a token that was revoked, or a right that was taken away, works for that long
at most. Refusals are remembered too, shorter, so that a caller with a bad token cannot make us hammer the server.
Tokens are never kept, only their SHA-256. A server that cannot be asked is a KubeError, never a yes, and is not
remembered.

RBAC: `create` on tokenreviews (authentication.k8s.io) and on subjectaccessreviews (authorization.k8s.io).
"""

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from extender.kube.client import JSON, Requester
from extender.kube.fields import mapping, text, texts
from extender.kube.ttl_cache import TTLCache

NODE_NAME: Final = "authentication.kubernetes.io/node-name"
NODE_UID: Final = "authentication.kubernetes.io/node-uid"
MAX_TOKEN_BYTES: Final = 16 * 1024
_TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who a token belongs to. `extra`: sorted (name, values) pairs, as the server gave them."""

    username: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def node_name(self) -> str:
        """The node that a bound service-account token is tied to; empty for any other token."""
        return self._first(NODE_NAME)

    @property
    def node_uid(self) -> str:
        """The UID of that node; empty for any other token."""
        return self._first(NODE_UID)

    def _first(self, name: str) -> str:
        return next((values[0] for key, values in self.extra if key == name and values), "")


@dataclass(frozen=True, slots=True)
class Rejected:
    """The token is nobody's, or not for us."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSettings:
    """How long answers are remembered, in seconds, and how many."""

    accepted_seconds: float = 60.0
    refused_seconds: float = 10.0
    size: int = 4096
    timeout_seconds: float = 5.0


class Reviews:
    """Asks the API server, in the caller's thread. Thread-safe. *clock*: monotonic seconds."""

    def __init__(
        self,
        client: Requester,
        settings: ReviewSettings | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._settings = settings or ReviewSettings()
        self._identities: TTLCache[tuple[bytes, str], Identity | Rejected] = TTLCache(self._settings.size, clock)
        self._permissions: TTLCache[tuple[Identity, str, str], bool] = TTLCache(self._settings.size, clock)

    def authenticate(self, token: str, *, audience: str = "") -> Identity | Rejected:
        """Whose token it is, for *audience* (empty: the API server's own).

        Raises:
            KubeError: the server could not be asked.
        """
        if not token or len(token) > MAX_TOKEN_BYTES:
            return Rejected("no token, or a token that is too long")
        key = (hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest(), audience)
        known = self._identities.get(key)
        if known is not None:
            return known
        answer = self._ask_token(token, audience)
        accepted = isinstance(answer, Identity)
        ttl = self._settings.accepted_seconds if accepted else self._settings.refused_seconds
        self._identities.put(key, answer, ttl)
        return answer

    def allowed(self, identity: Identity, *, verb: str, path: str) -> bool:
        """Whether RBAC lets *identity* do *verb* on the non-resource URL *path*.

        Raises:
            KubeError: the server could not be asked.
        """
        key = (identity, verb, path)
        known = self._permissions.get(key)
        if known is not None:
            return known
        answer = self._ask_access(identity, verb, path)
        ttl = self._settings.accepted_seconds if answer else self._settings.refused_seconds
        self._permissions.put(key, answer, ttl)
        return answer

    def _ask_token(self, token: str, audience: str) -> Identity | Rejected:
        spec: JSON = {"token": token, **({"audiences": [audience]} if audience else {})}
        status = mapping(self._review(_TOKENS, "authentication.k8s.io/v1", "TokenReview", spec), "status")
        if status.get("authenticated") is not True:
            return Rejected(text(status, "error") or "the token is not valid")
        if audience and audience not in texts(status, "audiences"):
            return Rejected(f"the token is not for {audience}")
        user = mapping(status, "user")
        extra = mapping(user, "extra")
        return Identity(
            username=text(user, "username"),
            uid=text(user, "uid"),
            groups=texts(user, "groups"),
            extra=tuple(sorted((name, texts(extra, name)) for name in extra)),
        )

    def _ask_access(self, identity: Identity, verb: str, path: str) -> bool:
        spec: JSON = {
            "user": identity.username,
            "uid": identity.uid,
            "groups": list(identity.groups),
            "extra": {name: list(values) for name, values in identity.extra},
            "nonResourceAttributes": {"path": path, "verb": verb},
        }
        answer = self._review(_ACCESS, "authorization.k8s.io/v1", "SubjectAccessReview", spec)
        status = mapping(answer, "status")
        return status.get("allowed") is True and status.get("denied") is not True

    def _review(self, path: str, api_version: str, kind: str, spec: JSON) -> Mapping[str, Any]:
        body: JSON = {"apiVersion": api_version, "kind": kind, "metadata": {}, "spec": spec}
        return self._client.request("POST", path, body=body, timeout_seconds=self._settings.timeout_seconds)
