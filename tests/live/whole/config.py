"""The configuration of a kubelet that shares a machine with others: own ports, and nothing of the host changed."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.live.api import Json
from tests.oracle.amounts import whole

EVICTION_BYTES: Final = 100 << 20
"""Reserved memory is what the system reserves and this, to the byte, or the kubelet does not start."""
KUBELET_DIR = Path("/var/lib/kubelet")
SYSCTLS: Final = {
    "vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
}  # fmt: skip
"""What the kubelet expects below /proc/sys. With `protectKernelDefaults` it reads these and writes none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """What a kubelet has for itself. *certificate*: and key of its https port; *cgroup*: path in every hierarchy."""

    port: int
    healthz_port: int
    certificate: tuple[Path, Path]
    authority: Path
    runtime_socket: Path
    cgroup: str


def kubelet_configuration(kubelet: Json, own: Own) -> Json:
    """A KubeletConfiguration; *kubelet* as in a scenario."""
    settings = {key: value for key, value in kubelet.items() if key != "reservation"}
    reserved = whole(kubelet["reservation"]["memory"]) - EVICTION_BYTES
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        **settings,
        "systemReserved": {"memory": str(reserved)},
        "evictionHard": {"memory.available": str(EVICTION_BYTES)},
        "address": "127.0.0.1",
        "port": own.port,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": own.healthz_port,
        "readOnlyPort": 0,
        "tlsCertFile": str(own.certificate[0]),
        "tlsPrivateKeyFile": str(own.certificate[1]),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(own.authority)},
        },
        "authorization": {"mode": "Webhook"},
        "containerRuntimeEndpoint": f"unix://{own.runtime_socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": own.cgroup,
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": ["pods"],
        "failCgroupV1": False,
        "failSwapOn": False,
        "protectKernelDefaults": True,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        "imageGCHighThresholdPercent": 100,
        "serializeImagePulls": False,
        "staticPodPath": str(KUBELET_DIR / "manifests"),
        "volumePluginDir": str(KUBELET_DIR / "volume-plugins"),
    }
