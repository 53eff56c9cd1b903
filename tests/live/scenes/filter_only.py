"""An extender without a bind verb: kube-scheduler binds by itself. Then the same pods with one that only answers.

Filter is all that is asked. The pods of earlier calls are known from the watch of pods, for which a call waits
(`barrier_seconds`, as operating.md says). Left out: what only a check at the bind can see, so that a few pods are
refused, and pods that kubelets refuse with the echo: they leave its queue early, so that the others wait less.
"""

from tests.live.binaries import Binaries
from tests.live.bounds import show_load
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import Round, audit_of, feed
from tests.live.report import Findings
from tests.live.scenes.beside_echo import p90, shown

NODES, PODS, LIFE_SECONDS = 12, 200, 12.0
BARRIER_SECONDS = 0.02
REFUSED = 0.03
"""At most this share of the pods is refused after binding."""
SHARE_OF_ECHO = 0.25
"""And at most this share of what is refused with the echo."""
LONGER_SECONDS = 20.0
"""The wait of the slowest tenth may be longer than the echo's by this."""


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """Most refusals are prevented by filter alone."""
    findings = Findings("filter-only")
    with cluster(binaries, plan, say, nodes=NODES, barrier_seconds=BARRIER_SECONDS) as running:
        ours = _feed(running, plan, "ours", running.extender.url)
        audit, binds = audit_of(running.extender, say), running.extender.binds()
        with running.extender.echo() as echo:
            theirs = _feed(running, plan, "echo", echo.url)
        findings.show("kube-apiserver", running.plane.version)
        findings.show("nodes, pods", f"{len(running.nodes.all)}, {plan.pods or PODS}")
    findings.must("bind calls", binds.total(), "0", ok=not binds)
    refused, echo_refused = ours.tally.refused.total(), theirs.tally.refused.total()
    what, bound = "refused after binding: ours; echo", f"at least 1 with the echo, at most {SHARE_OF_ECHO:.0%} of it"
    ok = 0 < echo_refused >= refused / SHARE_OF_ECHO
    findings.must(what, f"{ours.refused}; {theirs.refused}", bound, ok=ok)
    waits, echo_waits = sorted(ours.seconds_to_bind), sorted(theirs.seconds_to_bind)
    what = "seconds to binding, their median, p90, longest: ours; echo"
    ok = bool(waits and echo_waits) and p90(waits) - p90(echo_waits) <= LONGER_SECONDS
    findings.must(what, f"{shown(waits)}; {shown(echo_waits)}", f"p90 at most {LONGER_SECONDS:.0f} longer", ok=ok)
    show_load(findings, ours, audit, refused=REFUSED)
    return findings


def _feed(running: Cluster, plan: Plan, name: str, url: str) -> Round:
    running.scheduler.configure(url, bindVerb=None)
    with running.scheduler:
        life = plan.seconds or LIFE_SECONDS
        return feed(running, name, seed=plan.seed, pods=plan.pods or PODS, life_seconds=life)
