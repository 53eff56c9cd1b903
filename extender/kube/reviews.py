"""Authenticates tokens (TokenReview) and authorizes their owners (SubjectAccessReview) with the API server.

Answers are cached for a short time: a revoked token, or a right that was withdrawn, works for at most that long.
Answers for tokens of a deleted pod are dropped at once (`end_pods`). Refusals are cached too, for a shorter time and
separately, so that a caller with bad tokens can neither cause many calls nor push good answers out of the cache. Tokens
are never kept, only their SHA-256. Nothing is cached beyond a token's own expiry. If the server cannot be reached, the
result is a KubeError and never a positive answer, except that an earlier one stays valid for `grace_seconds`.

RBAC: `create` on tokenreviews (authentication.k8s.io) and on subjectaccessreviews (authorization.k8s.io).
"""

import base64
import binascii
import hashlib
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import orjson

from extender.bounded import BoundedMap
from extender.kube.client import JSON, Requester
from extender.kube.errors import KubeError
from extender.kube.objects import mapping, text, texts

NODE_NAME: Final = "authentication.kubernetes.io/node-name"
POD_UID: Final = "authentication.kubernetes.io/pod-uid"
MAX_TOKEN_BYTES: Final = 16 * 1024
MAX_TOKENS_OF_A_POD: Final = 16
"""Cached answers for tokens of one pod. The kubelet creates a new token about once an hour."""
_TOKENS: Final = "/apis/authentication.k8s.io/v1/tokenreviews"
_ACCESS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TTLCache(Generic[K, V]):
    """A map with expiring entries and a limited size: the least recently used one is dropped. Thread-safe.

    An entry can be used after its expiry (`get_late`) if no new answer can be had. Each new entry removes the two
    oldest ones if they are past their grace period. *clock*: monotonic seconds.
    """

    def __init__(self, size: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: BoundedMap[K, tuple[float, float, V]] = BoundedMap(size)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """The value. None if there is none or it has expired."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            expires, late, value = entry
            now = self._clock()
            if now >= late:
                del self._entries[key]
            if now >= expires:
                return None
            self._entries.move_to_end(key)
            return value

    def get_late(self, key: K) -> V | None:
        """The value, even if expired but within its grace period. None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            return None if entry is None or self._clock() >= entry[1] else entry[2]

    def put(self, key: K, value: V, ttl_seconds: float, *, grace_seconds: float = 0.0) -> None:
        """Store *value* for this long, and for *grace_seconds* more for `get_late`."""
        with self._lock:
            now = self._clock()
            for oldest in list(islice(self._entries, 2)):
                if now >= self._entries[oldest][1]:
                    del self._entries[oldest]
            self._entries[key] = (now + ttl_seconds, now + ttl_seconds + grace_seconds, value)

    def drop(self, key: K) -> None:
        """Remove the value, its grace period included."""
        with self._lock:
            self._entries.pop(key, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """The owner of a token. `extra`: sorted (name, values) pairs, from the server."""

    username: str
    uid: str
    groups: tuple[str, ...]
    extra: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def node_name(self) -> str:
        """The node that a bound service-account token is bound to. Empty for any other token."""
        return self._first(NODE_NAME)

    @property
    def pod_uid(self) -> str:
        """The UID of the pod that a service-account token is bound to. Empty for any other token."""
        return self._first(POD_UID)

    def _first(self, name: str) -> str:
        return next((values[0] for key, values in self.extra if key == name and values), "")


@dataclass(frozen=True, slots=True)
class TokenRejected:
    """The token is not valid, or not meant for us."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewSettings:
    """How long answers are cached, in seconds, and how many. `grace_seconds`: while the server cannot be reached."""

    accepted_seconds: float = 60.0
    refused_seconds: float = 10.0
    grace_seconds: float = 0.0
    size: int = 4096
    timeout_seconds: float = 5.0


_TokenKey = tuple[bytes, str]


class Reviews:
    """Calls the API server in the caller's thread. Thread-safe. *clock*: monotonic seconds; *wall*: Unix seconds.

    *count* is called for every answer: `token` or `access`, and `yes`, `no`, `failed` or `grace`.
    """

    def __init__(
        self,
        client: Requester,
        settings: ReviewSettings | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        count: Callable[[str, str], None] = lambda _kind, _outcome: None,
    ) -> None:
        self._client = client
        self._settings = settings or ReviewSettings()
        self._wall, self._count = wall, count
        size = self._settings.size
        self._identities: TTLCache[_TokenKey, Identity] = TTLCache(size, clock)
        self._rejected: TTLCache[_TokenKey, TokenRejected] = TTLCache(size, clock)
        self._permissions: TTLCache[tuple[Identity, str, str], bool] = TTLCache(size, clock)
        self._pods_lock = threading.Lock()
        self._of_pod: TTLCache[str, tuple[_TokenKey, ...]] = TTLCache(size, clock)
        self._ended: TTLCache[str, str] = TTLCache(size, clock)

    def end_pods(self, uids: Iterable[str]) -> None:
        """Drop the answers for tokens of these pods, which were deleted. Never waits for the API server.

        Answers that arrive later for calls in progress are not cached either.
        """
        with self._pods_lock:
            for uid in uids:
                self._ended.put(uid, uid, 2 * self._settings.timeout_seconds)
                for key in self._of_pod.get(uid) or ():
                    self._identities.drop(key)
                self._of_pod.drop(uid)

    def known(self, token: str, *, audience: str = "") -> Identity | TokenRejected | None:
        """The cached result of `authenticate`. None: it would call the API server. Never waits."""
        if not token or len(token) > MAX_TOKEN_BYTES or not (token.isascii() and token.isprintable()):
            return TokenRejected("the token is missing, too long or malformed")
        key = _key(token, audience)
        return self._identities.get(key) or self._rejected.get(key)

    def authenticate(self, token: str, *, audience: str = "") -> Identity | TokenRejected:
        """The owner of the token, for *audience* (empty: the API server's own).

        Raises:
            KubeError: the call failed.
        """
        known = self.known(token, audience=audience)
        if known is not None:
            return known
        key, settings = _key(token, audience), self._settings
        left = _ends_at(token) - self._wall()
        earlier = self._identities.get_late(key) if left > 0 else None
        try:
            answer = self._ask_token(token, audience)
        except KubeError:
            self._count("token", "failed" if earlier is None else "grace")
            if earlier is None:
                raise
            return earlier
        self._count("token", "yes" if isinstance(answer, Identity) else "no")
        if isinstance(answer, TokenRejected):
            self._rejected.put(key, answer, settings.refused_seconds)
        else:
            self._accept(key, answer, left)
        return answer

    def _accept(self, key: _TokenKey, identity: Identity, left: float) -> None:
        """Cache a positive answer. *left*: seconds until the token's own expiry."""
        settings, uid = self._settings, identity.pod_uid
        ttl = min(settings.accepted_seconds, left)
        grace = max(0.0, min(settings.grace_seconds, left - ttl))
        with self._pods_lock:
            if uid and self._ended.get(uid):
                return
            if uid:
                keys = (*(other for other in self._of_pod.get(uid) or () if other != key), key)
                for oldest in keys[:-MAX_TOKENS_OF_A_POD]:
                    self._identities.drop(oldest)
                self._of_pod.put(uid, keys[-MAX_TOKENS_OF_A_POD:], settings.accepted_seconds + settings.grace_seconds)
            self._identities.put(key, identity, ttl, grace_seconds=grace)

    def known_allowed(self, identity: Identity, *, verb: str, path: str) -> bool | None:
        """The cached result of `allowed`. None: it would call the API server. Never waits."""
        return self._permissions.get((identity, verb, path))

    def allowed(self, identity: Identity, *, verb: str, path: str) -> bool:
        """Whether RBAC allows *identity* to *verb* the non-resource URL *path*.

        Raises:
            KubeError: the call failed.
        """
        known = self.known_allowed(identity, verb=verb, path=path)
        if known is not None:
            return known
        key, settings = (identity, verb, path), self._settings
        try:
            answer = self._ask_access(identity, verb, path)
        except KubeError:
            earlier = self._permissions.get_late(key) or False
            self._count("access", "grace" if earlier else "failed")
            if not earlier:
                raise
            return True
        self._count("access", "yes" if answer else "no")
        ttl = settings.accepted_seconds if answer else settings.refused_seconds
        self._permissions.put(key, answer, ttl, grace_seconds=settings.grace_seconds if answer else 0.0)
        return answer

    def _ask_token(self, token: str, audience: str) -> Identity | TokenRejected:
        """The API server's answer for the token."""
        spec: JSON = {"token": token, **({"audiences": [audience]} if audience else {})}
        status = mapping(self._review(_TOKENS, "authentication.k8s.io/v1", "TokenReview", spec), "status")
        if status.get("authenticated") is not True:
            return TokenRejected(text(status, "error") or "the token is not valid")
        if audience and audience not in texts(status, "audiences"):
            return TokenRejected(f"the token is not for audience {audience}")
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


def _key(token: str, audience: str) -> _TokenKey:
    return hashlib.sha256(token.encode()).digest(), audience


def _ends_at(token: str) -> float:
    """The expiry in the token, Unix seconds. Infinity if it has none.

    Its signature is not checked here: this can only shorten how long a positive answer of the API server is cached.
    """
    try:
        payload = token.split(".")[1]
        ends = orjson.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))).get("exp")
    except (IndexError, ValueError, binascii.Error, AttributeError):
        return math.inf
    return float(ends) if isinstance(ends, int | float) and not isinstance(ends, bool) else math.inf
