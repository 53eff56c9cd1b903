"""Whether any kubelet admits the pods that were not placed: each is bound to its candidates, when nothing else runs.

Near capacity some pods fit on no machine of the cluster, and the extender must refuse them. What counts against it is a
pod that a kubelet admits.
"""

from collections.abc import Callable

from tests.drill.workload import requested
from tests.live.api import Json
from tests.live.book import FINISHED, Book, Entry
from tests.live.cluster import Cluster
from tests.live.load import Round
from tests.live.processes import SceneError
from tests.live.workload import create, delete

MOST = 10
"""Pods that are tried. There are more of them with a mutant only; the others count as admitted."""
PATIENCE_SECONDS = 120.0


def try_alone(running: Cluster, found: Round) -> None:
    """Set `found.alone`. The pods of the load have ended."""
    with Book(running.plane.url, running.plane.admin_context) as book:
        for pod in list(found.fed.late.values())[:MOST]:
            found.alone[pod["metadata"]["name"]] = _reasons(running, book, pod)


def _reasons(running: Cluster, book: Book, pod: Json) -> dict[str, str]:
    """Why the kubelet of each node that is large enough refuses the pod; "" if it admits it.

    A kubelet ignores extended resources that its node does not have (`predicate.go`: removeMissingExtendedResources),
    so nodes without them are left out, as kube-scheduler does.
    """
    api, name, wanted = running.plane.api, pod["metadata"]["name"], requested(pod).items()
    uids = {}
    for node in running.nodes.all:
        if any(amount > node.allocatable.get(resource, 0) for resource, amount in wanted):
            continue
        metadata, spec = {"name": f"alone-{name}-{node.name}"}, {**pod["spec"], "nodeName": node.name}
        uids[node.name] = create(api, {**pod, "metadata": metadata, "spec": spec})["metadata"]["uid"]

    def wait(what: str, condition: Callable[[Entry], bool]) -> list[Entry]:
        def found() -> list[Entry]:
            return [entry for uid in uids.values() if (entry := book.entry(uid)) is not None and condition(entry)]

        if not book.wait(lambda: len(found()) == len(uids), PATIENCE_SECONDS):
            raise SceneError(f"{name}: a kubelet does not {what} it within {PATIENCE_SECONDS:.0f} s")
        return found()

    known = wait("admit or refuse", lambda entry: entry.running or entry.phase in FINISHED)
    reasons = {entry.pod["spec"]["nodeName"]: "" if entry.running else _reason(entry) for entry in known}
    for entry in known:
        delete(api, entry.name)
    wait("end", lambda entry: entry.deleted)
    return reasons


def _reason(entry: Entry) -> str:
    return str(entry.pod["status"].get("reason", "")) if entry.phase == "Failed" else ""
