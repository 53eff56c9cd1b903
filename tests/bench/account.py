"""The CPU time of each step of a pod's way through the service, in one process and without sockets.

    python -m tests.bench.account [--nodes 300] [--pods 1000] [--strategy least-allocated]

Bytes of requests go into the protocol of the server, and replies into a list; the binding is answered at once. A pod is
filtered over all nodes, prioritized and bound; the watch shows its binding, and its node reports. Pods end when half of
the room is used. Not in it: calls of the system, other threads, and the connection with the API server.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import click
import orjson
import uvicorn
import uvloop

from extender.app import make_app, make_service, set_up_collector
from extender.cluster.events import Watching
from extender.config.settings import Settings
from extender.identity import EVERYTHING
from extender.kube.changes import Batch, Change, Mirror
from extender.kube.objects import LineReader, parse_events
from extender.kube.pods import PODS
from extender.kube.source import ObjectReader
from extender.runtime.connection import ApiConnection
from extender.scheduling.binder import Binding, GatedBinder, PodBound, Unelected
from extender.transport.places import ConnectionSlots, Place
from extender.transport.protocol import BoundedProtocol
from tests.drill import machines
from tests.live.fake_nodes import SHAPE
from tests.reports import args_of
from tests.world.kubelet import Kubelet
from tests.world.scheduler import binding_of

Json = dict[str, Any]
WARM_UP_PODS = 50
HEAD = b"%b HTTP/1.1\r\nHost: 127.0.0.1:9600\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: %d\r\n%b\r\n\r\n"
FIELDS = b"Content-Type: application/json\r\nAccept-Encoding: gzip"


class Wire(asyncio.Transport):
    """The other end of a connection on loopback."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.replies: list[bytes] = []

    def write(self, data: Any) -> None:  # noqa: ANN401
        """Keep the reply."""
        self.replies.append(bytes(data))

    def is_closing(self) -> bool:
        """It stays open."""
        return False

    def get_write_buffer_size(self) -> int:
        """All is read at once."""
        return 0

    def pause_reading(self) -> None:
        """Nothing waits."""

    def resume_reading(self) -> None:
        """Nothing waits."""


class BoundAtOnce:
    """Every pod is bound."""

    async def bind(self, _binding: Binding) -> PodBound:
        """It is."""
        return PodBound()


class Account:
    """The service, and the CPU time of each step so far, in microseconds."""

    def __init__(self, nodes: int, strategy: str) -> None:
        clock = time.monotonic
        more: Json = {"strategy": strategy} if strategy else {}
        settings = Settings(loopback_scopes=EVERYTHING, topologies="off", **more)
        self.service = make_service(settings, clock)
        app = make_app(self.service)
        self.feed = ApiConnection(self.service, None, None, lambda: True)  # type: ignore[arg-type]
        self.reader = ObjectReader(PODS, SimpleNamespace(), clock)  # type: ignore[arg-type]
        self.mirror: Mirror[Any] = Mirror()
        self.feed.feed.pods_complete = self.feed.feed.nodes_complete = True
        self.service.known.nodes.set_watching(Watching.LIVE, clock())
        self.service.known.link.binder = GatedBinder(BoundAtOnce(), Unelected(), seconds=5)
        self.service.known.link.trouble = ""
        place = Place("127.0.0.1", 0.0, lambda _reason: None)
        config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False, proxy_headers=False)
        config.load()
        state = uvicorn.server.ServerState()
        self.protocol = BoundedProtocol(
            settings, self.service.metrics, ConnectionSlots(8), place, app.state.short_way.begin,
            config=config, server_state=state, app_state={},
        )  # fmt: skip
        self.wire = Wire()
        self.protocol.connection_made(self.wire)
        scenario = machines.scenario(SHAPE)
        self.kubelets = {
            name: Kubelet({**scenario, "node_name": name, "boot_id": "boot"})
            for name in (f"fake-{number:04}" for number in range(nodes))
        }
        self.steps: dict[str, list[float]] = {}
        self.refused = 0
        """Bind calls that did not bind."""

    async def call(self, step: str, target: bytes, body: bytes) -> bytes:
        """One request; the body of its reply."""
        request = HEAD % (target, len(body), FIELDS) + body
        self.wire.replies.clear()
        started = time.process_time()
        self.protocol.data_received(request)
        while not self.wire.replies:  # noqa: ASYNC110 - the call is all that runs
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.note(step, started)
        head, _, reply = b"".join(self.wire.replies).partition(b"\r\n\r\n")
        assert b" 200 " in head[:20], head + reply
        return reply

    def note(self, step: str, started: float) -> None:
        """Count a step that has begun then."""
        self.steps.setdefault(step, []).append((time.process_time() - started) * 1e6)

    def shown(self, kind: str, pod: Json) -> None:
        """The watch of pods shows a change."""
        line = orjson.dumps({"type": kind, "object": pod}) + b"\n"
        started = time.process_time()
        changes: list[Change[Any]] = []
        for event in parse_events(LineReader().feed(line)):
            head, entry = self.reader.read(event.object, self.mirror.values)
            change = self.mirror.remove(self.reader.gone(head)) if kind == "DELETED" else self.mirror.upsert(*entry)  # type: ignore[misc]
            changes += [] if change is None else [change]
        self.note(f"watch {kind}: reading", started)
        started = time.process_time()
        self.feed._take_pods(Batch(tuple(changes)))
        self.reader.checked.clear()
        self.note(f"watch {kind}: applying", started)

    async def report(self, name: str, step: str) -> None:
        """The node's exporter reports."""
        body = orjson.dumps(self.kubelets[name].report())
        await self.call(step, b"PUT /v1/nodes/%b/report" % name.encode(), body)


