"""Checks tokens of callers with the API server: implements `extender.api.access.authority.Authority`.

Rules of this file
- Rights are RBAC's: each scope is one verb on one non-resource URL (`GRANTS`) in a ClusterRole. A virtual *resource*
  would be granted unintentionally to everyone with a rule for all resources, and such rules are common.
- A reporter may report one node: the one that the token names (Kubernetes 1.30 and later), else the node of the pod
  that the token names. A token that names neither may report nothing.
- The event loop never waits for the API server: cached answers are used at once. Calls have a few threads of their own,
  so that a server that hangs does not block the threads of the replay. Equal concurrent questions are one call, and at
  most `MAX_WAITING` wait.

RBAC: as `reviews`; and `get` on pods, for reporters on Kubernetes before 1.30.
"""

import asyncio
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Final

from extender.identity import EVERYTHING, AccessScope, Means, NotAllowedError, Principal
from extender.kube.client import Requester
from extender.kube.errors import KubeError
from extender.kube.pod_objects import node_of, read_pod
from extender.kube.reviews import Identity, Reviews, TokenRejected, TTLCache

GRANTS: Final = {
    AccessScope.REPORT: ("put", "/numa-extender/report"),
    AccessScope.SCHEDULE: ("post", "/numa-extender/schedule"),
    AccessScope.READ: ("get", "/numa-extender/read"),
    AccessScope.METRICS: ("get", "/metrics"),
}
"""/metrics is the URL that ClusterRoles of Prometheus already name. The other URLs are our own."""
MAX_WAITING: Final = 256
THREADS: Final = 8
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_SERVICE_ACCOUNT: Final = "system:serviceaccount:"
_HOUR: Final = 3600.0


class TokenAuthority:
    """Used on one event loop.

    *audience*: the audience of tokens; *read_audiences*: additional ones, for reading only.
    """

    def __init__(
        self,
        reviews: Reviews,
        client: Requester,
        *,
        audience: str,
        read_audiences: tuple[str, ...] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reviews, self._client = reviews, client
        self._audiences = {
            scope: (audience, *(read_audiences if scope in (AccessScope.READ, AccessScope.METRICS) else ()))
            for scope in EVERYTHING
        }
        self._nodes: TTLCache[tuple[str, str, str], str] = TTLCache(20_000, clock)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="review")
        self._asked: dict[tuple[str, AccessScope], asyncio.Future[Principal]] = {}

    def close(self) -> None:
        """Make no more calls. Calls in progress end by themselves."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def end_pods(self, uids: Iterable[str]) -> None:
        """Reject tokens of these pods from now on, and drop them from the cache."""
        self._reviews.end_pods(uids)

    def known(self, token: str, scope: AccessScope) -> Principal | None:
        """The owner of *token*, if the cache has a positive answer for *scope*. None: call `admit`."""
        verb, path = GRANTS[scope]
        for audience in self._audiences[scope]:
            identity = self._reviews.known(token, audience=audience)
            if isinstance(identity, Identity) and self._reviews.known_allowed(identity, verb=verb, path=path):
                node = identity.node_name or self._nodes.get(_pod_of(identity))
                return _principal(identity, scope, node or "") if node or scope is not AccessScope.REPORT else None
        return None

    async def admit(self, token: str, scope: AccessScope) -> Principal:
        """The owner of *token*, who has *scope*, as the API server says. Equal questions share one review."""
        key = (token, scope)
        asked = self._asked.get(key)
        if asked is None:
            if len(self._asked) >= MAX_WAITING:
                raise NotAllowedError(
                    HTTPStatus.SERVICE_UNAVAILABLE, "too many callers are waiting for the API server", Means.TOKEN
                )
            asked = asyncio.get_running_loop().run_in_executor(self._pool, self._ask, token, scope)
            self._asked[key] = asked
            asked.add_done_callback(lambda done: self._settle(key, done))
        try:
            return await asyncio.shield(asked)
        except KubeError as error:
            raise NotAllowedError(
                HTTPStatus.SERVICE_UNAVAILABLE, f"the API server cannot check the token: {error}", Means.TOKEN
            ) from error

    def _settle(self, key: tuple[str, AccessScope], done: "asyncio.Future[Principal]") -> None:
        self._asked.pop(key, None)
        if not done.cancelled():
            done.exception()  # retrieved because every waiter may have gone

    def _ask(self, token: str, scope: AccessScope) -> Principal:
        """Runs in a thread of the pool.

        Raises:
            NotAllowedError: refused.
            KubeError: the call failed.
        """
        identity = self._identify(token, scope)
        verb, path = GRANTS[scope]
        if not self._reviews.allowed(identity, verb=verb, path=path):
            raise NotAllowedError(HTTPStatus.FORBIDDEN, f"{identity.username} may not {verb} {path}", Means.TOKEN)
        return _principal(identity, scope, self._node_of(identity) if scope is AccessScope.REPORT else "")

    def _identify(self, token: str, scope: AccessScope) -> Identity:
        rejected = TokenRejected("no audience")
        for audience in self._audiences[scope]:
            answer = self._reviews.authenticate(token, audience=audience)
            if isinstance(answer, Identity):
                return answer
            rejected = answer
        raise NotAllowedError(HTTPStatus.UNAUTHORIZED, rejected.reason, Means.TOKEN)

    def _node_of(self, identity: Identity) -> str:
        """The node that a token is bound to. Empty for none."""
        named = identity.node_name
        pod = _pod_of(identity)
        if named or not all(pod):
            return named
        known = self._nodes.get(pod)
        if known is not None:
            return known
        answer = read_pod(self._client, *pod)
        if answer is not None and (node := node_of(answer)):
            self._nodes.put(pod, node, _HOUR)  # a pod never changes its node
            return node
        return ""


def _pod_of(identity: Identity) -> tuple[str, str, str]:
    """Namespace, name and UID of the pod that a service account's token is bound to. Empty parts for none."""
    extra = {name: values[0] for name, values in identity.extra if values}
    namespace = identity.username.removeprefix(_SERVICE_ACCOUNT).partition(":")[0]
    if not identity.username.startswith(_SERVICE_ACCOUNT):
        namespace = ""
    return namespace, extra.get(_POD_NAME, ""), identity.pod_uid


def _principal(identity: Identity, scope: AccessScope, node_name: str) -> Principal:
    name = f"{identity.username}@{node_name}" if node_name else identity.username
    return Principal(name=name, means=Means.TOKEN, scopes=frozenset({scope}), node_name=node_name)
