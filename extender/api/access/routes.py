"""Which route needs which scope: the only place that says so.

Laws of this file
- The first row that fits counts. What fits none needs `read` if it is a GET, and is refused otherwise: a new route that
  changes something stands here before it answers anybody.
- Patterns are matched against the path that the router matches, after decoding.
"""

from typing import Final, NamedTuple

from starlette.routing import compile_path

from extender.identity import AccessScope

ANY: Final = "*"


class RouteAccess(NamedTuple):
    """`scope` None: open to everybody. A path that ends in `*` stands for all that begin so."""

    method: str
    path: str
    scope: AccessScope | None


ROUTES: Final = (
    RouteAccess("GET", "/livez", None),
    RouteAccess("GET", "/readyz", None),
    RouteAccess("GET", "/", None),  # the page's own files know nothing; what it shows it asks for as who looks at it
    RouteAccess("GET", "/web/*", None),
    RouteAccess("GET", "/metrics", AccessScope.METRICS),
    RouteAccess("POST", "/scheduler/*", AccessScope.SCHEDULE),
    RouteAccess("PUT", "/v1/nodes/{name}/report", AccessScope.REPORT),
    RouteAccess("POST", "/v1/nodes/{name}/heartbeat", AccessScope.REPORT),
    RouteAccess("POST", "/v1/what-if", AccessScope.READ),
    RouteAccess("POST", "/v1/what-if/*", AccessScope.READ),
    RouteAccess("POST", "/v1/capacity", AccessScope.READ),
    RouteAccess("POST", "/v1/capacity/*", AccessScope.READ),
    RouteAccess("POST", "/v1/plan", AccessScope.READ),
    RouteAccess("POST", "/v1/plan/*", AccessScope.READ),
    RouteAccess("GET", "/*", AccessScope.READ),
)
_COMPILED: Final = tuple(
    (row, None if row.path.endswith(ANY) else compile_path(row.path)[0], row.path.removesuffix(ANY)) for row in ROUTES
)


class UnlistedRouteError(Exception):
    """No row of the table allows this method here."""


class Need(NamedTuple):
    """`scope` None: nothing. `node_name`: the node that a reporter must be; None: none in particular."""

    scope: AccessScope | None
    node_name: str | None = None


def need_of(method: str, path: str) -> Need:
    """What a request needs.

    Raises:
        UnlistedRouteError: the table has no row for it.
    """
    method = "GET" if method == "HEAD" else method
    for row, pattern, prefix in _COMPILED:
        if row.method != method:
            continue
        if pattern is None:
            if path.startswith(prefix):
                return Need(row.scope)
        elif found := pattern.match(path):
            return Need(row.scope, found.groupdict().get("name"))
    raise UnlistedRouteError(f"{method} is not allowed here")
