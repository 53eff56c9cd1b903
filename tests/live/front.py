"""What a kubelet shows of itself: its files, its podresources socket, and its https port."""

import json
import ssl
import threading
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import orjson

from node_exporter._podresources import podresources_pb2 as pb
from tests.live.api import Api
from tests.node_exporter.fake_kubelet import FakeKubelet, container_devices
from tests.node_exporter.trees import KUBELET_DIR, replace_text, write_scenario
from tests.oracle.kubelet import NaiveKubelet
from tests.world.kubelet import report_of_kubelet

Json = dict[str, Any]


class Files:
    """The files of one node. Only files whose content changed are written."""

    def __init__(self, root: Path, scenario: Json, boot_id: str) -> None:
        self.root, self._scenario = root, scenario
        self._written: dict[str, str] = {}
        write_scenario(root, scenario)
        replace_text(root / "proc/sys/kernel/random/boot_id", f"{boot_id}\n")
        (root / "var/log/pods").mkdir(parents=True)

    def write(self, naive: NaiveKubelet) -> None:
        """Write the checkpoints, each at once by a rename, as the kubelet does."""
        state = report_of_kubelet("", self._scenario, naive, "", 0, [])["state"]
        for name, document in state.items():
            text = json.dumps(document)
            if self._written.get(name) != text:
                directory = "device-plugins/" if name == "kubelet_internal_checkpoint" else ""
                replace_text(self.root / KUBELET_DIR / f"{directory}{name}", text)
                self._written[name] = text

    def start_pod(self, pod: Json) -> None:
        """The directory of its logs, from which the exporter knows its UID."""
        self._logs(pod).mkdir(parents=True, exist_ok=True)

    def forget_pod(self, pod: Json) -> None:
        """The kubelet has cleaned up after it."""
        if self._logs(pod).exists():
            self._logs(pod).rmdir()

    def _logs(self, pod: Json) -> Path:
        metadata = pod["metadata"]
        return self.root / f"var/log/pods/{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"


class Front:
    """The sockets of one kubelet. `start` and `stop` may be called again and again, as a kubelet restarts."""

    def __init__(self, root: Path, scenario: Json, identity: ssl.SSLContext, reviewer: Api, node_name: str) -> None:
        self.podresources = FakeKubelet(root / KUBELET_DIR / "pod-resources/kubelet.sock")
        naive = NaiveKubelet.of(scenario)
        self.podresources.cpus = sorted(naive.machine.all_cpus - naive.cpus.reserved)
        self._devices = {
            resource: {device["id"]: device["numa"] for device in devices if device["healthy"]}
            for resource, devices in scenario["devices"].items()
        }
        self.https = KubeletApi(scenario, identity, reviewer, node_name)

    def show(self, naive: NaiveKubelet, pods: Iterable[Json]) -> None:
        """What List and GetAllocatableResources answer from now on."""
        self.podresources.devices = {
            resource: {id_: numa for id_, numa in devices.items() if id_ in naive.devices.healthy[resource]}
            for resource, devices in self._devices.items()
        }
        self.podresources.pods = [_listed(naive, pod) for pod in pods]

    def start(self) -> None:
        """Listen on a new socket."""
        self.podresources.start()

    def stop(self) -> None:
        """The socket goes away."""
        self.podresources.stop()

    def close(self) -> None:
        """Stop for good."""
        self.podresources.stop()
        self.https.close()


def _listed(naive: NaiveKubelet, pod: Json) -> pb.PodResources:
    uid, metadata = pod["metadata"]["uid"], pod["metadata"]
    listed = pb.PodResources(name=metadata["name"], namespace=metadata["namespace"])
    for container in pod["spec"]["containers"]:
        name = container["name"]
        held = naive.devices.held.get(uid, {}).get(name, {})
        numa = naive.devices.numa
        devices = {r: {i: sorted(n) if (n := numa[r][i]) else None for i in sorted(ids)} for r, ids in held.items()}
        memory = [
            pb.ContainerMemory(
                memory_type=block.type,
                size=block.size,
                topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in sorted(block.mask)]),
            )
            for block in naive.memory.blocks.get(uid, {}).get(name, [])
        ]
        cpus = sorted(naive.cpus.entries.get(uid, {}).get(name, ()))
        listed.containers.append(
            pb.ContainerResources(name=name, cpu_ids=cpus, devices=container_devices(devices), memory=memory)
        )
    return listed


class KubeletApi:
    """/configz and /metrics over https. Who asks and whether it may is decided by the API server, as for a kubelet."""

    def __init__(self, scenario: Json, identity: ssl.SSLContext, reviewer: Api, node_name: str) -> None:
        self._reviewer, self._node_name = reviewer, node_name
        reserved = {"systemReserved": scenario["kubelet"].get("reservation", {}), "evictionHard": {}}
        document = {key: value for key, value in scenario["kubelet"].items() if key != "reservation"} | reserved
        version = f'kubernetes_build_info{{git_version="{scenario["version"]}",major="1"}} 1\n'
        self._answers = {
            "/configz": ("configz", orjson.dumps({"kubeletconfig": document})),
            "/metrics": ("metrics", version.encode()),
        }
        self.refused = 0
        front = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = front.answer(self.path, self.headers.get("authorization", ""))
                self.send_response(status)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = identity.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True).start()
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"

    def answer(self, path: str, authorization: str) -> tuple[int, bytes]:
        """Status and body for one request."""
        user = self._user(authorization.removeprefix("Bearer "))
        subresource, body = self._answers.get(path, ("proxy", b""))
        if user is None:
            status = 401
        elif not self._may(user, subresource):
            status = 403
        else:
            return (200, body) if body else (404, b"")
        self.refused += 1
        return status, b""

    def _user(self, token: str) -> Json | None:
        review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        status = self._reviewer.call("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)["status"]
        return status["user"] if status.get("authenticated") else None

    def _may(self, user: Json, subresource: str) -> bool:
        attributes = {"verb": "get", "resource": "nodes", "subresource": subresource, "name": self._node_name}
        spec = {"user": user["username"], "groups": user["groups"], "uid": user.get("uid", "")}
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {**spec, "extra": user.get("extra", {}), "resourceAttributes": {"version": "v1", **attributes}},
        }
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        return bool(self._reviewer.call("POST", path, review)["status"]["allowed"])

    def close(self) -> None:
        """Stop to answer."""
        self._server.shutdown()
        self._server.server_close()