async def play(account: Account, pods: int, make: Callable[[int], Json], late: int) -> None:
    """All pods, one after the other. *late*: the report of a pod's node comes after so many further pods."""
    names, dice, running = list(account.kubelets), Random(1), list[tuple[str, Json]]()
    for name in names:
        await account.report(name, "first report")
    for number in range(WARM_UP_PODS + pods):
        if number == WARM_UP_PODS:
            account.steps.clear()
        pod = make(number)
        dice.shuffle(names)
        reply = await account.call("filter", b"POST /scheduler/filter", orjson.dumps(args_of(pod, *names)))
        feasible = orjson.loads(reply)["NodeNames"]
        assert feasible, reply[:500]
        reply = await account.call("prioritize", b"POST /scheduler/prioritize", orjson.dumps(args_of(pod, *feasible)))
        scores = orjson.loads(reply)
        best = max(each["Score"] for each in scores)
        node = dice.choice([each["Host"] for each in scores if each["Score"] == best])
        reply = await account.call("bind", b"POST /scheduler/bind", orjson.dumps(binding_of(pod, node)))
        if orjson.loads(reply)["Error"]:
            account.refused += 1
            continue
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}}
        account.shown("ADDED", bound)
        assert account.kubelets[node].admit(bound)["admit"]
        running.append((node, bound))
        if number >= late:
            await account.report(running[-1 - late][0], "report")
        if len(running) > 2 * len(names):
            node, ended = running.pop(dice.randrange(len(running)))
            account.kubelets[node].end(ended["metadata"]["uid"])
            account.shown("DELETED", ended)
            await account.report(node, "report after an end")


def pod_with(number: int, *, shapes: int) -> Json:
    """A pod as kube-scheduler sends it, with what the API server adds. *shapes*: how many there are."""
    amounts = {"cpu": str(2 * (1 + number % shapes % 3)), "memory": f"{1 + number % shapes % 8}Gi"}
    name, uid = f"pod-{number}", f"{number:08}-0000-4000-8000-000000000000"
    fields = {"f:metadata": {"f:labels": {"f:app": {}}}, "f:spec": {"f:containers": {'k:{"name":"c0"}': {".": {}}}}}
    container = {
        "name": "c0", "image": "i", "resources": {"requests": amounts, "limits": amounts},
        "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        "imagePullPolicy": "Always",
    }  # fmt: skip
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {
            "name": name, "namespace": "default", "uid": uid, "resourceVersion": str(number + 1000), "generation": 1,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "managedFields": [{"manager": "python", "operation": "Update", "apiVersion": "v1", "fieldsV1": fields}],
        },
        "spec": {
            "containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
            "dnsPolicy": "ClusterFirst", "serviceAccountName": "default", "serviceAccount": "default",
            "automountServiceAccountToken": False, "securityContext": {}, "schedulerName": "default-scheduler",
            "tolerations": [
                {"key": f"node.kubernetes.io/{taint}", "operator": "Exists", "effect": "NoExecute",
                 "tolerationSeconds": 300} for taint in ("not-ready", "unreachable")
            ],
            "priority": 0, "enableServiceLinks": True, "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {"phase": "Pending", "qosClass": "Guaranteed"},
    }  # fmt: skip


def table(steps: dict[str, list[float]], pods: int) -> list[tuple[str, float, float, float]]:
    """Each step: its name, how often a pod has it, the mean and the lowest tenth in microseconds."""
    rows = []
    for step, micros in steps.items():
        ordered: Sequence[float] = sorted(micros)
        rows.append((step, len(micros) / pods, statistics.mean(ordered), ordered[len(ordered) // 10]))
    return rows


@click.command()
@click.option("--nodes", default=300, show_default=True)
@click.option("--pods", default=1000, show_default=True)
@click.option("--shapes", default=1, show_default=True, help="24 as the pods of many shapes in `throughput`.")
@click.option("--strategy", default="")
@click.option("--late", default=0, show_default=True, help="A node reports after so many further pods.")
def main(nodes: int, pods: int, shapes: int, strategy: str, late: int) -> None:
    """Measure and print."""
    set_up_collector()

    async def run() -> Account:
        account = Account(nodes, strategy)
        await play(account, pods, lambda number: pod_with(number, shapes=shapes), late)
        return account

    account = uvloop.run(run())
    total = 0.0
    for step, often, mean, low in table(account.steps, pods):
        total += often * mean
        print(f"{step:28} {often:5.2f} x {mean:8.0f} us, lowest tenth {low:8.0f} us")
    print(f"{'sum of means':28}         {total:8.0f} us; {account.refused} bind calls refused")


if __name__ == "__main__":
    main()
