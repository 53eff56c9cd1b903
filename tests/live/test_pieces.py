"""What needs no Kubernetes programs: that the scenes are skipped without them, and the kubelets that the scenes use."""

import json
import ssl
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.drill import machines
from tests.fakes.apiserver import FakeApiServer
from tests.live import binaries
from tests.live.__main__ import main
from tests.live.api import Api, AsyncApi, Json, collection
from tests.live.book import Entry
from tests.live.front import Files, Front
from tests.live.identity import Identities
from tests.live.kubelet import LiveKubelet
from tests.live.node import Loop
from tests.live.processes import Program, SceneError
from tests.live.scenes import SCENES
from tests.live.scheduling import scheduler_configuration
from tests.live.tally import Lags, Tally
from tests.live.workload import Feeder, simple_pod

QUICK = Lags(sync=(0, 0), start=(0, 0), stop=(0, 0), teardown=(0, 0), publish=(0, 0), plugins=(0, 0))
NODE = "node-00"
"""Two NUMA nodes with 6 and 8 CPUs to give away, policy single-numa-node."""


def test_without_the_programs_every_scene_is_skipped(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, [], env={"PATH": str(tmp_path), "KUBEBUILDER_ASSETS": ""})
    assert done.exit_code == 0
    assert "skipped: etcd, kube-apiserver, kube-scheduler not found on PATH" in " ".join(done.output.split())


def test_programs_are_found_in_the_assets_first_and_then_on_path(tmp_path: Path) -> None:
    for directory, names in (("assets", ("etcd",)), ("path", binaries.NAMES)):
        for name in names:
            program = tmp_path / directory / name
            program.parent.mkdir(exist_ok=True)
            program.write_text("#!/bin/sh\n")
            program.chmod(0o755)
    environ = {"KUBEBUILDER_ASSETS": str(tmp_path / "assets"), "PATH": str(tmp_path / "path")}
    found = binaries.find(environ)
    assert found.etcd == tmp_path / "assets/etcd"
    assert found.kube_scheduler == tmp_path / "path/kube-scheduler"
    with pytest.raises(binaries.MissingError, match=r"kube-apiserver, kube-scheduler not found in KUBEBUILDER_ASSETS"):
        binaries.find({**environ, "PATH": ""})


def test_a_program_that_ends_by_itself_ends_the_scene(tmp_path: Path) -> None:
    program = Program("part", ["sh", "-c", "echo no; sleep 0.2; exit 1"], tmp_path / "part.log")
    with program:
        program.check()
        eventually(lambda: not program.is_running)
        with pytest.raises(SceneError, match="part ended by itself:\nno"):
            program.check()
    program.check()


def test_every_scene_is_named_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "tests/live/README.md").read_text()
    assert [name for name in SCENES if f"`{name}`" not in page] == []


def test_scheduler_runs_with_what_the_readme_shows(tmp_path: Path) -> None:
    configuration = scheduler_configuration(tmp_path / "kubeconfig", "http://127.0.0.1:1234")
    (extender,) = configuration["extenders"]
    assert extender["urlPrefix"] == "http://127.0.0.1:1234/scheduler"
    assert extender["bindVerb"] == "bind"
    assert configuration["percentageOfNodesToScore"] == 100
    assert "extenders" not in scheduler_configuration(tmp_path / "kubeconfig", None)


@pytest.mark.parametrize(
    ("version", "kind", "namespace", "path"),
    [
        ("v1", "Pod", "a", "/api/v1/namespaces/a/pods"),
        ("v1", "Node", None, "/api/v1/nodes"),
        ("networking.k8s.io/v1", "NetworkPolicy", "a", "/apis/networking.k8s.io/v1/namespaces/a/networkpolicies"),
        ("scheduling.k8s.io/v1", "PriorityClass", None, "/apis/scheduling.k8s.io/v1/priorityclasses"),
        ("resource.k8s.io/v1", "DeviceClass", None, "/apis/resource.k8s.io/v1/deviceclasses"),
    ],
)
def test_objects_are_kept_at_their_path(version: str, kind: str, namespace: str | None, path: str) -> None:
    metadata = {"name": "n", **({"namespace": namespace} if namespace else {})}
    assert collection({"apiVersion": version, "kind": kind, "metadata": metadata}) == path


class Stage:
    """One kubelet on a fake API server."""

    def __init__(self, server: FakeApiServer, loop: Loop, kubelet: LiveKubelet, root: Path, tally: Tally) -> None:
        self.server, self.loop, self.kubelet, self.root, self.tally = server, loop, kubelet, root, tally

    def bind(self, name: str, cpu: int, **metadata: str) -> None:
        pod = simple_pod(name, cpu)
        pod["metadata"] |= {"namespace": "default", **metadata}
        self.server.pods.create(pod)
        self.server.pods.bind(name, NODE)

    def phase(self, name: str) -> str:
        pod: Json = self.server.pods.get(name) or {"status": {}}
        found: str = pod["status"].get("phase", "")
        return found

    def held(self) -> dict[str, str]:
        """CPUs of each pod's container in the checkpoint on disk, by pod UID."""
        document = json.loads((self.root / "var/lib/kubelet/cpu_manager_state").read_text())
        return {uid: containers["c0"] for uid, containers in (document.get("entries") or {}).items()}


