"""Rules for one entry of `extenders` in a KubeSchedulerConfiguration.

Source: kube-scheduler extender.go, schedule_one.go, apis/config/validation validateExtenders.
"""

from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import urlsplit

from extender.lint.catalogue import Finding, found
from extender.lint.context import Context
from extender.lint.documents import Located
from extender.lint.transport import lint_transport
from extender.lint.values import split_url

VERBS: Final = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt", "bindVerb": "bind"}
BIND_IGNORED_SINCE: Final = 30
"""The minor version from which kube-scheduler skips a bind error of an ignorable extender (extendersBinding)."""
IN_TREE_MAXIMUM: Final = 1200
"""The maximum sum of all in-tree scores with default weights. An extender gives 100 per unit of weight."""


def lint_extender(extender: Located, context: Context, others: Sequence[Located]) -> Iterator[Finding]:
    """All findings about one extender. *others*: the other entries. If there is none, it is ours."""
    yield from lint_transport(extender, context)
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
