"""kube-scheduler with the configuration of docs/install.md, and the extender's programs."""

import re
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import yaml

from tests.live.api import Json
from tests.live.binaries import Binaries
from tests.live.control_plane import ControlPlane
from tests.live.installing import AUDIENCE, EXTENDER, extender_environment, token
from tests.live.processes import Program, until
from tests.manifests.rendering import MANIFESTS
from tests.ports import reserve_port

INSTALL = Path(__file__).parents[2] / "docs/install.md"
OWN_ADDRESS = "http://127.0.0.1:9600/scheduler"
"""As the page has it; each run has a port of its own."""
_HEARD = re.compile(r'^I(\d{4} [\d:.]+) .*"Add event for unscheduled pod" pod="default/([^"]+)"', re.MULTILINE)
"""A line of kube-scheduler's log, from `-v=3` on."""


def shown_configuration() -> Json:
    """The part of a KubeSchedulerConfiguration that the page shows."""
    (block,) = re.findall(r"```yaml\n(extenders:\n.*?)```", INSTALL.read_text(), re.DOTALL)
    found: Json = yaml.safe_load(block)
    return found


def scheduler_configuration(kubeconfig: Path, extender_url: str | None, **changes: object) -> Json:
    """What kube-scheduler is started with; *extender_url* None: no extender. *changes*: keys of the extender's entry.

    One scheduler needs no lease. Its client's rate is not what the scenes are about.
    """
    configuration: Json = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000},
        **shown_configuration(),
    }
    (entry,) = configuration["extenders"]
    assert entry["urlPrefix"] == OWN_ADDRESS
    if extender_url is None:
        del configuration["extenders"]
    else:
        changed = {**entry, "urlPrefix": f"{extender_url}/scheduler", **changes}
        configuration["extenders"] = [{key: value for key, value in changed.items() if value is not None}]
    return configuration


def recipe_configuration(recipe: str, kubeconfig: Path, extender_url: str, files: dict[str, str]) -> Json:
    """The `scheduler-config.yaml` of a recipe, for one scheduler on this machine; *files*: its `tlsConfig`, if any."""
    configuration: Json = yaml.safe_load((MANIFESTS / recipe / "scheduler-config.yaml").read_text())
    configuration["leaderElection"] = {"leaderElect": False}
    configuration["clientConnection"] = {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 2000}
    for profile in configuration.get("profiles", ()):
        profile["schedulerName"] = "default-scheduler"
    for entry in configuration["extenders"]:
        entry["urlPrefix"] = f"{extender_url}/scheduler"
        if "tlsConfig" in entry:
            entry["tlsConfig"] = files
    return configuration


class Scheduler(Program):
    """kube-scheduler; `configure` before each start."""

    grace_seconds = 10.0

    def __init__(self, binaries: Binaries, directory: Path, logs: Path, kubeconfig: Path) -> None:
        self._file = directory / "scheduler-config.yaml"
        self._kubeconfig = kubeconfig
        command: list[str | Path] = [binaries.kube_scheduler, f"--config={self._file}", "--secure-port=0", "-v=3"]
        super().__init__("kube-scheduler", command, logs / "kube-scheduler.log")

    def configure(self, extender_url: str | None, **changes: object) -> None:
        """Write its configuration, which it reads at its start."""
        self._file.write_text(yaml.safe_dump(scheduler_configuration(self._kubeconfig, extender_url, **changes)))

    def heard(self) -> Mapping[str, float]:
        """When it first heard of each pod of the namespace `default`, by name, in monotonic seconds; from its log."""
        now, year, found = time.time() - time.monotonic(), datetime.now().astimezone().year, dict[str, float]()
        for at, name in _HEARD.findall(self.log.read_text(errors="replace")):
            wall = datetime.strptime(f"{year}{at}", "%Y%m%d %H:%M:%S.%f").astimezone()
            found.setdefault(name, wall.timestamp() - now)
        return found

    def configure_as(self, recipe: str, extender_url: str, files: dict[str, str] | None = None) -> None:
        """Write the configuration of a recipe."""
        self._file.write_text(yaml.safe_dump(recipe_configuration(recipe, self._kubeconfig, extender_url, files or {})))


