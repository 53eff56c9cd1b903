"""etcd and kube-apiserver on loopback, and a client with all rights."""

import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.live.api import Api
from tests.live.binaries import Binaries
from tests.live.identity import Identities
from tests.live.processes import Program, until
from tests.ports import reserve_port

START_SECONDS = 180.0
"""For each of them; a busy machine takes long to start them."""


@dataclass
class ControlPlane:
    """The running parts. `version`: what kube-apiserver says of itself."""

    url: str
    api: Api
    identities: Identities
    etcd: Program
    apiserver: Program
    admin_context: ssl.SSLContext
    admin_kubeconfig: Path
    version: str = ""

    def wait_until_ready(self) -> None:
        """Until the API server answers, with the roles that it makes at its start."""
        until(lambda: self.api.answers("/readyz"), START_SECONDS, "kube-apiserver ready", program=self.apiserver)


@contextmanager
def control_plane(binaries: Binaries, directory: Path, logs: Path) -> Iterator[ControlPlane]:
    """Start both, wait until they are ready, and end them at the end."""
    identities = Identities(directory / "identity")
    files = identities.client("admin", user="live-admin", group="system:masters")
    admin, user = (
        identities.context(files),
        dict(zip(("client-certificate", "client-key"), map(str, files), strict=True)),
    )
    with ExitStack() as stack:
        etcd_url, etcd = _etcd(binaries, identities, directory, logs)
        stack.enter_context(etcd)
        port = reserve_port()
        apiserver = _apiserver(binaries, identities, etcd_url, port, logs)
        stack.enter_context(apiserver)
        url = f"https://127.0.0.1:{port}"
        api = Api(url, admin)
        stack.callback(api.close)
        running = ControlPlane(url, api, identities, etcd, apiserver, admin, identities.kubeconfig("admin", url, user))
        running.wait_until_ready()
        running.version = api.call("GET", "/version")["gitVersion"]
        yield running


def _etcd(binaries: Binaries, identities: Identities, directory: Path, logs: Path) -> tuple[str, Program]:
    client, peer = reserve_port(), reserve_port()
    certificate, key = identities.server("etcd")
    url, peers = f"https://127.0.0.1:{client}", f"http://127.0.0.1:{peer}"
    command: list[str | Path] = [
        binaries.etcd, "--name=live", f"--data-dir={directory / 'etcd'}",
        f"--listen-client-urls={url}", f"--advertise-client-urls={url}",
        f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}", f"--initial-cluster=live={peers}",
        f"--cert-file={certificate}", f"--key-file={key}", f"--trusted-ca-file={identities.ca_file}",
        "--client-cert-auth",
    ]  # fmt: skip
    return url, Program("etcd", command, logs / "etcd.log")


def _apiserver(binaries: Binaries, identities: Identities, etcd_url: str, port: int, logs: Path) -> Program:
    certificate, key = identities.server("kube-apiserver")
    to_etcd, its_key = identities.client("apiserver-etcd", user="kube-apiserver")
    accounts = identities.service_account_key
    command: list[str | Path] = [
        binaries.kube_apiserver,
        f"--etcd-servers={etcd_url}", f"--etcd-cafile={identities.ca_file}",
        f"--etcd-certfile={to_etcd}", f"--etcd-keyfile={its_key}",
        "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", f"--secure-port={port}",
        "--endpoint-reconciler-type=none", "--service-cluster-ip-range=10.96.0.0/24",
        f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}", f"--client-ca-file={identities.ca_file}",
        "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
        # Its taint is taken away by the node lifecycle controller, which does not run here.
        "--disable-admission-plugins=TaintNodesByCondition",
        "--service-account-issuer=https://live.invalid", f"--service-account-key-file={accounts}",
        f"--service-account-signing-key-file={accounts}", "--allow-privileged=true", "--profiling=false",
    ]  # fmt: skip
    return Program("kube-apiserver", command, logs / "kube-apiserver.log")
