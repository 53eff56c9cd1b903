"""Certificates that change while the service runs, and the end of those of clients."""

import socket
import ssl
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
import trustme

from extender.api.access import middleware
from extender.config.settings import Settings
from extender.identity import Peer
from extender.observability.metrics import Metrics
from extender.transport.certificates import CertificateError, CertificateFiles, Certificates
from tests.security.running import Files, Running, make_files, running
from tests.security.sockets import read_to_the_end
from tests.waiting import PATIENCE_SECONDS, until
from tests.world.clock import Clock


@pytest.fixture
def own(tmp_path: Path) -> Files:
    return make_files(tmp_path)


def handshake(certificates: Certificates, client: ssl.SSLContext) -> dict[str, object]:
    """One in memory, with the server's own context; what the client learns, or the error of either side."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = client.wrap_bio(to_client, to_server, server_side=False, server_hostname="127.0.0.1")
    theirs = certificates.context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(4):
        for side in (ours, theirs):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    shown = theirs.getpeercert()
    return {"server": ours.getpeercert(), "client": Peer("", dict(shown) if shown else {}).subjects}


def certificates_of(files: Files, clock: Clock) -> tuple[Certificates, Metrics]:
    metrics = Metrics()
    paths = CertificateFiles(
        certificate=files.directory / "tls.crt",
        key=files.directory / "tls.key",
        client_ca=files.directory / "client-ca.crt",
    )
    return Certificates(paths, metrics, clock=clock), metrics


def loads(metrics: Metrics) -> dict[str, float]:
    samples = [sample for family in metrics.certificate_loads.collect() for sample in family.samples]
    return {sample.labels["outcome"]: sample.value for sample in samples if sample.name.endswith("_total")}


def test_a_new_certificate_is_used_from_the_next_handshake_on(own: Files) -> None:
    clock = Clock(0.0)
    certificates, metrics = certificates_of(own, clock)
    successor = trustme.CA()
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(certificates, own.client(trust=successor))

    own.write_server(successor.issue_cert("127.0.0.1"))
    clock.now += 1.0
    handshake(certificates, own.client(trust=successor))
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(certificates, own.client())

    assert loads(metrics) == {"loaded": 2.0, "failed": 0.0}


def test_a_new_client_ca_replaces_the_old_one(own: Files) -> None:
    clock = Clock(0.0)
    certificates, _ = certificates_of(own, clock)
    scheduler, successor = "system:kube-scheduler", trustme.CA()
    assert handshake(certificates, own.client(scheduler))["client"] >= {f"CN={scheduler}"}  # type: ignore[operator]

    own.write_client_ca(successor)
    clock.now += 1.0
    assert handshake(certificates, own.client(scheduler, authority=successor))["client"]
    with pytest.raises(ssl.SSLError):
        handshake(certificates, own.client(scheduler))


@pytest.mark.parametrize("half", ["tls.crt", "tls.key"])
def test_half_a_rotation_changes_nothing_until_the_other_half_comes(own: Files, half: str) -> None:
    clock = Clock(0.0)
    certificates, metrics = certificates_of(own, clock)
    before = {name: (own.directory / name).read_bytes() for name in ("tls.crt", "tls.key")}
    own.write_server(own.server_ca.issue_cert("127.0.0.1"))
    after = (own.directory / half).read_bytes()
    for other in before.keys() - {half}:
        (own.directory / other).write_bytes(before[other])
    for garbage in (after, b"", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", b"\xff" * 100):
        (own.directory / half).write_bytes(garbage)
        clock.now += 1.0
        handshake(certificates, own.client())
    assert loads(metrics) == {"loaded": 1.0, "failed": 4.0}

    own.write_server(own.server_ca.issue_cert("127.0.0.1"))
    clock.now += 1.0
    handshake(certificates, own.client())
    assert loads(metrics) == {"loaded": 2.0, "failed": 4.0}


def test_files_that_vanish_leave_the_last_good_ones_in_use(own: Files) -> None:
    clock = Clock(0.0)
    certificates, _ = certificates_of(own, clock)
    for path in own.directory.iterdir():
        path.unlink()
    clock.now += 1.0

    handshake(certificates, own.client())


def test_files_are_looked_at_once_a_second_at_most(own: Files) -> None:
    clock = Clock(0.0)
    certificates, metrics = certificates_of(own, clock)
    own.write_server(own.server_ca.issue_cert("127.0.0.1"))
    clock.now += 0.5
    handshake(certificates, own.client())

    assert loads(metrics) == {"loaded": 1.0, "failed": 0.0}


def test_a_certificate_without_its_key_is_an_error_at_the_start(own: Files) -> None:
    own.write_server(own.server_ca.issue_cert("127.0.0.1"))
    own.server_ca.issue_cert("127.0.0.1").private_key_pem.write_to_path(own.directory / "tls.key")

    with pytest.raises(CertificateError, match=r"tls\.crt"):
        certificates_of(own, Clock(0.0))


def test_our_own_end_is_a_metric_even_when_it_is_over(own: Files) -> None:
    ended = datetime(2021, 1, 2, 3, 4, 5, tzinfo=UTC)
    own.write_server(own.server_ca.issue_cert("127.0.0.1", not_after=ended))
    _, metrics = certificates_of(own, Clock(0.0))

    assert metrics.certificate_expiry._value.get() == ended.timestamp()


def test_rotation_on_a_running_service(own: Files) -> None:
    settings = Settings(port=0, drain_seconds=0, **own.settings)
    with running(settings) as service:
        old = own.client()
        assert service.call("GET", "/livez", context=old).status_code == 200
        with httpx.Client(base_url=service.tls, verify=old, trust_env=False, timeout=PATIENCE_SECONDS) as kept:
            assert kept.get("/livez").status_code == 200
            successor = trustme.CA()
            own.write_server(successor.issue_cert("127.0.0.1"))
            service_answers(service, own.client(trust=successor))

            assert kept.get("/livez").status_code == 200, "an open connection stays"
        with pytest.raises(httpx.ConnectError):
            service.call("GET", "/livez", context=old)


def service_answers(service: Running, client: ssl.SSLContext) -> None:
    def answers() -> bool:
        try:
            return service.call("GET", "/livez", context=client).status_code == 200
        except httpx.ConnectError:
            return False

    until(answers)


def test_a_certificate_counts_until_it_ends_not_until_its_connection_closes(
    own: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = [0.0]
    clocks = SimpleNamespace(time=lambda: time.time() + later[0], perf_counter=time.perf_counter)
    monkeypatch.setattr(middleware, "time", clocks)
    settings = Settings(port=0, drain_seconds=0, loopback_scopes=frozenset(), **own.settings)
    with running(settings) as service:
        context = own.client("system:kube-scheduler", days=1)
        with httpx.Client(base_url=service.tls, verify=context, trust_env=False, timeout=PATIENCE_SECONDS) as kept:
            assert kept.post("/scheduler/filter", content=b"{}").status_code == 200
            later[0] = 86_400.0
            reply = kept.post("/scheduler/filter", content=b"{}")

    assert (reply.status_code, reply.json()["detail"]) == (401, "the certificate has expired")


def test_plain_http_on_the_tls_port_is_hung_up_on(own: Files) -> None:
    with running(Settings(port=0, drain_seconds=0, **own.settings)) as service:
        host, port = service.tls.removeprefix("https://").split(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as connection:
            connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200" not in read_to_the_end(connection)


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({"host": "0.0.0.0"}, "plain HTTP is for loopback"),
        ({"tls_cert_file": "a.crt"}, "must be set together"),
        ({"tls_client_ca_file": "ca.crt"}, "needs tls_cert_file"),
        ({"scheduler_subjects": ("kube-scheduler",)}, "must begin with one of"),
        ({"scheduler_subjects": ("CN=",)}, "must begin with one of"),
    ],
)
def test_settings_that_would_surprise_are_refused(environment: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Settings(**environment)  # type: ignore[arg-type]


def test_insecure_is_loud(caplog: pytest.LogCaptureFixture) -> None:
    with running(Settings(port=0, host="127.0.0.1", insecure=True, loopback_scopes=frozenset())) as service:
        reply = service.call("GET", "/metrics")

    assert "numa_extender_insecure 1.0" in reply.text
    assert "INSECURE" in caplog.text