class Extender(Program):
    """`numa-extender serve` with the environment of the manifests; *settings* as there, without prefix.

    *mutant*: see `mutants`.
    """

    def __init__(
        self,
        plane: ControlPlane,
        objects: tuple[Json, ...],
        directory: Path,
        logs: Path,
        name: str = "extender",
        mutant: str = "",
        **settings: object,
    ) -> None:
        self.port, self.tls_port = reserve_port(), reserve_port()
        self.url, self.tls_url = f"http://127.0.0.1:{self.port}", f"https://127.0.0.1:{self.tls_port}"
        certificate, key = plane.identities.server(name)
        environment = extender_environment(objects) | {
            f"NUMA_EXTENDER_{key_.upper()}": str(value)
            for key_, value in {
                "tls_cert_file": certificate, "tls_key_file": key, "tls_host": "127.0.0.1", "tls_port": self.tls_port,
                "port": self.port, "kubeconfig": directory / "extender.kubeconfig", "read_rate": 1000,
                "loopback_scopes": '["schedule", "read", "metrics", "report"]',  # for nodes that are played here
                "tls_client_ca_file": plane.identities.ca_file, **settings,
            }.items()
        }  # fmt: skip
        if "NUMA_EXTENDER_OWN_URL" in environment:  # of several: the pod's address and token are what differs here
            shown = plane.identities.secret(f"{name}.leader-token", token(plane.api, EXTENDER, audience=AUDIENCE))
            environment |= {
                "NUMA_EXTENDER_OWN_URL": self.tls_url,
                "NUMA_EXTENDER_LEADER_CA_FILE": str(plane.identities.ca_file),
                "NUMA_EXTENDER_LEADER_SERVER_NAME": "",
                "NUMA_EXTENDER_LEADER_TOKEN_FILE": str(shown),
            }
        module = ("tests.live.mutants", mutant) if mutant else ("extender",)
        command = [sys.executable, "-m", *module, "serve"]
        super().__init__(name, command, logs / f"{name}.log", environment)

    @contextmanager
    def echo(self) -> Iterator["Echo"]:
        """An extender that only answers, with the same rights, see `tests.bench.echo_extender`."""
        with Echo(self.environment["NUMA_EXTENDER_KUBECONFIG"], self.log.with_name("echo.log")) as echo:
            until(echo.listens, 30, "the echo listens", program=echo)
            yield echo

    def get(self, path: str, seconds: float = 10.0) -> Any:  # noqa: ANN401
        """The parsed answer of a question; None if there is none now."""
        try:
            reply = httpx.get(self.url + path, timeout=seconds, trust_env=False)
        except httpx.TransportError:
            return None
        return reply.json() if reply.status_code == 200 else None

    def metrics(self) -> dict[str, float]:
        """Every sample by its name with labels; empty if there is no answer."""
        try:
            text = httpx.get(f"{self.url}/metrics", timeout=10, trust_env=False).text
        except httpx.TransportError:
            return {}
        pairs = (line.rpartition(" ") for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def binds(self) -> Counter[str]:
        """Bind calls since its start, by outcome."""
        return self.counted("binds", "outcome")

    def counted(self, name: str, label: str) -> Counter[str]:
        """A counter since its start, by its only label."""
        pattern = re.compile(rf'numa_extender_{name}_total\{{{label}="(\w+)"\}}')
        found = ((pattern.fullmatch(name), value) for name, value in self.metrics().items())
        return Counter({match[1]: int(value) for match, value in found if match and value})

    def exact_nodes(self) -> int:
        """How many nodes are known exactly; -1: it does not answer."""
        found = self.metrics()
        return int(found.get('numa_extender_nodes{certainty="exact"}', 0)) if found else -1

    def wait_for_nodes(self, count: int, seconds: float = 300.0) -> float:
        """Until so many nodes are known exactly; the seconds that it took."""
        return until(lambda: self.exact_nodes() >= count, seconds, f"{count} nodes known exactly", program=self)


class Echo(Program):
    """The echo extender on a port of its own."""

    def __init__(self, kubeconfig: str, log: Path) -> None:
        self._port = reserve_port()
        self.url = f"http://127.0.0.1:{self._port}"
        super().__init__("echo", [sys.executable, "-m", "tests.bench.echo_extender", str(self._port), kubeconfig], log)

    def listens(self) -> bool:
        """Whether it takes connections."""
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
