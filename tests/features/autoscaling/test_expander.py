"""The gRPC expander, over a socket with TLS: which of the pools that Cluster Autoscaler offers are left out."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
import trustme
from pydantic import ValidationError
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.features.autoscaling import expander
from extender.features.autoscaling.feature import AutoscalingFeature
from extender.features.autoscaling.templates import TemplateNodes
from tests.fakes.apiserver import FakeApiServer
from tests.features.autoscaling.scale_up_world import FULL, POOL, SMALL, ScaleUpWorld
from tests.ports import reserve_port
from tests.reports import sample
from tests.waiting import until
from tests.world.clock import Clock

pb = pytest.importorskip(
    "extender.features.autoscaling._expander.expander_pb2", reason="`python hatch_build.py` makes the messages"
)
METHOD = f"/{expander.SERVICE}/BestOptions"


class ExpanderWorld:
    """Two pools: an empty node of `big` has 15 CPUs on each NUMA node, one of `small` 4."""

    def __init__(self, tmp_path: Path) -> None:
        self.authority = trustme.CA()
        self.files = tmp_path / "cert.pem", tmp_path / "key.pem"
        self.rotate()
        self.port = reserve_port()
        self.settings = Settings(
            autoscaling="on",
            autoscaling_expander_port=self.port,
            tls_host="127.0.0.1",
            tls_cert_file=self.files[0],
            tls_key_file=self.files[1],
        )

    def rotate(self) -> None:
        issued = self.authority.issue_cert("127.0.0.1", "localhost")
        issued.cert_chain_pems[0].write_to_path(self.files[0])
        issued.private_key_pem.write_to_path(self.files[1])

    def ask(self, options: list[Any], nodes: dict[str, dict[str, str]], trusted: bytes | None = None) -> list[str]:
        """The options that are left, in a call as Cluster Autoscaler makes it."""
        roots = self.authority.cert_pem.bytes() if trusted is None else trusted
        found = {name: pb.Node(metadata=pb.ObjectMeta(labels=labels)) for name, labels in nodes.items()}
        request = pb.BestOptionsRequest(
            options=options, nodeBytesMap={name: node.SerializeToString() for name, node in found.items()}
        )
        with grpc.secure_channel(f"localhost:{self.port}", grpc.ssl_channel_credentials(roots)) as channel:
            call = channel.unary_unary(
                METHOD, request_serializer=type(request).SerializeToString,
                response_deserializer=pb.BestOptionsResponse.FromString,
            )  # fmt: skip
            reply = call(request, timeout=5, wait_for_ready=trusted is None)
        return [each.nodeGroupId for each in reply.options]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ExpanderWorld]:
    made = ExpanderWorld(tmp_path)
    with serving(made):
        yield made


@contextmanager
def serving(made: ExpanderWorld) -> Iterator[None]:
    service = make_service(made.settings, Clock())
    with FakeApiServer() as server, TestClient(make_app(service), client=("127.0.0.1", 1)) as client:
        nodes = ScaleUpWorld(server, client, service, service.clock)  # type: ignore[arg-type]
        nodes.node(sample("old-a", workloads=FULL), "big")
        nodes.node(sample("old-s", hardware=SMALL), "small")
        (feature,) = [each for each in service.features if isinstance(each, AutoscalingFeature)]
        templates = TemplateNodes(service, feature.pools)
        assert client.portal is not None
        task = client.portal.start_task_soon(expander.Expander(service, feature.pools, templates).serve)
        yield
        assert not task.done() or task.result()
        task.cancel()
        nodes.kube.close()


def option(group: str, *cpus: int, **more: Any) -> Any:  # noqa: ANN401 - fields of a message
    pods = []
    for number, amount in enumerate(cpus):
        quantities = {"cpu": pb.Quantity(string=str(amount)), "memory": pb.Quantity(string="1Gi")}
        resources = pb.ResourceRequirements(limits=quantities, requests=quantities)
        about = pb.ObjectMeta(name=f"p{number}", namespace="team", uid=f"u{number}")
        spec = pb.PodSpec(containers=[pb.Container(name="c", resources=resources)], **more)
        pods.append(pb.Pod(metadata=about, spec=spec).SerializeToString())
    return pb.Option(nodeGroupId=group, nodeCount=1, debug="d", podBytes=pods)


NODES = {"group-big": {POOL: "big"}, "group-small": {POOL: "small"}, "group-unknown": {POOL: "new"}}


@pytest.mark.parametrize(
    ("cpus", "left"),
    [
        ((6,), ["group-big", "group-unknown"]),
        ((3,), ["group-big", "group-small", "group-unknown"]),
        ((20,), ["group-unknown"]),
        ((20, 6), ["group-big", "group-unknown"]),
        ((), ["group-big", "group-small", "group-unknown"]),
    ],
)
def test_pools_whose_empty_node_admits_none_of_the_pods_are_left_out(
    world: ExpanderWorld, cpus: tuple[int, ...], left: list[str]
) -> None:
    assert world.ask([option(group, *cpus) for group in NODES], NODES) == left


def test_init_containers_and_pods_that_cannot_be_read(world: ExpanderWorld) -> None:
    quantities = {"cpu": pb.Quantity(string="20"), "memory": pb.Quantity(string="1Gi")}
    resources = pb.ResourceRequirements(limits=quantities, requests=quantities)
    wide = [pb.Container(name="i", resources=resources)]
    unread = pb.Option(nodeGroupId="group-small", podBytes=[b"\xff\xff"])
    odd = pb.ResourceRequirements(limits={"cpu": pb.Quantity(string="many")})
    strange = pb.Pod(spec=pb.PodSpec(containers=[pb.Container(name="c", resources=odd)]))

    assert world.ask([option("group-big", 6, initContainers=wide)], NODES) == []
    assert world.ask([unread], NODES) == ["group-small"]
    assert world.ask([pb.Option(nodeGroupId="group-small", podBytes=[strange.SerializeToString()])], NODES) == [
        "group-small"
    ]
    assert world.ask([option("group-small", 6)], {}) == ["group-small"], "the call has no node for it"


def test_an_option_with_many_kinds_of_pods_passes(world: ExpanderWorld) -> None:
    kinds = range(20, 21 + expander.MAX_SHAPES)
    assert world.ask([option("group-big", *kinds)], NODES) == ["group-big"]
    assert world.ask([option("group-big", *kinds[:-1])], NODES) == []
    assert world.ask([option("group-big", *[20] * 1000)], NODES) == [], "pods that are alike are judged once"


def test_what_a_caller_that_sends_too_much_costs_is_limited(world: ExpanderWorld) -> None:
    too_wide = option("group-big", 20)
    many = pb.Option(nodeGroupId="group-big", podBytes=list(too_wide.podBytes) * expander.MAX_PODS)
    assert world.ask([many], NODES) == []
    many.podBytes.append(too_wide.podBytes[0])
    assert world.ask([many], NODES) == ["group-big"]
    assert len(world.ask([too_wide] * (expander.MAX_OPTIONS + 1), NODES)) == expander.MAX_OPTIONS + 1


def test_all_options_pass_if_the_answer_takes_too_long(world: ExpanderWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expander, "ANSWER_SECONDS", 0.0)
    assert world.ask([option("group-small", 6)], NODES) == ["group-small"]


def test_only_a_caller_that_knows_the_authority_connects_and_a_new_certificate_is_read(world: ExpanderWorld) -> None:
    with pytest.raises(grpc.RpcError):
        world.ask([option("group-small", 6)], NODES, trusted=trustme.CA().cert_pem.bytes())
    world.authority = trustme.CA()
    world.rotate()

    def answers() -> bool:
        try:
            return world.ask([option("group-small", 6)], NODES, trusted=world.authority.cert_pem.bytes()) == []
        except grpc.RpcError:
            return False

    until(answers)


def test_the_port_needs_a_certificate() -> None:
    with pytest.raises(ValidationError, match="autoscaling_expander_port is set, and needs tls_cert_file"):
        Settings(autoscaling="on", autoscaling_expander_port=9000)
