"""Two real extenders behind one lease, over TLS: it does not matter which of them the scheduler calls."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import trustme

from extender.identity import AccessScope
from extender.kube.authority import GRANTS
from tests.fakes.apiserver import FakeApiServer
from tests.faults.parts import JSON, Extender, Reporter, kubeconfig
from tests.faults.takeover import bind, knows, leads
from tests.ports import reserve_port
from tests.reports import args_of, pod_of, sample
from tests.security.running import token_status
from tests.waiting import until

NAME = "numa-extender.numa-extender.svc"
ACCOUNT = "system:serviceaccount:numa-extender:numa-extender"
NODES = ["node-0", "node-1"]


@dataclass
class Pair:
    """Two extenders, as in the recipe `replicas` but for what brings the reports."""

    server: FakeApiServer
    extenders: list[Extender]

    def leader(self) -> Extender:
        until(lambda: any(leads(e) for e in self.extenders), "a leader")
        return next(e for e in self.extenders if leads(e))

    def standby(self) -> Extender:
        leader = self.leader()
        return next(e for e in self.extenders if e is not leader)

    def new_pod(self, name: str) -> JSON:
        return self.server.pods.create(pod_of(1, "1Gi", name=name))


@contextmanager
def pair(directory: Path, **changes: Any) -> Iterator[Pair]:
    """Both are warm, and one of them leads unless *changes* prevent it."""
    authority = trustme.CA()
    certificate = authority.issue_cert(NAME)
    authority.cert_pem.write_to_path(directory / "ca.crt")
    certificate.private_key_pem.write_to_path(directory / "tls.key")
    (directory / "tls.crt").write_bytes(b"".join(pem.bytes() for pem in certificate.cert_chain_pems))
    (directory / "token").write_text("a-standby\n")
    with ExitStack() as stack:
        server = stack.enter_context(FakeApiServer())
        server.access.reviews["a-standby"] = token_status(ACCOUNT)
        server.access.permissions.add((ACCOUNT, *GRANTS[AccessScope.SCHEDULE]))
        for name in NODES:
            server.nodes.create({"metadata": {"name": name}, "status": {"nodeInfo": {"kubeletVersion": "v1.36.2"}}})
        config = kubeconfig(directory, server.url)
        extenders = []
        for index in range(2):
            port = reserve_port()
            settings = {
                "kubeconfig": config, "lease": "on", "lease_seconds": 3, "unknown_nodes": "refuse",
                "tls_cert_file": directory / "tls.crt", "tls_key_file": directory / "tls.key",
                "tls_host": "127.0.0.1", "tls_port": port, "own_url": f"https://127.0.0.1:{port}",
                "leader_ca_file": directory / "ca.crt", "leader_server_name": NAME,
                "leader_token_file": directory / "token", **changes,
            }  # fmt: skip
            extenders.append(stack.enter_context(Extender(directory / f"extender-{index}.log", **settings)))
        stack.enter_context(Reporter([sample(name) for name in NODES], [e.url for e in extenders]))
        until(lambda: all(knows(e) == len(NODES) for e in extenders), "warmth")
        yield Pair(server, extenders)


def test_every_bind_is_answered_by_the_leader_whichever_extender_is_called(tmp_path: Path) -> None:
    with pair(tmp_path) as both:
        leader, standby = both.leader(), both.standby()
        assert standby.is_ready()
        for index in range(12):
            pod = both.new_pod(f"p{index}")
            asked, binder = (standby, leader) if index % 2 else (leader, standby)
            answer = asked.post("/scheduler/filter", args_of(pod, *NODES))
            assert answer["NodeNames"], answer
            until(lambda: bind(binder, pod, answer["NodeNames"][0]) == "", "a binding")  # noqa: B023
        assert leader.metric('numa_extender_binds_total{outcome="bound"}') == 12.0
        assert all(pod["spec"].get("nodeName") for pod in both.server.pods.list())

        pod = both.new_pod("last")  # and without its leader
        leader.kill()
        assert standby.post("/scheduler/filter", args_of(pod, *NODES))["NodeNames"]
        error = str(bind(standby, pod, "node-0"))
        assert error == "" or "stands by" in error, "on a slow machine this replica may lead already"
        until(lambda: any(bind(standby, pod, node) == "" for node in NODES), "the binding")


def test_a_call_is_passed_on_once_also_when_nobody_leads(tmp_path: Path) -> None:
    """The lease says that each of them should call the other: somebody else holds it."""
    with pair(tmp_path, lease_seconds=60, lease_name="held") as both:
        first, second = both.extenders
        until(lambda: leads(first) or leads(second), "a leader")
        leader, standby = (first, second) if leads(first) else (second, first)
        url = f"https://127.0.0.1:{standby.environment['NUMA_EXTENDER_TLS_PORT']}"
        spec = {"holderIdentity": "somebody-else", "leaseDurationSeconds": 600}
        annotations = {"numa-extender/leader-url": url}
        both.server.leases.patch("held", {"spec": spec, "metadata": {"annotations": annotations}}, "numa-extender")
        until(lambda: not leads(leader), "no replica leads")
        pod = both.new_pod("p")
        for extender in (leader, standby):
            assert extender.post("/scheduler/filter", args_of(pod, *NODES))["NodeNames"] == NODES
            assert "stands by" in str(bind(extender, pod, "node-0"))  # who leads, each learns at its next look
