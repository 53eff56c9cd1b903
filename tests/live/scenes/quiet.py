"""A cluster on which nothing happens: every node stays known exactly.

Left out: the answers to questions, and states that last less than the two seconds between two looks.
"""

import threading
import time
from collections import Counter

from tests.live.binaries import Binaries
from tests.live.book import Book
from tests.live.cluster import Cluster, Plan, Say, cluster
from tests.live.load import audit_of, counted, show_audit
from tests.live.report import Findings
from tests.live.workload import create, simple_pod

NODES, SECONDS = 6, 240.0
"""Longer than `WATCH_SILENT_SECONDS` (150) after a start."""
EVERY_SECONDS = 2.0


def play(binaries: Binaries, plan: Plan, say: Say) -> Findings:
    """A pod is scheduled before the quiet, and one after it."""
    findings = Findings("quiet")
    seconds = plan.seconds or SECONDS
    with cluster(binaries, plan, say, nodes=NODES) as running:
        running.scheduler.configure(running.extender.url)
        with running.scheduler:
            before = _place(running, "before")
            seen = _watch(running, seconds)
            placed = _place(running, "after")
        audit, tally = audit_of(running.extender, say), running.nodes.tally
        count = len(running.nodes.all)
        findings.show("kube-apiserver", running.plane.version)
    findings.show("nodes, seconds of quiet", f"{count}, {seconds:.0f}")
    findings.must("looks", seen["looks"], "at least 1", ok=seen["looks"] > 0)
    findings.must("pod before the quiet", before, "Running", ok=before == "Running")
    findings.must("looks at which a node was not exact", seen["bad"], "0", ok=not seen["bad"])
    findings.must("looks without an answer", seen["silent"], "0", ok=not seen["silent"])
    findings.must("pod after the quiet", placed, "Running", ok=placed == "Running")
    findings.must("admitted", tally.admitted, "2", ok=tally.admitted == 2)
    findings.must("refused after binding", counted(tally.refused), "0", ok=not tally.refused)
    show_audit(findings, audit, 2)
    return findings


def _watch(running: Cluster, seconds: float) -> Counter[str]:
    seen: Counter[str] = Counter(looks=0, bad=0, silent=0)
    count, started, last = len(running.nodes.all), time.monotonic(), ""
    pause = threading.Event()
    while time.monotonic() - started < seconds:
        samples = running.extender.metrics()
        nodes = {name: value for name, value in samples.items() if name.startswith("numa_extender_nodes{") and value}
        seen["looks"] += 1
        seen["silent"] += not samples
        seen["bad"] += bool(samples) and nodes.get('numa_extender_nodes{certainty="exact"}') != count
        if (shown := str(nodes)) != last:
            running.say(f"after {time.monotonic() - started:.0f} s of quiet: {shown}")
            last = shown
        pause.wait(EVERY_SECONDS)
    return seen


def _place(running: Cluster, name: str) -> str:
    """Create a pod and wait until it runs; its phase."""
    with Book(running.plane.url, running.plane.admin_context) as book:
        uid = create(running.plane.api, simple_pod(name, 2))["metadata"]["uid"]
        book.wait(lambda: (entry := book.entry(uid)) and entry.phase == "Running", 60)
        entry = book.entry(uid)
        return entry.phase if entry else "not seen"
