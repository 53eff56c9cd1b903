"""The address of the API server, and our credentials.

`in_cluster` reads the service account that Kubernetes mounts. `from_kubeconfig` reads what kubectl reads. Both use the
official client's configuration. A rotated token needs no restart: a token file is read again every minute and at once
after a 401, and a kubeconfig (token files, exec plugins) is asked every five seconds and loaded again after a 401. The
TLS layer reads CA and client certificate files for each new connection.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

import yaml
from kubernetes.client.configuration import Configuration
from kubernetes.config import ConfigException, load_kube_config
from kubernetes.config.incluster_config import InClusterConfigLoader

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_MAX_AGE_SECONDS: Final = 60.0
"""The kubelet renews a projected token after 80 % of its lifetime (which is at least ten minutes)."""
HEADER_SECONDS: Final = 5.0
"""How long the header of a kubeconfig is used: the official client takes a tenth of a call to make it."""
_RELOAD_PAUSE_SECONDS: Final = 5.0
_UNUSABLE: Final = (ConfigException, OSError, yaml.YAMLError)


class ClientConfigError(Exception):
    """The client configuration is missing or unusable. The message says which part."""


class Credentials(Protocol):
    """Our credentials. Both methods are called from many threads."""

    def authorization(self) -> str | None:
        """The Authorization header. None without one (client certificate, or a server without authentication)."""

    def renew(self) -> bool:
        """Read the credentials again after a 401. Returns whether the header may have changed."""


@dataclass(frozen=True, slots=True)
class Access:
    """The address of the API server and our credentials; None: no credentials."""

    configuration: Configuration
    credentials: Credentials | None


class TokenFile:
    """A bearer token in a file that another program rotates. *clock*: monotonic seconds.

    A file that cannot be read, or is empty while it is being replaced, leaves the last token in use.
    """

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path, self._clock = path, clock
        self._lock = threading.Lock()
        self._token = ""
        self._read_at = 0.0
        if not self._read():
            raise ClientConfigError(f"no token in {path}")

    def authorization(self) -> str | None:
        """The token in the file, at most `TOKEN_MAX_AGE_SECONDS` old."""
        with self._lock:
            if self._clock() - self._read_at >= TOKEN_MAX_AGE_SECONDS:
                self._read()
            return f"Bearer {self._token}"

    def renew(self) -> bool:
        """Read the file now. Returns whether it contains another token."""
        with self._lock:
            return self._read()

    def _read(self) -> bool:
        self._read_at = self._clock()
        try:
            token = self._path.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError):
            return False
        changed = bool(token) and token != self._token
        self._token = token or self._token
        return changed


class KubeconfigCredentials:
    """Credentials from a kubeconfig, loaded again after a 401, at most every five seconds."""

    def __init__(self, load: Callable[[], Configuration], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._load, self._clock = load, clock
        self._lock = threading.Lock()
        self._configuration = load()
        self._loaded_at = clock()
        self._header: str | None = None
        self._header_until = float("-inf")

    def authorization(self) -> str | None:
        """The header of the official client, at most `HEADER_SECONDS` old. The client refreshes expiring tokens."""
        with self._lock:
            if self._clock() >= self._header_until:
                setting = self._configuration.auth_settings().get("BearerToken")
                value = setting["value"] if setting else None
                self._header = str(value) if value else None
                self._header_until = self._clock() + HEADER_SECONDS
            return self._header

    def renew(self) -> bool:
        """Load the kubeconfig again. False if that was tried less than five seconds ago, or failed."""
        with self._lock:
            if self._clock() - self._loaded_at < _RELOAD_PAUSE_SECONDS:
                return False
            self._loaded_at = self._clock()
            try:
                self._configuration = self._load()
            except _UNUSABLE:
                return False
            self._header_until = float("-inf")
            return True


def in_cluster(root: Path = SERVICE_ACCOUNT, environ: Mapping[str, str] = os.environ) -> Access:
    """The service account of the current pod.

    Raises:
        ClientConfigError: this process is not in a pod, or its service account is not mounted.
    """
    configuration = Configuration()
    token, authority = root / "token", root / "ca.crt"
    try:
        loader = InClusterConfigLoader(  # type: ignore[no-untyped-call]
            token_filename=str(token), cert_filename=str(authority), try_refresh_token=False, environ=environ
        )
        loader.load_and_set(configuration)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError) as error:
        raise ClientConfigError(f"not in a cluster: {error}") from error
    return Access(configuration, TokenFile(token))


def from_kubeconfig(path: Path | None = None) -> Access:
    """The current context of a kubeconfig. *path* None: where kubectl looks.

    Raises:
        ClientConfigError: there is none or it is unusable.
    """

    def load() -> Configuration:
        configuration = Configuration()
        load_kube_config(  # type: ignore[no-untyped-call]
            config_file=None if path is None else str(path),
            client_configuration=configuration,
            persist_config=False,
        )
        return configuration

    try:
        credentials = KubeconfigCredentials(load)
        return Access(load(), credentials)
    except _UNUSABLE as error:
        raise ClientConfigError(f"kubeconfig: {error}") from error


def plain(url: str, token_file: Path | None = None) -> Access:
    """A server by its URL (`kubectl proxy`, tests)."""
    configuration = Configuration()
    configuration.host = url
    return Access(configuration, None if token_file is None else TokenFile(token_file))


def discover(kubeconfig: Path | None = None, environ: Mapping[str, str] = os.environ) -> Access:
    """The given kubeconfig, else the pod's service account, else the default kubeconfig.

    Raises:
        ClientConfigError: none of them exists.
    """
    if kubeconfig is None and environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(environ=environ)
    return from_kubeconfig(kubeconfig)
