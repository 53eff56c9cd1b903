import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from node_exporter.podresources import MAX_MESSAGE_BYTES, PodResourcesClient
from node_exporter.report import ReportedContainer, ReportedMemoryBlock
from tests.node_exporter.fake_kubelet import FakeKubelet, pod


@pytest.fixture
def kubelet(tmp_path: Path) -> Iterator[FakeKubelet]:
    fake = FakeKubelet(tmp_path / "kubelet.sock").start()
    yield fake
    fake.stop()


def test_pods_devices_and_cpus_are_read(kubelet: FakeKubelet) -> None:
    kubelet.pods = [
        pod("a", cpus=[5, 1], devices={"gpu": {"g1": [1], "g0": [0, 1]}}, memory=[("memory", 4096, [1, 0])])
    ]
    kubelet.devices = {"gpu": {"g0": [0, 1], "g1": [1], "g2": None}}
    kubelet.cpus = [1, 2, 3]

    answer, problems = PodResourcesClient(kubelet.socket).ask()

    assert problems == ()
    assert answer is not None
    assert answer.devices == {"gpu": {"g0": frozenset({0, 1}), "g1": frozenset({1}), "g2": None}}
    assert answer.allocatable_cpus == {1, 2, 3}
    assert answer.pods[0].containers == (
        ReportedContainer(
            name="c0",
            cpus=(1, 5),
            memory=(ReportedMemoryBlock(type="memory", size=4096, numa=(0, 1)),),
            devices={"gpu": ("g0", "g1")},
        ),
    )


def test_cpus_of_a_pod_as_a_whole_are_read(kubelet: FakeKubelet) -> None:
    shared = pod("a")
    shared.cpu_ids.extend([9, 8])
    kubelet.pods = [shared]

    answer, _ = PodResourcesClient(kubelet.socket).ask()

    assert answer is not None
    assert answer.pods[0].cpus == (8, 9)


def test_a_kubelet_is_reached_as_soon_as_it_listens_again(tmp_path: Path) -> None:
    """A channel that is kept waits for a second and more after it could not connect."""
    path = tmp_path / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as gone:
        gone.bind(str(path))
    client = PodResourcesClient(path)
    assert client.ask()[0] is None
    path.unlink()
    kubelet = FakeKubelet(path).start()

    answer, _ = client.ask()

    kubelet.stop()
    assert answer is not None


def test_missing_socket_is_a_problem(tmp_path: Path) -> None:
    assert PodResourcesClient(tmp_path / "kubelet.sock").ask()[1][0].reason.startswith("no socket")


@pytest.mark.parametrize(
    "name", ["RESOURCE_EXHAUSTED", "UNIMPLEMENTED", "PERMISSION_DENIED", "INTERNAL", "UNAVAILABLE"]
)
def test_a_refusal_is_a_problem_and_passes_and_its_kubelet_is_not_stopped(kubelet: FakeKubelet, name: str) -> None:
    """An older kubelet without the call refuses it as UNIMPLEMENTED."""
    client = PodResourcesClient(kubelet.socket)

    kubelet.refusal = grpc.StatusCode[name]
    assert f"{name}: as told by the test" in client.ask()[1][0].reason
    assert client.is_answering
    kubelet.refusal = None
    assert client.ask()[0] is not None


def test_slowness_is_a_problem_and_passes_and_a_slow_kubelet_is_not_a_stopped_one(kubelet: FakeKubelet) -> None:
    client, go_on = PodResourcesClient(kubelet.socket, deadline_seconds=1.5), threading.Event()

    kubelet.before_answer = go_on.wait
    for _ in range(2):
        assert "DEADLINE_EXCEEDED" in client.ask()[1][0].reason
        assert client.is_answering, "its process begins each connection at once"
    go_on.set()
    assert client.ask()[0] is not None


def test_a_process_that_takes_connections_and_is_silent_hangs_and_a_socket_without_a_process_is_of_a_stopped_kubelet(
    tmp_path: Path,
) -> None:
    client = PodResourcesClient(tmp_path / "kubelet.sock", deadline_seconds=0.5)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "kubelet.sock"))
        listening.listen()
        assert client.ask()[0] is None
        assert client.is_answering is False
    client.is_answering = None
    assert client.ask()[0] is None
    assert client.is_answering is False


def test_nothing_is_known_of_a_kubelet_at_a_path_that_is_too_long_to_connect_to(tmp_path: Path) -> None:
    client = PodResourcesClient(tmp_path / ("x" * 120), deadline_seconds=0.5)
    client.is_answering = True
    assert client.ask()[0] is None
    assert client.is_answering is None


def test_restarted_kubelet_is_reached_at_once(kubelet: FakeKubelet) -> None:
    client = PodResourcesClient(kubelet.socket)
    assert client.ask()[0] is not None

    kubelet.stop()
    assert client.ask()[0] is None
    kubelet.start()

    assert client.ask()[0] is not None


def test_socket_that_nobody_serves_and_one_that_speaks_nonsense(tmp_path: Path) -> None:
    (tmp_path / "kubelet.sock").write_text("not a socket")

    answer, problems = PodResourcesClient(tmp_path / "kubelet.sock", deadline_seconds=1).ask()

    assert answer is None
    assert problems[0].severity == "error"


def test_many_pods_and_devices_fit(kubelet: FakeKubelet) -> None:
    kubelet.pods = [pod(f"pod-{index}", cpus=[index], devices={"gpu": {f"g{index}": [0]}}) for index in range(500)]
    kubelet.devices = {"gpu": {f"g{index}": [index % 2] for index in range(1000)}}

    answer, _ = PodResourcesClient(kubelet.socket).ask()

    assert answer is not None
    assert (len(answer.pods), len(answer.devices["gpu"])) == (500, 1000)


def test_a_large_answer_is_a_problem_and_passes(kubelet: FakeKubelet) -> None:
    kubelet.pods = [pod("a", cpus=range(MAX_MESSAGE_BYTES))]
    client = PodResourcesClient(kubelet.socket)

    answer, problems = client.ask()
    kubelet.pods = []

    assert answer is None
    assert problems[0].reason.startswith("RESOURCE_EXHAUSTED")
    assert client.ask()[0] is not None
