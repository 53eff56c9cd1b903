"""The API server gone for ten minutes, at one sixtieth of the time.

Patience with silence is set sixty times shorter, so ten seconds are ten minutes of it; time-outs of single calls and
pauses between tries are not. What must hold: the service answers all the time; it binds nothing and says so within
its own time; it says that it does not know any more (stale); tokens accepted before keep working; and when the
server is back everything is as it was, with nothing bound twice, and no more memory in use.
"""

import time
from dataclasses import dataclass, field
from pathlib import Path

from extender.identity import AccessScope
from extender.kube.authority import GRANTS
from tests.fakes.apiserver import FakeApiServer
from tests.faults.parts import Extender, Reporter, kubeconfig
from tests.faults.takeover import bind, knows
from tests.plain_http import HTTP
from tests.reports import args_of, pod_of, sample
from tests.security.running import READER, bearer, token_status
from tests.waiting import PATIENCE_SECONDS, until

SCALE = 60


@dataclass
class Outage:
    """What was seen. Seconds are real ones."""

    seconds: float
    answers: int = 0
    slowest_filter: float = 0.0
    refused_binds: int = 0
    slowest_bind: float = 0.0
    went_stale_after: float = 0.0
    reads_by_token: int = 0
    back_after: float = 0.0
    rss_before: int = 0
    rss_after: int = 0
    wrong: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        """The bounds that do not hold, in sentences; empty: the drill passed."""
        grown = (self.rss_after - self.rss_before) >> 20
        faults = (
            (not self.answers, "no filter call was answered"),
            (self.slowest_filter > 3.0, f"a filter call took {self.slowest_filter:.1f} s"),
            (self.slowest_bind > 4.0, f"a bind call took {self.slowest_bind:.1f} s"),
            (self.refused_binds < self.answers, "a bind call succeeded without an API server"),
            (self.reads_by_token < self.answers, "a known token was refused during the outage"),
            (not self.went_stale_after, "the nodes never went stale"),
            (self.back_after > 60.0, f"it took {self.back_after:.0f} s to recover"),
            (grown > 100, f"resident memory grew by {grown} MiB"),
        )
        return self.wrong + [text for is_so, text in faults if is_so]


def play(directory: Path, *, seconds: float = 600.0 / SCALE) -> Outage:
    """One outage."""
    cluster = [sample(f"node-{i}") for i in range(3)]
    names = [node.name for node in cluster]
    outage = Outage(seconds)
    with FakeApiServer(bookmark_seconds=60 / SCALE) as server:
        server.access.reviews["reader"] = token_status(READER)
        server.access.permissions.add((READER, *GRANTS[AccessScope.READ]))
        for name in names:
            server.nodes.create({"metadata": {"name": name}})
        extender = Extender(
            directory / "extender.log", kubeconfig=kubeconfig(directory, server.url),
            watch_silent_seconds=150 / SCALE, bind_seconds=0.5, stale_after_seconds=120 / SCALE, unknown_nodes="refuse",
        )  # fmt: skip
        with extender, Reporter(cluster, [extender.url], interval=0.1):
            until(lambda: knows(extender) == len(names), "warmth")
            until(lambda: bind_one(extender, server, names, "before") == "", "a binding")
            assert read(extender) == 200
            outage.rss_before = extender.note_memory()
            started = time.monotonic()
            pod = server.pods.create(pod_of(2, name="meanwhile"))
            server._call(server._close())
            watch(extender, pod, names, outage, started)
            server._call(server._listen())
            outage.back_after = until(lambda: knows(extender) == len(names), "the way back")
            outage.back_after += until(lambda: bind_one(extender, server, names, "after") == "", "a binding")
            outage.rss_after = extender.note_memory()
        bound = [p["metadata"]["name"] for p in server.pods.list() if p["spec"].get("nodeName")]
        if sorted(bound) not in (["after", "before"], ["after", "before", "meanwhile"]):
            outage.wrong.append(f"bound: {bound}")
    return outage


def watch(extender: Extender, pod: dict[str, object], names: list[str], outage: Outage, started: float) -> None:
    """Go on asking while nobody is there to be asked."""
    while time.monotonic() - started < outage.seconds or not (outage.went_stale_after or _is_hopeless(started)):
        began = time.monotonic()
        answer = extender.post("/scheduler/filter", args_of(pod, *names))
        outage.slowest_filter = max(outage.slowest_filter, time.monotonic() - began)
        if answer is None:
            outage.wrong.append("a filter call was not answered")
            continue
        outage.answers += 1
        began = time.monotonic()
        error = bind(extender, pod, names[0])
        outage.slowest_bind = max(outage.slowest_bind, time.monotonic() - began)
        outage.refused_binds += bool(error)
        if not error:
            outage.wrong.append(f"a binding without an API server: {error!r}")
        outage.reads_by_token += read(extender) == 200
        if not outage.went_stale_after and knows(extender) == 0:
            outage.went_stale_after = time.monotonic() - started
        time.sleep(0.2)


def _is_hopeless(started: float) -> bool:
    return time.monotonic() - started > PATIENCE_SECONDS


def bind_one(extender: Extender, server: FakeApiServer, names: list[str], name: str) -> str | None:
    pod = server.pods.get(name) or server.pods.create(pod_of(2, name=name))
    answer = extender.post("/scheduler/filter", args_of(pod, *names))
    return bind(extender, pod, answer["NodeNames"][0]) if answer and answer["NodeNames"] else None


def read(extender: Extender) -> int:
    return HTTP.get(f"{extender.url}/v1/nodes", headers=bearer("reader")).status_code
