"""The TLS context of the service. It follows its files: new handshakes use their current content.

Rules of this file
- The files are checked when a client connects, at most once a second. There is no watcher and no thread.
- New files are used only after a trial handshake with them. Files that do not work (half written, or a key of another
  certificate) are counted, logged and tried again later. The last working ones stay in use.
- A new client CA replaces the old one for new handshakes. Open connections stay open; the expiry of the client's own
  certificate is checked at every request (`extender.api.access.middleware`).
"""

import logging
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from extender.observability.metrics import Metrics

LOG: Final = logging.getLogger(__name__)
CHECK_SECONDS: Final = 1.0
_NO_CHECK_TIME: Final = 0x200000
"""OpenSSL's X509_V_FLAG_NO_CHECK_TIME: the trial handshake also accepts an expired certificate."""
_PARTIAL_CHAIN: Final = ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN


class CertificateError(Exception):
    """The files are not a working server certificate. The message says which file and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateFiles:
    """PEM files. `client_ca`: the CA of client certificates; None: clients are not asked for a certificate."""

    certificate: Path
    key: Path
    client_ca: Path | None = None

    def stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        """Changes whenever one of the files is replaced or written. Kubernetes volumes replace a symbolic link."""
        return tuple(_stamp(path) for path in (self.certificate, self.key, self.client_ca))


class Certificates:
    """Provides `context`, the TLS context to listen with. *clock*: monotonic seconds.

    Raises:
        CertificateError: the files do not work at startup.
    """

    def __init__(
        self, files: CertificateFiles, metrics: Metrics, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._files, self._metrics, self._clock = files, metrics, clock
        self._stamp = files.stamp()
        self._looked_at = clock()
        self._current = self._load()
        self.context: Final = _server_context(files)
        self.context.sni_callback = self._choose

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Called by OpenSSL at every ClientHello, with or without a server name."""
        now = self._clock()
        if now - self._looked_at >= CHECK_SECONDS:
            self._looked_at = now
            self._look()
        connection.context = self._current

    def _look(self) -> None:
        stamp = self._files.stamp()
        if stamp == self._stamp:
            return
        try:
            self._current = self._load()
        except CertificateError as error:
            LOG.error("new certificate files rejected error=%r", str(error))  # noqa: TRY400 - the message is complete
        else:
            self._stamp = stamp

    def _load(self) -> ssl.SSLContext:
        try:
            context = _server_context(self._files)
            described = _trial(context, self._files.certificate)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            self._metrics.certificate_loads.labels("failed").inc()
            raise CertificateError(f"{self._files.certificate}: {error}") from error
        ends = ssl.cert_time_to_seconds(str(described["notAfter"]))
        self._metrics.certificate_loads.labels("loaded").inc()
        self._metrics.certificate_expiry.set(ends)
        LOG.info("certificates loaded file=%s ends=%d", self._files.certificate, ends)
        return context


def _server_context(files: CertificateFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.load_cert_chain(files.certificate, files.key, password=lambda: b"")
    if files.client_ca is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(files.client_ca)
    return context


def _trial(server: ssl.SSLContext, certificate: Path) -> Mapping[str, object]:
    """The client's view of *server*'s certificate after a handshake in memory that trusts only this certificate.

    Raises:
        OSError: no client could connect.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.load_verify_locations(certificate)
    client.verify_flags = ssl.VerifyFlags(client.verify_flags | _PARTIAL_CHAIN | _NO_CHECK_TIME)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_side=False)
    theirs = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    described = ours.getpeercert()
    if not described:
        raise ssl.SSLError("the trial handshake did not complete")
    return described


def _stamp(path: Path | None) -> tuple[int, int, int] | None:
    try:
        stat = path.stat() if path else None
    except OSError:
        return None
    return (stat.st_ino, stat.st_mtime_ns, stat.st_size) if stat else None
