"""The exporter as the DaemonSet starts it: its arguments and environment, mounts as the pod has them, no more."""

import os
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import trustme
import yaml

from tests.manifests.rendering import named, rendered
from tests.node_exporter.fake_extender import FakeExtender
from tests.node_exporter.fake_kubelet import FakeKubelet, FakeKubeletApi
from tests.node_exporter.nodes import KUBELET, SCENARIO, cpu_state, memory_state
from tests.node_exporter.trees import KUBELET_DIR, write_scenario

DAEMONSET = Path(__file__).parents[2] / "manifests/base/exporter/daemonset.yaml"
CONTAINER: dict[str, Any] = yaml.safe_load(DAEMONSET.read_text())["spec"]["template"]["spec"]["containers"][0]
STATE = {"cpu_manager_state": cpu_state({"u1": {"c0": "1,5"}}, "0,2-4,6-7"), "memory_manager_state": memory_state()}
PIN = "KUBELET_PIN_FILE"
"""What components/kubelet-pin adds."""


def test_with_topology_objects_the_daemon_set_pushes_nowhere() -> None:
    objects = rendered("overlays/standalone", "topology-objects")
    pod = named(objects, "DaemonSet", "numa-node-exporter")["spec"]["template"]["spec"]
    variables = {variable["name"]: variable.get("value") for variable in pod["containers"][0]["env"]}

    assert variables["NUMA_NRT"] == "true"
    assert "NUMA_PUSH_URL" not in variables
    assert {"NODE_NAME", "KUBELET_URL", "NUMA_LISTEN"} <= variables.keys()


@pytest.fixture
def root() -> Iterator[Path]:
    """The pod's file system: of the host's /proc it sees nothing, so there is no kubelet process in it."""
    with tempfile.TemporaryDirectory(prefix="n") as directory:
        root = write_scenario(Path(directory), SCENARIO, STATE)
        (root / "proc/812/cmdline").unlink()
        (root / KUBELET_DIR / "config.yaml").unlink()
        (root / "var/log/pods/default_a_u1").mkdir(parents=True)
        for hidden in ("pods", "plugins", "pki"):
            (root / KUBELET_DIR / hidden).mkdir()
        yield root


def test_the_daemon_sets_environment_is_all_it_needs(root: Path, tmp_path: Path) -> None:
    kubelet_api, authority = FakeKubeletApi(), trustme.CA()
    kubelet_api.configz = orjson.dumps(
        {
            "kubeletconfig": {k: v for k, v in KUBELET.items() if k != "reservation"}
            | {"systemReserved": {"memory": "1Gi"}}
        }
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    extender = FakeExtender(context=context)
    kubelet = FakeKubelet(root / KUBELET_DIR / "pod-resources/kubelet.sock").start()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    (tmp_path / "pin.crt").write_text(
        ssl.get_server_certificate(("127.0.0.1", int(kubelet_api.url.rpartition(":")[2])))
    )
    (tmp_path / "token").write_text("good")
    values = {
        "NODE_NAME": "n1",
        "HOST_IP": "127.0.0.1",
        "KUBELET_URL": kubelet_api.url,
        "NUMA_PUSH_URL": extender.url,
        "NUMA_TOKEN_FILE": str(tmp_path / "token"),
        "NUMA_CA_FILE": str(tmp_path / "ca.crt"),
        "NUMA_LISTEN": "127.0.0.1:0",
    }
    assert {variable["name"] for variable in CONTAINER["env"]} == values.keys()

    command = [sys.executable, "-m", "node_exporter", *CONTAINER["args"], "--once"]
    test_only = {"NUMA_ROOT": str(root), "KUBELET_TOKEN_FILE": str(tmp_path / "token")}
    environment = {"PATH": os.environ["PATH"], PIN: str(tmp_path / "pin.crt"), **values, **test_only}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    for server in (kubelet_api, extender):
        server.close()
    kubelet.stop()

    assert done.returncode == 0, done.stderr
    (report,) = extender.reports
    assert report["node_name"] == "n1"
    assert report["kubelet_version"] == "v1.36.2"
    assert report["kubelet"]["topologyManagerPolicy"] == KUBELET["topologyManagerPolicy"]
    assert report["state"]["cpu_manager_state"] == STATE["cpu_manager_state"]
    assert report["pods"] is not None
    assert [p for p in report["problems"] if p["severity"] != "info"] == []
