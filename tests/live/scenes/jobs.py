"""Short jobs that end by themselves, with a queue behind them: with the extender and then with one that only answers.

Left out: pods that kubelets refuse with the echo. They leave its queue early, so that the others wait less.
"""

from tests.live.api import Json
from tests.live.binaries import Binaries
from tests.live.book import Entry
from tests.live.bounds import show_binds, show_load
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import Round, audit_of, feed
from tests.live.report import Findings
from tests.live.scenes.beside_echo import p90, shown

NODES, PODS, LIFE_SECONDS = 8, 200, 8.0
LOAD = 1.3
"""Of the cluster's CPUs: some pods always wait."""
PATIENCE_SECONDS = 300.0
STALL_SECONDS = 20.0
"""While pods wait, at most so long nothing is bound: the longest job is shorter."""
LONGER_SECONDS = 20.0
"""The wait of the slowest tenth may be longer than the echo's by this."""


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """A queue flows: something is bound soon after something has ended."""
    findings = Findings("jobs")
    with cluster(binaries, plan, say, nodes=NODES) as running:
        ours = feed_jobs(running, plan, "ours", running.extender.url, pods=PODS, load=LOAD)
        audit, binds = audit_of(running.extender, say), running.extender.binds()
        with running.extender.echo() as echo:
            theirs = feed_jobs(running, plan, "echo", echo.url, pods=PODS, load=LOAD)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {plan.pods or PODS}")
    stall, echo_stall = longest_stall(ours.entries), longest_stall(theirs.entries)
    what = "seconds without a binding while pods waited, longest: ours, echo"
    ok = bool(ours.entries) and stall <= max(STALL_SECONDS, echo_stall)
    findings.must(what, f"{stall:.1f}, {echo_stall:.1f}", f"at most {STALL_SECONDS:.0f}, or as the echo", ok=ok)
    waits, echo_waits = sorted(ours.seconds_to_bind), sorted(theirs.seconds_to_bind)
    longer = p90(waits) - p90(echo_waits)
    what = "seconds to binding, their median, p90, longest: ours; echo"
    bound = f"p90 at most {LONGER_SECONDS:.0f} longer"
    ok = bool(waits and echo_waits) and longer <= LONGER_SECONDS
    findings.must(what, f"{shown(waits)}; {shown(echo_waits)}", bound, ok=ok)
    total = theirs.tally.refused.total()
    findings.must("refused after binding with the echo", theirs.refused, "at least 1", ok=total > 0)
    show_load(findings, ours, audit)
    show_binds(findings, binds, ours)
    return findings


def longest_stall(entries: list[Entry]) -> float:
    """Seconds between two bindings, or from a creation to the first, while a pod waited that was bound at last."""
    bound = sorted((each.bound_at, each.created_at) for each in entries if each.bound_at is not None)
    longest, last = 0.0, 0.0
    for index, (at, _) in enumerate(bound):
        waited_since = min(created for _, created in bound[index:])
        longest = max(longest, at - max(last, waited_since))
        last = at
    return longest


def feed_jobs(running: Cluster, plan: Plan, name: str, url: str, *, pods: int, load: float) -> Round:
    """Jobs of one container; *pods* is the scene's own number. *load*: of the cluster's CPUs, with those that wait."""
    running.scheduler.configure(url)
    with running.scheduler:
        return feed(
            running,
            name,
            seed=plan.seed,
            pods=plan.pods or pods,
            life_seconds=plan.seconds or LIFE_SECONDS,
            load=load,
            patience=PATIENCE_SECONDS,
            prepare=_fit,
        )


def _fit(pods: list[Json]) -> None:
    """Every pod is a job of one container without devices, so that it fits somewhere when the others have ended."""
    for pod in pods:
        pod["spec"].pop("initContainers", None)
        pod["spec"]["containers"] = pod["spec"]["containers"][:1]
        resources = pod["spec"]["containers"][0]["resources"]
        for amounts in resources.values():
            for name in [name for name in amounts if name not in {"cpu", "memory"}]:
                del amounts[name]
