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
_MISSING: Final = {
    "filterVerb": ("filter-missing", "the extender cannot refuse nodes"),
    "prioritizeVerb": ("prioritize-missing", "all nodes that admit the pod get the same score"),
    "preemptVerb": (
        "preempt-missing",
        "kube-scheduler chooses victims without looking at NUMA nodes: they may be evicted for nothing",
    ),
    "bindVerb": (
        "bind-missing",
        "filter runs before earlier pods are placed; only bind checks the newest state",
    ),
}


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
            yield found(
                "verb-slash",
                extender.near(verb),
                f"the path that is called is exactly {_path(extender, verb)}",
                f"write {text.strip('/ ')}",
            )


def _routes(extender: Located, context: Context, ours: Sequence[Located]) -> Iterator[Finding]:
    """Whether each verb leads to its route. *ours*: the other entries, which may have the other verbs."""
    served = {path.rpartition("/")[2]: path for path in context.routes}
    for verb, name in VERBS.items():
        route, path = served.get(name), _path(extender, verb)
        if not path:
            if route is not None and not any(other.text(verb) for other in ours):
                rule, why = _MISSING[verb]
                yield found(rule, extender, why, f"set {verb}: {name}")
        elif path == route or extender.text(verb).strip("/ ") != extender.text(verb):
            continue
        elif path in context.routes:
            yield found(
                "verb-wrong-route", extender.near(verb), f"{path} is the route of another verb", f"set {verb}: {name}"
            )
        else:
            there = f"it would be {route}" if route else f"this version of numa-extender has no {name}"
            fix = f"end urlPrefix with /scheduler, and set {verb}: {name}" if route else f"remove {verb}"
            yield found("verb-no-route", extender.near(verb), f"nothing answers at {path}: {there}", fix)


def _native_resources(extender: Located) -> Iterator[Finding]:
    for resource in extender.items("managedResources"):
        name = resource.text("name")
        if name.startswith("hugepages-") or "/" not in name or name.partition("/")[0].endswith("kubernetes.io"):
            yield found(
                "managed-resource-native",
                resource.near("name"),
                f"{name or 'nothing'} is not an extended resource (DOMAIN/NAME)",
                "remove managedResources: pods without alignment cost almost nothing",
            )


def _managed_resources(extender: Located) -> Iterator[Finding]:
    if not extender.items("managedResources"):
        return
    if any(extender.text(verb) for verb in VERBS if verb != "bindVerb"):
        yield found(
            "managed-resources-hide",
            extender.near("managedResources"),
            "the extender is called only for pods with one of these in a container's requests or limits; CPU, memory, "
            "pod-level resources and claims do not count",
            "remove managedResources, or move them to a separate extender entry that has the bindVerb",
        )
    elif extender.text("bindVerb"):
        yield found(
            "binder-of-some-pods",
            extender.near("managedResources"),
            "kube-scheduler binds all other pods itself, and the state may have changed since filter",
            "let pods that must be aligned request one of these resources; set "
            "NUMA_EXTENDER_BARRIER_SECONDS=0.02 for the others",
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
            f"about 12 kB a node and call{', and in-tree scores treat every node as empty' if empty else ''}",
            "set nodeCacheCapable: true",
        )


def _ignorable(extender: Located, context: Context) -> Iterator[Finding]:
    if extender.plain("ignorable") is not True:
        return
    if not context.surroundings.has_alert:
        yield found(
            "ignorable-without-alert",
            extender.near("ignorable"),
            "an outage shows only as a log line that does not name it, and as pods that fail on their nodes",
            "alert on it (manifests/components/prometheus) and lint both files together, or set ignorable: false",
        )
    if extender.text("bindVerb"):
        skipped = context.kube_minor >= BIND_IGNORED_SINCE
        yield found(
            "ignorable-binder",
            extender.near("bindVerb"),
            "every refusal by bind is an error: kube-scheduler skips errors of an ignorable extender and binds the pod "
            "itself"
            if skipped
            else "before 1.30 kube-scheduler does not skip errors of bind: while the extender is down no pod is bound; "
            "from 1.30 on it skips every refusal by bind",
            "set ignorable: false; where other pods must not wait, move bindVerb to a second entry that is not, with "
            "managedResources (manifests/overlays/control-plane/scheduler-config.yaml)",
        )
