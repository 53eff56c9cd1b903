"""The table of routes and the scope that each of them needs.

Rules of this file
- The first row that matches applies. A GET that matches no row needs `read`; other methods are refused. A new route
  that changes something must be added here before it works.
- Patterns are matched against the decoded path, as the router does.
"""

from typing import Final, NamedTuple

from starlette.routing import compile_path

from extender.identity import AccessScope

ANY: Final = "*"


class RouteAccess(NamedTuple):
    """`scope` None: open to everybody. A path that ends in `*` matches every path with that prefix."""

    method: str
    path: str
    scope: AccessScope | None


ROUTES: Final = (
    RouteAccess("GET", "/livez", None),
    RouteAccess("GET", "/readyz", None),
    RouteAccess("GET", "/", None),  # the page's files hold no data; the page fetches data with the user's credentials
    RouteAccess("GET", "/web/*", None),
    RouteAccess("GET", "/docs*", None),
    RouteAccess("GET", "/metrics", AccessScope.METRICS),
    RouteAccess("POST", "/scheduler/*", AccessScope.SCHEDULE),
    RouteAccess("PUT", "/v1/nodes/{name}/report", AccessScope.REPORT),
    RouteAccess("POST", "/v1/nodes/{name}/heartbeat", AccessScope.REPORT),
    RouteAccess("POST", "/v1/what-if", AccessScope.READ),
    RouteAccess("POST", "/v1/capacity", AccessScope.READ),
    RouteAccess("POST", "/v1/plan", AccessScope.READ),
    RouteAccess("POST", "/v1/advice/*", AccessScope.READ),
    RouteAccess("GET", "/*", AccessScope.READ),
)
_COMPILED: Final = tuple(
    (row, None if row.path.endswith(ANY) else compile_path(row.path)[0], row.path.removesuffix(ANY)) for row in ROUTES
)


class Need(NamedTuple):
    """`scope` None: none is needed. `node_name`: the node that the caller must be; None: not limited to a node."""

    scope: AccessScope | None
    node_name: str | None = None


def need_of(method: str, path: str) -> Need | None:
    """The scope that a request needs. None: no row of the table allows this method for this path."""
    method = "GET" if method == "HEAD" else method
    for row, pattern, prefix in _COMPILED:
        if row.method != method:
            continue
        if pattern is None:
            if path.startswith(prefix):
                return Need(row.scope)
        elif found := pattern.match(path):
            return Need(row.scope, found.groupdict().get("name"))
    return None
