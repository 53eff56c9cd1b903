"""Who calls, what they may do, and a ledger of what they did.

The ledger counts distinct (user, verb, resource, namespace) calls, so that a test can compare the grants of a manifest
with what was really used.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tests.fakes.k8s.resources import JSON, ApiProblem, Target

ANONYMOUS: Final = "system:anonymous"
_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Call(NamedTuple):
    """One kind of call. `resource` is written as in RBAC rules: `group/plural/subresource`, without empty parts."""

    user: str
    verb: str
    resource: str
    namespace: str


@dataclass(slots=True)
class Access:
    """Authentication, authorisation and reviews; everything is open until `tokens` is filled.

    `tokens`: bearer token to user name. `grants`: per user the (verb, resource) pairs allowed, `*` matches anything;
    None switches authorisation off. `reviews` and `permissions` script what TokenReview and SubjectAccessReview answer.
    """

    tokens: dict[str, str] = field(default_factory=dict)
    grants: dict[str, set[tuple[str, str]]] | None = None
    calls: Counter[Call] = field(default_factory=Counter)
    reviews: dict[str, JSON] = field(default_factory=dict)
    permissions: set[tuple[str, str, str]] = field(default_factory=set)

    def user(self, authorization: str) -> str:
        """Whose token it is; 401 when tokens are in force and it is nobody's."""
        if not self.tokens:
            return ANONYMOUS
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or token.strip() not in self.tokens:
            raise ApiProblem(401, "Unauthorized", "Unauthorized")
        return self.tokens[token.strip()]

    def check(self, user: str, verb: str, target: Target) -> None:
        """Note the call; 403 when nothing grants it."""
        resource = "/".join(filter(None, (target.resource.group, target.resource.plural, target.subresource)))
        self.calls[Call(user, verb, resource, target.namespace)] += 1
        if self.grants is None:
            return
        allowed = self.grants.get(user, set())
        if not {(verb, resource), ("*", resource), ("*", "*")} & allowed:
            raise ApiProblem(403, "Forbidden", f'User "{user}" cannot {verb} resource "{resource}"')

    def impersonate(self, user: str, other: str) -> None:
        """Note that *user* acts as a service account; 403 when nothing grants it."""
        self.calls[Call(user, "impersonate", "serviceaccounts", other.split(":")[2])] += 1
        if self.grants is not None and ("impersonate", "serviceaccounts") not in self.grants.get(user, set()):
            raise ApiProblem(403, "Forbidden", f'User "{user}" cannot impersonate "{other}"')

    def token_review(self, request: JSON) -> JSON:
        """The scripted answer for the token; an unknown one is not authenticated.

        A scripted status with `audiences` answers only for those, as an audience-aware authenticator does.
        """
        spec = request.get("spec") or {}
        status = self.reviews.get(spec.get("token", ""))
        wanted = set(spec.get("audiences") or ())
        if status is None or (wanted and "audiences" in status and not wanted & set(status["audiences"])):
            status = {"authenticated": False, "error": "invalid bearer token"}
        elif wanted and "audiences" in status:
            status = {**status, "audiences": sorted(wanted & set(status["audiences"]))}
        return {**request, "status": status}

    def access_review(self, request: JSON) -> JSON:
        """Allowed when (user, verb, path or `group/resource`) is among the permissions."""
        spec = request.get("spec") or {}
        if asked := spec.get("nonResourceAttributes"):
            what, verb = asked.get("path", ""), asked.get("verb", "")
        else:
            asked = spec.get("resourceAttributes") or {}
            what, verb = "/".join(filter(None, (asked.get("group"), asked.get("resource")))), asked.get("verb", "")
        allowed = (spec.get("user", ""), verb, what) in self.permissions
        return {**request, "status": {"allowed": allowed, "reason": "" if allowed else "no grant matches"}}

    def used(self, user: str | None = None) -> set[tuple[str, str]]:
        """The (verb, resource) pairs called so far, by *user* (None: by anyone)."""
        return {(c.verb, c.resource) for c in self.calls if user is None or c.user == user}


def verb_of(method: str, target: Target, *, watch: bool) -> str:
    """The RBAC verb of a request."""
    if method in ("GET", "HEAD"):
        return "watch" if watch else "get" if target.name else "list"
    if method in _VERBS:
        return _VERBS[method]
    raise ApiProblem(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