@pytest.fixture
def stage() -> Iterator[Stage]:
    with (
        tempfile.TemporaryDirectory(prefix="k") as directory,
        playing(Path(directory)) as found,
    ):  # short: it has a socket
        yield found


@contextmanager
def playing(directory: Path) -> Iterator[Stage]:
    identities, scenario, tally = Identities(directory / "identity"), machines.scenario(0), Tally()
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    serving.load_cert_chain(*identities.server("kubelet"))
    with FakeApiServer() as server, Loop() as loop:
        context = identities.context()
        reviewer = Api(server.url, context)
        files = Files(directory / "root", scenario, "boot")
        front = Front(directory / "root", scenario, serving, reviewer, NODE)
        api = AsyncApi(server.url, context)
        kubelet = LiveKubelet(NODE, scenario, api, files, front, tally, seed=1, lags=QUICK)
        loop.run(kubelet.start(machines.allocatable(scenario)))
        try:
            yield Stage(server, loop, kubelet, directory / "root", tally)
        finally:
            loop.run(kubelet.close())
            front.close()
            reviewer.close()


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def test_kubelet_admits_runs_and_ends_a_pod(stage: Stage) -> None:
    stage.bind("a", 2)
    eventually(lambda: stage.phase("a") == "Running")
    assert list(stage.held().values()) == ["1,9"]
    assert [pod.name for pod in stage.kubelet.front.podresources.pods] == ["a"]
    stage.server.pods.delete("a", grace_seconds=5)
    eventually(lambda: stage.server.pods.get("a") is None)
    stage.bind("b", 2)
    eventually(lambda: stage.phase("b") == "Running")
    assert list(stage.held().values()) == ["1,9"]
    assert stage.tally.admitted == 2


def test_kubelet_refuses_what_it_cannot_align(stage: Stage) -> None:
    stage.bind("a", 6)
    eventually(lambda: stage.phase("a") == "Running")
    stage.bind("b", 7)
    stage.bind("c", 7)
    eventually(lambda: stage.phase("b") == "Running" and stage.phase("c") == "Failed")
    assert stage.tally.refused == {"TopologyAffinityError": 1}


def test_what_is_stale_at_a_restart_is_still_held_while_the_first_list_is_admitted(stage: Stage) -> None:
    stage.bind("a", 6)
    stage.bind("b", 8)
    eventually(lambda: stage.phase("a") == stage.phase("b") == "Running")
    restart = stage.loop.submit(stage.kubelet.restart(0.3))
    eventually(lambda: not stage.kubelet.is_watching)
    stage.server.pods.delete("a")
    stage.bind("new", 6)
    restart.result(20)
    eventually(lambda: stage.phase("new") == "Failed")
    stage.bind("later", 6)
    eventually(lambda: stage.phase("later") == "Running")
    assert stage.phase("b") == "Running"
    assert not stage.tally.refused_again
    refused = stage.server.pods.get("new")
    assert refused is not None
    assert list(stage.tally.refused_first) == [refused["metadata"]["uid"]]


def test_pods_are_followed_through_the_end_of_a_watch(stage: Stage) -> None:
    stage.bind("a", 2)
    eventually(lambda: stage.phase("a") == "Running")
    stage.server.expire_streams()
    stage.server.pods.delete("a")
    stage.bind("b", 2)
    eventually(lambda: stage.phase("b") == "Running")
    eventually(lambda: len(stage.held()) == 1)


def test_of_the_pods_of_a_list_the_older_ones_are_admitted_first(stage: Stage) -> None:
    is_held_up, bound = threading.Event(), threading.Event()

    async def late() -> None:
        is_held_up.set()
        assert bound.wait(60)

    stage.loop.submit(late())
    assert is_held_up.wait(20)
    stage.server.expire_streams()
    stage.bind("z", 2, creationTimestamp="2026-11-01T00:00:01Z")
    stage.bind("a", 2, creationTimestamp="2026-11-01T00:00:02Z")
    bound.set()
    eventually(lambda: stage.phase("z") == stage.phase("a") == "Running")
    older = stage.server.pods.get("z")
    assert older is not None
    assert stage.held()[older["metadata"]["uid"]] == "1,9"


def test_a_deleted_pod_that_its_kubelet_does_not_end_ends_the_scene() -> None:
    """Of a real kubelet that does not start any more. It has no patience, so that no time need pass."""

    class Silent:
        """An API server that accepts everything, with a watch that shows one pod, bound and not ended."""

        deleted = 0

        def patiently(self, method: str, _path: str, pod: Json | None = None) -> Json:
            self.deleted += method == "DELETE"
            return pod or {}

        def entries(self) -> list[Entry]:
            return [Entry(pod | {"status": {"phase": "Pending"}}, 0.0, nodes=[NODE], bound_at=1.0)]

        def wait(self, *_: object) -> bool:
            return False

    pod = simple_pod("a", 2)
    pod["metadata"]["uid"] = "a"
    silent = Silent()
    feeder = Feeder(silent, silent, 8, patience=0.0)  # type: ignore[arg-type]
    with pytest.raises(SceneError, match=f"a was deleted, and its kubelet does not end it: {NODE}"):
        feeder.feed([pod])
    assert silent.deleted == 1
