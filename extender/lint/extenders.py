"""Rules for one entry of `extenders` in a KubeSchedulerConfiguration: how kube-scheduler connects, and what it calls.

Source: kube-scheduler extender.go (makeTransport, NewHTTPExtender), schedule_one.go, apis/config/validation
validateExtenders; client-go transport.TLSConfigFor.
"""

from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from extender.identity import is_local
from extender.lint.catalogue import Finding, found
from extender.lint.context import Context
from extender.lint.documents import Located
from extender.lint.values import go_seconds, is_service_name, split_url

VERBS: Final = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt", "bindVerb": "bind"}
BIND_IGNORED_SINCE: Final = 30
"""The minor version from which kube-scheduler skips a bind error of an ignorable extender (extendersBinding)."""
IN_TREE_MAXIMUM: Final = 1200
"""The maximum sum of all in-tree scores with default weights. An extender gives 100 per unit of weight."""
LONG_SECONDS: Final = 10.0


def lint_extender(extender: Located, context: Context, others: Sequence[Located]) -> Iterator[Finding]:
    """All findings about one extender. *others*: the other entries. The only entry counts as ours."""
    yield from _transport(extender, context)
    yield from _verbs(extender)
    if not others or _is_ours(extender, context):
        yield from _routes(extender, context, [other for other in others if _is_ours(other, context)])
        yield from _managed_resources(extender)
    yield from _native_resources(extender)
    yield from _weight(extender)
    yield from _nodes(extender, context)
    yield from _ignorable(extender, context)


def _is_ours(extender: Located, context: Context) -> bool:
    """Recognised by its port, its host, or a path that is a route of ours."""
    url = split_url(extender.text("urlPrefix"))
    if url is None:
        return False
    port = context.defaults.get("NUMA_EXTENDER_PORT")
    paths = {_path(extender, verb) for verb in VERBS}
    return url.port == port or "numa-extender" in (url.hostname or "") or bool(paths & context.routes)


def _path(extender: Located, verb: str) -> str:
    """The path that is called. Empty for a verb that is not set."""
    if not extender.text(verb):
        return ""
    return urlsplit(f"{extender.text('urlPrefix').rstrip('/')}/{extender.text(verb)}").path


def _verbs(extender: Located) -> Iterator[Finding]:
    for verb in VERBS:
        text = extender.text(verb)
        if text and text.strip("/ ") != text:
            yield found("verb-slash", extender.near(verb), path=_path(extender, verb), verb=text.strip("/ "))


def _routes(extender: Located, context: Context, ours: Sequence[Located]) -> Iterator[Finding]:
    """Whether each verb leads to its route. *ours*: the other entries, which may have the other verbs."""
    served = {path.rpartition("/")[2]: path for path in context.routes}
    for verb, name in VERBS.items():
        route, path = served.get(name), _path(extender, verb)
        if not path:
            if route is not None and not any(other.text(verb) for other in ours):
                yield found(f"{name}-missing", extender)
        elif path == route or extender.text(verb).strip("/ ") != extender.text(verb):
            continue
        elif path in context.routes:
            yield found("verb-wrong-route", extender.near(verb), path=path, verb=verb, name=name)
        else:
            prefix = route and route.rpartition("/")[0]
            place = extender.near(verb)
            yield found("verb-no-route", place, path=path, route=route, prefix=prefix, verb=verb, name=name)


def _native_resources(extender: Located) -> Iterator[Finding]:
    for resource in extender.items("managedResources"):
        name = resource.text("name")
        if name.startswith("hugepages-") or "/" not in name or name.partition("/")[0].endswith("kubernetes.io"):
            yield found("managed-resource-native", resource.near("name"), name=name or "nothing")


def _managed_resources(extender: Located) -> Iterator[Finding]:
    if not extender.items("managedResources"):
        return
    if any(extender.text(verb) for verb in VERBS if verb != "bindVerb"):
        yield found("managed-resources-hide", extender.near("managedResources"))
    elif extender.text("bindVerb"):
        yield found("binder-of-some-pods", extender.near("managedResources"))


