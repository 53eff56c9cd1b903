"""One entry of `extenders` in a KubeSchedulerConfiguration.

Source: kube-scheduler extender.go, schedule_one.go, apis/config/validation validateExtenders.
"""

from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from extender.verbs.lint.context import Context
from extender.verbs.lint.finding import Finding, found
from extender.verbs.lint.transport import lint_transport
from extender.verbs.lint.values import split_url
from extender.wire.lint_documents import Located

VERBS: Final = {"filterVerb": "filter", "prioritizeVerb": "prioritize", "preemptVerb": "preempt", "bindVerb": "bind"}
IN_TREE_MAXIMUM: Final = 1200
"""Points that all in-tree plugins together can give with default weights; an extender gives 100 a unit of weight."""
_MISSING: Final = {
    "filterVerb": ("filter-missing", "the extender refuses nodes nowhere"),
    "prioritizeVerb": ("prioritize-missing", "of the nodes that admit, any is as good as another"),
    "preemptVerb": (
        "preempt-missing",
        "kube-scheduler chooses victims without looking at NUMA nodes: they may die for nothing",
    ),
    "bindVerb": (
        "bind-missing",
        "filter looks before the pods under way are placed; only bind looks again on the newest state",
    ),
}


def lint_extender(extender: Located, context: Context, *, is_only: bool) -> Iterator[Finding]:
    """Every finding about one extender. *is_only*: the only one, so it is ours."""
    yield from lint_transport(extender, context)
    yield from _verbs(extender)
    if is_only or _is_ours(extender, context):
        yield from _routes(extender, context)
        yield from _managed_resources(extender)
    yield from _native_resources(extender)
    yield from _weight(extender)
    yield from _nodes(extender, context)
    yield from _ignorable(extender, context)


def _is_ours(extender: Located, context: Context) -> bool:
    """By its port, its host, or a path that is a route of ours."""
    url = split_url(extender.text("urlPrefix"))
    if url is None:
        return False
    port = context.defaults.get("NUMA_EXTENDER_PORT")
    paths = {_path(extender, verb) for verb in VERBS}
    return url.port == port or "numa-extender" in (url.hostname or "") or bool(paths & context.routes)


def _path(extender: Located, verb: str) -> str:
    """The path that is called; empty for a verb that is not set."""
    if not extender.text(verb):
        return ""
    return urlsplit(f"{extender.text('urlPrefix').rstrip('/')}/{extender.text(verb)}").path


def _verbs(extender: Located) -> Iterator[Finding]:
    for verb in VERBS:
        text = extender.text(verb)
        if text and text.strip("/ ") != text:
            yield found(
                "verb-slash",
                extender.near(verb),
                f"it is called as {_path(extender, verb)}, to the letter",
                f"write {text.strip('/ ')}",
            )


def _routes(extender: Located, context: Context) -> Iterator[Finding]:
    served = {path.rpartition("/")[2]: path for path in context.routes}
    for verb, name in VERBS.items():
        route, path = served.get(name), _path(extender, verb)
        if not path:
            if route is not None:
                rule, why = _MISSING[verb]
                yield found(rule, extender, why, f"set {verb}: {name}")
        elif path == route or extender.text(verb).strip("/ ") != extender.text(verb):
            continue
        elif path in context.routes:
            yield found("verb-wrong-route", extender.near(verb), f"{path} answers another verb", f"set {verb}: {name}")
        else:
            there = f"it would be {route}" if route else f"this version of numa-extender has no {name}"
            fix = "set urlPrefix to end in /scheduler, and the verb to its name" if route else f"remove {verb}"
            yield found("verb-no-route", extender.near(verb), f"nothing answers at {path}: {there}", fix)


def _native_resources(extender: Located) -> Iterator[Finding]:
    for resource in extender.items("managedResources"):
        name = resource.text("name")
        if name.startswith("hugepages-") or "/" not in name or name.partition("/")[0].endswith("kubernetes.io"):
            yield found(
                "managed-resource-native",
                resource.near("name"),
                f"{name or 'nothing'} is no extended resource (DOMAIN/NAME)",
                "remove managedResources: pods that nothing aligns are answered at once",
            )
        if resource.plain("ignoredByScheduler") is True:
            yield found(
                "ignored-by-scheduler",
                resource.near("ignoredByScheduler"),
                "NodeResourcesFitArgs.ignoredResources of every profile is overwritten with this list",
                "remove it, or repeat here whatever your profiles ignore",
            )


def _managed_resources(extender: Located) -> Iterator[Finding]:
    if extender.items("managedResources"):
        yield found(
            "managed-resources-hide",
            extender.near("managedResources"),
            "only pods with one of these in a container's requests or limits are asked about; CPU and memory, "
            "pod-level resources and claims do not count",
            "remove managedResources",
        )


def _weight(extender: Located) -> Iterator[Finding]:
    place, weight = extender.near("weight"), extender.plain("weight")
    ranks = bool(extender.text("prioritizeVerb"))
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int)):
        yield found("weight-invalid", place, f"weight is {weight!r}", "write an integer, such as 5")
    elif ranks and (weight is None or weight <= 0):
        yield found("weight-missing", place, f"weight is {weight or 'not set'}", "set weight, such as 5")
    elif not ranks and weight:
        yield found("weight-unused", place, "there is no prioritizeVerb", "set prioritizeVerb, or remove weight")
    elif weight and weight * 100 > IN_TREE_MAXIMUM:
        yield found(
            "weight-dominates",
            place,
            f"up to {weight * 100:,} points against at most {IN_TREE_MAXIMUM:,} of all in-tree plugins: a pod's own "
            "preferences no longer count",
            "set a weight up to 12; 5 outweighs any single plugin",
        )


def _nodes(extender: Located, context: Context) -> Iterator[Finding]:
    if extender.plain("nodeCacheCapable") is not True:
        empty = context.kube_minor >= 33
        yield found(
            "node-cache-incapable",
            extender.near("nodeCacheCapable"),
            f"about 12 kB a node and call{', and in-tree scores see every node as empty' if empty else ''}",
            "set nodeCacheCapable: true",
        )


def _ignorable(extender: Located, context: Context) -> Iterator[Finding]:
    if extender.plain("ignorable") is not True:
        return
    if not context.surroundings.has_alert:
        yield found(
            "ignorable-without-alert",
            extender.near("ignorable"),
            "its outage shows only as a log line that does not even name it, and as pods that fail on their nodes",
            "alert on it (manifests/components/prometheus) and lint both files together, or set ignorable: false",
        )
    if extender.text("bindVerb"):
        yield found(
            "ignorable-binder",
            extender.near("bindVerb"),
            "when the call fails, kube-scheduler binds the pod itself, without the last look",
            "set ignorable: false where a failed pod is worse than a waiting one",
        )
