"""Rules for a KubeSchedulerConfiguration as a whole. `lint/extenders.py` checks each entry of `extenders`.

Source: kube-scheduler apis/config/validation, scheduler.go buildExtenders, cmd/kube-scheduler leader election.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from extender.lint import fields
from extender.lint.catalogue import Finding, found
from extender.lint.context import Context
from extender.lint.documents import Located
from extender.lint.extenders import lint_extender
from extender.wire.placement_rules import DEFAULT_SCHEDULER

_LAST_MINOR: Final = {"v1beta1": 23, "v1beta2": 27, "v1beta3": 28}
"""The last minor version that reads each old version."""


def lint_scheduler(document: Located, context: Context) -> Iterator[Finding]:
    """All findings about one KubeSchedulerConfiguration."""
    yield from _api_version(document, context)
    yield from _unknown_fields(document)
    yield from _profiles(document)
    yield from _lease(document)
    extenders = document.items("extenders")
    if not extenders:
        yield found("no-extender", document.near("extenders"))
        return
    yield from _sampling(document)
    yield from _together(extenders)
    yield from _ignored_resources(document)
    for position, extender in enumerate(extenders):
        yield from lint_extender(extender, context, [*extenders[:position], *extenders[position + 1 :]])


def lint_policy(document: Located) -> Iterator[Finding]:
    """The configuration of kube-scheduler before 1.23."""
    yield found("scheduler-policy-gone", document.near("kind"))


def _api_version(document: Located, context: Context) -> Iterator[Finding]:
    version = document.text("apiVersion").rpartition("/")[2]
    last = _LAST_MINOR.get(version)
    if version != "v1" and (last is None or context.kube_minor > last):
        place, version = document.near("apiVersion"), document.text("apiVersion")
        yield found("scheduler-api-version", place, minor=context.kube_minor, version=version)


def _unknown_fields(document: Located) -> Iterator[Finding]:
    groups = [(document, fields.SCHEDULER)]
    groups += [(profile, fields.PROFILE) for profile in document.items("profiles")]
    election = document.get("leaderElection")
    if election is not None:
        groups.append((election, fields.LEADER_ELECTION))
    for extender in document.items("extenders"):
        groups.append((extender, fields.EXTENDER))
        tls = extender.get("tlsConfig")
        if tls is not None:
            groups.append((tls, fields.TLS))
        groups += [(resource, fields.MANAGED_RESOURCE) for resource in extender.items("managedResources")]
    for place, known in groups:
        for name, value in place.entries().items():
            if name not in known:
                yield found("scheduler-unknown-field", value, name=name, meant=fields.meant(name, known))


def _profiles(document: Located) -> Iterator[Finding]:
    profiles = document.items("profiles")
    seen: set[str] = set()
    for profile in profiles:
        name = profile.text("schedulerName") or DEFAULT_SCHEDULER
        if name in seen:
            yield found("profile-name-twice", profile.near("schedulerName"), name=name)
        seen.add(name)
    if len(profiles) > 1 and document.items("extenders"):
        yield found("profiles-share-extenders", document.near("extenders"), count=len(profiles))


def _lease(document: Located) -> Iterator[Finding]:
    """Two schedulers for different pods must not share a lease."""
    names = {profile.text("schedulerName") or DEFAULT_SCHEDULER for profile in document.items("profiles")}
    elects = document.plain("leaderElection", "leaderElect") is not False
    lease = document.text("leaderElection", "resourceName") or "kube-scheduler"
    namespace = document.text("leaderElection", "resourceNamespace") or "kube-system"
    if names and DEFAULT_SCHEDULER not in names and elects and (namespace, lease) == ("kube-system", "kube-scheduler"):
        yield found("lease-shared", document.near("leaderElection"), names=", ".join(sorted(names)))


def _sampling(document: Located) -> Iterator[Finding]:
    places = [profile for profile in document.items("profiles") if profile.get("percentageOfNodesToScore") is not None]
    for place in [document, *places]:
        value = place.plain("percentageOfNodesToScore")
        where = place.near("percentageOfNodesToScore")
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 100):
            yield found("percentage-invalid", where, value=value)
        elif value != 100 and (place is not document or not places):
            yield found("nodes-sampled", where, percentage="not set" if value is None else value)


def _together(extenders: Sequence[Located]) -> Iterator[Finding]:
    binders = [extender for extender in extenders if extender.text("bindVerb")]
    for extra in binders[1:]:
        yield found("two-binders", extra.near("bindVerb"), first=binders[0].text("urlPrefix"))
    for before, after in pairwise(extenders):
        if before.plain("ignorable") is True and after.plain("ignorable") is not True:
            yield found("ignorable-order", before.near("ignorable"))
    managed: set[str] = set()
    for extender in extenders:
        for resource in extender.items("managedResources"):
            name = resource.text("name")
            if name in managed:
                yield found("managed-resource-twice", resource.near("name"), name=name)
            managed.add(name)


def _ignored_resources(document: Located) -> Iterator[Finding]:
    """Lists of profiles that `ignoredByScheduler` would replace with its own."""
    managed = [r for extender in document.items("extenders") for r in extender.items("managedResources")]
    ours = {r.text("name") for r in managed if r.plain("ignoredByScheduler") is True}
    if not ours:
        return
    for profile in document.items("profiles"):
        for plugin in profile.items("pluginConfig"):
            lost = {str(name.value) for name in plugin.items("args", "ignoredResources")} - ours
            if lost:
                place = plugin.near("args", "ignoredResources")
                yield found("ignored-by-scheduler", place, resources=", ".join(sorted(lost)))