def _weight(extender: Located) -> Iterator[Finding]:
    place, weight = extender.near("weight"), extender.plain("weight")
    ranks = bool(extender.text("prioritizeVerb"))
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int)):
        yield found("weight-invalid", place, weight=weight)
    elif ranks and (weight is None or weight <= 0):
        yield found("weight-missing", place, weight=weight or "not set")
    elif not ranks and weight:
        yield found("weight-unused", place)
    elif weight and weight * 100 > IN_TREE_MAXIMUM:
        yield found("weight-dominates", place, points=weight * 100, in_tree=IN_TREE_MAXIMUM)


def _nodes(extender: Located, context: Context) -> Iterator[Finding]:
    if extender.plain("nodeCacheCapable") is not True:
        more = ", and in-tree scores treat every node as empty" if context.kube_minor >= 33 else ""
        yield found("node-cache-incapable", extender.near("nodeCacheCapable"), more=more)


def _ignorable(extender: Located, context: Context) -> Iterator[Finding]:
    if extender.plain("ignorable") is not True:
        return
    if not context.surroundings.has_alert:
        yield found("ignorable-without-alert", extender.near("ignorable"))
    if extender.text("bindVerb"):
        since = f"1.{BIND_IGNORED_SINCE}" if context.kube_minor < BIND_IGNORED_SINCE else None
        yield found("ignorable-binder", extender.near("bindVerb"), since=since)


def _transport(extender: Located, context: Context) -> Iterator[Finding]:
    """Findings about one entry of `extenders`."""
    url = split_url(extender.text("urlPrefix"))
    if url is None or url.query or url.fragment:
        yield found("url-prefix", extender.near("urlPrefix"), url=extender.text("urlPrefix"))
    else:
        host = url.hostname or ""
        yield from _https(extender, host) if url.scheme == "https" else _http(extender, host)
        yield from _names(extender, host, context)
    yield from _timeout(extender, context)


def _https(extender: Located, host: str) -> Iterator[Finding]:
    tls = extender.near("tlsConfig")
    ca = extender.text("tlsConfig", "caFile") or extender.text("tlsConfig", "caData")
    insecure = extender.plain("tlsConfig", "insecure") is True
    if ca and insecure:
        yield found("ca-and-insecure", tls.near("insecure"))
    elif not ca and (insecure or extender.plain("enableHTTPS") is True):
        place = tls.near("insecure") if insecure else extender.near("enableHTTPS")
        yield found("tls-unverified", place, host=host, flag="`insecure: true`" if insecure else None)
    if bool(extender.text("tlsConfig", "certFile") or extender.text("tlsConfig", "certData")) != bool(
        extender.text("tlsConfig", "keyFile") or extender.text("tlsConfig", "keyData")
    ):
        yield found("client-cert-incomplete", tls)
    if extender.text("tlsConfig", "caFile") and not insecure:
        yield found("ca-read-once", tls.near("caFile"))


def _http(extender: Located, host: str) -> Iterator[Finding]:
    if extender.plain("enableHTTPS") is True:
        yield found("https-flag-on-http", extender.near("enableHTTPS"))
    if extender.get("tlsConfig") is not None:
        yield found("tls-config-on-http", extender.near("tlsConfig"))
    if not is_local(host):
        yield found("plain-http", extender.near("urlPrefix"), host=host)


def _names(extender: Located, host: str, context: Context) -> Iterator[Finding]:
    if is_service_name(host) and context.surroundings.resolves_services is False:
        yield found("service-name-on-host-network", extender.near("urlPrefix"), host=host)


def _timeout(extender: Located, context: Context) -> Iterator[Finding]:
    place, value = extender.near("httpTimeout"), extender.plain("httpTimeout")
    seconds = go_seconds(value)
    if value is None or seconds == 0:
        yield found("timeout-unset", place)
        seconds = 5.0
    if seconds is None or seconds < 0:
        yield found("timeout-invalid", place, value=value)
        return
    deadlines = context.surroundings.deadlines.items()
    verb, deadline = max(
        ((v, d) for v, d in deadlines if extender.text(v)), key=lambda item: item[1], default=("", 0.0)
    )
    if verb and seconds <= deadline:
        yield found("timeout-below-deadline", place, seconds=seconds, deadline=deadline, verb=verb)
    if seconds > LONG_SECONDS:
        yield found("timeout-long", place, seconds=seconds)
