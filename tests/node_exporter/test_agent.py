"""The agent against a real extender over HTTP, a real kubelet socket, and real files that change under it."""

import hashlib
import logging
import ssl
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import orjson
import pytest
import trustme

from node_exporter.agent import Agent, Cadence, next_sequence
from node_exporter.bounded_http import CredentialFiles
from node_exporter.metrics import ExporterMetrics
from node_exporter.node import NodeReader, NodeSettings, observe
from node_exporter.report import KubeletState, NodeReport, ReportedMachine
from node_exporter.sinks import Delivery, Reply
from node_exporter.sinks.http import HttpSink
from node_exporter.watch import StateWatcher
from tests.node_exporter.fake_extender import Answer, FakeExtender, Message
from tests.node_exporter.fake_kubelet import FakeKubelet, pod
from tests.node_exporter.nodes import SCENARIO, cpu_state, memory_state
from tests.node_exporter.nri_trees import GRANT, write_state_file
from tests.node_exporter.trees import KUBELET_DIR, write_scenario, write_state
from tests.ports import reserve_port
from tests.waiting import PATIENCE_SECONDS, until

QUICK = Cadence(interval=0.3, spacing=0.02, longest_backoff=0.2)
PATIENT = Cadence(interval=3600.0, spacing=0.02, longest_backoff=0.2)
EMPTY = {"cpu_manager_state": cpu_state(), "memory_manager_state": memory_state()}
REPORT = NodeReport(
    node_name="n1", boot_id="b", sequence=1, observed_at=1.0, kubelet_version=None,
    machine=ReportedMachine(cpus=(), numa=(), num_sockets=0), kubelet=None, devices=None,
    state=KubeletState(), pods=None,
)  # fmt: skip
HELD = {"cpu_manager_state": cpu_state({"u1": {"c0": "1,5"}}, "0,2-4,6-7")}


@pytest.fixture
def root() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="n") as short:  # a socket's path has at most 107 characters
        yield write_scenario(Path(short), SCENARIO, EMPTY)


@pytest.fixture
def extender() -> Iterator[FakeExtender]:
    fake = FakeExtender()
    yield fake
    fake.close()


@pytest.fixture
def kubelet(root: Path) -> Iterator[FakeKubelet]:
    fake = FakeKubelet(root / KUBELET_DIR / "pod-resources/kubelet.sock")
    fake.cpus = [1, 2, 3, 5, 6, 7]
    fake.start()
    yield fake
    fake.stop()


class CountingAgent(Agent):
    """An agent that counts its looks."""

    looks = 0

    def publish(self) -> Reply:
        reply = super().publish()
        self.looks += 1
        return reply


@contextmanager
def running(
    root: Path, url: str, cadence: Cadence, *, timeout: float = 30.0, watch: bool = True
) -> Iterator[CountingAgent]:
    """An agent in a thread of its own, with a watch, as `run` composes it."""
    node = NodeReader(NodeSettings(root=root, node_name="n1", kubelet_version="v1.36.2"))
    sink = HttpSink(url, "n1", timeout_seconds=timeout, credentials=CredentialFiles())
    agent = CountingAgent(node.look, sink, ExporterMetrics(), cadence)
    watcher = StateWatcher(root, node.kubelet_dir, agent.notice_change)
    thread = threading.Thread(target=agent.run)
    if watch:
        watcher.start()
    thread.start()
    try:
        yield agent
    finally:
        agent.stop()
        thread.join(PATIENCE_SECONDS)
        if watch:
            watcher.stop()
        sink.close()
        assert not thread.is_alive(), "the agent did not stop"


def until_watched(agent: CountingAgent) -> None:
    """Wait for the look that a new watch causes once it works. From then on only a change causes another."""
    until(lambda: agent.looks >= 2, "the look after the watch began")


def refuse_with(status: int, **more: object) -> Answer:
    return Answer(status=status, body=orjson.dumps(more), headers=(("content-type", "application/problem+json"),))


def test_full_report_first_then_heartbeats_that_name_it(
    root: Path, kubelet: FakeKubelet, extender: FakeExtender
) -> None:
    kubelet.pods = [pod("a", cpus=[])]
    with running(root, extender.url, QUICK):
        extender.wait_for(lambda told: len(told.heartbeats) >= 2)

    first = extender.messages[0]
    assert (first.method, first.path) == ("PUT", "/v1/nodes/n1/report")
    assert first.json["pods"][0]["name"] == "a"
    assert first.json["problems"] == [
        {
            "source": "kubelet state", "path": "device-plugins/kubelet_internal_checkpoint",
            "reason": "no device plugin has registered", "severity": "info",
        },
        {
            "source": "pods", "path": "/var/log/pods", "severity": "info",
            "reason": "not readable: UIDs are known only for pods with CPUs or devices",
        },
    ]  # fmt: skip
    beat = extender.heartbeats[0]
    assert beat["digest"] == hashlib.sha256(first.body).hexdigest()
    assert (beat["boot_id"], beat["sequence"]) == (first.json["boot_id"], first.json["sequence"])
    assert len(extender.reports) == 1, "nothing changed"


def test_change_of_a_state_file_is_published_long_before_the_interval(
    root: Path, kubelet: FakeKubelet, extender: FakeExtender, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with running(root, extender.url, PATIENT) as agent:
        until_watched(agent)
        write_state(root, HELD)
        extender.wait_for(lambda told: told.reports[-1]["state"] == {**told.reports[0]["state"], **HELD})

    assert extender.reports[-1]["sequence"] > extender.reports[0]["sequence"]
    assert "changed='cpu +u1/c0:1,5" in caplog.text
    assert kubelet.asked


def test_a_grant_of_the_nri_plugin_is_published_long_before_the_interval(root: Path, extender: FakeExtender) -> None:
    write_state_file(root, {})
    with running(root, extender.url, PATIENT) as agent:
        until_watched(agent)
        write_state_file(root, {"c1": GRANT})
        extender.wait_for(lambda told: told.reports[-1]["nri"]["grants"])

    assert [grant["container_id"] for grant in extender.reports[-1]["nri"]["grants"]] == ["c1"]


def test_storm_of_changes_ends_with_the_newest_truth_and_few_reports(root: Path, extender: FakeExtender) -> None:
    with running(root, extender.url, PATIENT) as agent:
        until_watched(agent)
        for turn in range(1000):
            write_state(root, {"cpu_manager_state": cpu_state({f"u{turn}": {"c0": "1,5"}}, "0,2-4,6-7")})
        extender.wait_for(lambda told: "u999" in told.reports[-1]["state"]["cpu_manager_state"]["entries"])

    assert "u999" in extender.reports[-1]["state"]["cpu_manager_state"]["entries"]
    assert len(extender.reports) < 500


@pytest.mark.parametrize("status", [404, 409])
def test_extender_that_does_not_hold_the_report_gets_it(root: Path, extender: FakeExtender, status: int) -> None:
    def forgetful(message: Message) -> Answer:
        forgotten = message.path.endswith("/heartbeat") and len(extender.reports) < 2
        return refuse_with(status, title="Unknown report") if forgotten else Answer()

    extender.answer = forgetful
    with running(root, extender.url, QUICK):
        extender.wait_for(lambda told: len(told.reports) >= 2 and len(told.heartbeats) >= 2)

    assert [message.path.rpartition("/")[2] for message in extender.messages[:4]] == [
        "report", "heartbeat", "report", "heartbeat",
    ]  # fmt: skip


@pytest.mark.parametrize("status", [413, 422, 429, 500, 503])
def test_refusals_are_logged_and_overcome(
    root: Path, extender: FakeExtender, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    extender.answer = lambda _message: refuse_with(status, title="Not now", detail="machine.cpus[3] says why")
    with running(root, extender.url, QUICK) as agent:
        extender.wait_for(lambda told: len(told.messages) >= 3)
        readiness = [agent.is_ready]
        extender.answer = lambda _message: Answer()
        extender.wait_for(lambda told: len(told.heartbeats) >= 2)
        readiness.append(agent.is_ready)

    assert readiness == [False, True]
    assert "Not now: machine.cpus[3] says why" in caplog.text


def test_refused_content_is_sent_again_as_soon_as_it_changed(
    root: Path, extender: FakeExtender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node_exporter.agent.wait_random_exponential", lambda **_: lambda _state: 3600.0)
    extender.answer = lambda _message: refuse_with(422, title="No")
    with running(root, extender.url, PATIENT) as agent:
        until_watched(agent)
        extender.answer = lambda _message: Answer()
        write_state(root, HELD)
        extender.wait_for(lambda told: told.reports[-1]["state"]["cpu_manager_state"] == HELD["cpu_manager_state"])


def test_extender_that_wishes_patience_gets_it(root: Path, extender: FakeExtender) -> None:
    extender.answer = lambda _message: Answer(status=429, headers=(("retry-after", "1"),))
    with running(root, extender.url, QUICK):
        extender.wait_for(lambda told: len(told.messages) >= 2)

    assert extender.messages[1].at - extender.messages[0].at >= 1.0


def test_extender_that_never_answers_does_not_pile_up_anything(root: Path, extender: FakeExtender) -> None:
    extender.answer = lambda _message: Answer(delay_seconds=0.5)
    with running(root, extender.url, PATIENT, timeout=0.1):
        for turn in range(20):
            write_state(root, {"cpu_manager_state": cpu_state({f"u{turn}": {"c0": "1,5"}}, "0,2-4,6-7")})
            time.sleep(0.02)
        extender.answer = lambda _message: Answer()
        extender.wait_for(lambda told: any("u19" in str(report["state"]) for report in told.reports))


def test_extender_that_restarts_is_found_again(root: Path) -> None:
    first = FakeExtender(reserve_port())
    with running(root, first.url, QUICK) as agent:
        first.wait_for(lambda told: told.reports)
        first.close()
        until(lambda: not agent.is_ready)
        second = FakeExtender(first.port)
        second.wait_for(lambda told: told.messages)
    second.close()


def test_kubelet_that_restarts_is_told_and_found_again(
    root: Path, kubelet: FakeKubelet, extender: FakeExtender
) -> None:
    kubelet.pods = [pod("before")]
    with running(root, extender.url, QUICK):
        extender.wait_for(lambda told: told.reports)
        kubelet.stop()
        extender.wait_for(lambda told: told.reports[-1]["pods"] is None)
        kubelet.pods = [pod("after")]
        kubelet.start()
        extender.wait_for(lambda told: (told.reports[-1]["pods"] or [{}])[0].get("name") == "after")


def test_change_between_files_and_podresources_is_read_again(
    root: Path, kubelet: FakeKubelet, extender: FakeExtender
) -> None:
    def change_once() -> None:
        kubelet.before_answer = lambda: None
        write_state(root, HELD)
        kubelet.pods = [pod("a", cpus=[1, 5])]

    kubelet.before_answer = change_once
    with running(root, extender.url, PATIENT, watch=False):
        extender.wait_for(lambda told: told.reports)

    report = extender.reports[0]
    assert report["state"]["cpu_manager_state"] == HELD["cpu_manager_state"]
    assert [(listed["uid"], listed["containers"][0]["cpus"]) for listed in report["pods"]] == [("u1", [1, 5])]


def test_half_done_allocation_is_waited_out(
    root: Path, kubelet: FakeKubelet, extender: FakeExtender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet writes the other half in the pause between two attempts."""
    write_state(root, {"cpu_manager_state": cpu_state(None, "0,2-4,6-7")})
    monkeypatch.setattr(
        "node_exporter.node.observe",
        lambda root, fixed, ask, _pause: observe(root, fixed, ask, lambda _seconds: write_state(root, HELD)),
    )
    with running(root, extender.url, PATIENT, watch=False):
        extender.wait_for(lambda told: told.reports)

    assert extender.reports[0]["state"]["cpu_manager_state"] == HELD["cpu_manager_state"]
    assert kubelet.asked


def test_half_done_allocation_that_stays_is_published_with_a_problem(root: Path, extender: FakeExtender) -> None:
    write_state(root, {"cpu_manager_state": cpu_state(None, "0,2-4,6-7")})
    with running(root, extender.url, PATIENT, watch=False):
        extender.wait_for(lambda told: told.reports)

    assert "CPUs [1, 5] are in no set" in " ".join(item["reason"] for item in extender.reports[0]["problems"])


def test_slow_and_refusing_kubelet_costs_only_its_own_part(
    root: Path, kubelet: FakeKubelet, extender: FakeExtender
) -> None:
    kubelet.refusal = grpc.StatusCode.RESOURCE_EXHAUSTED
    with running(root, extender.url, QUICK):
        extender.wait_for(lambda told: told.reports)
        assert extender.reports[0]["pods"] is None
        assert extender.reports[0]["state"]["cpu_manager_state"] == EMPTY["cpu_manager_state"]
        kubelet.refusal = None
        extender.wait_for(lambda told: told.reports[-1]["pods"] == [])


def test_state_directory_that_is_replaced_is_watched_again(
    root: Path, extender: FakeExtender, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("node_exporter.watch.CHECK_MILLISECONDS", 100)
    directory = root / KUBELET_DIR
    with running(root, extender.url, PATIENT):
        extender.wait_for(lambda told: told.reports)
        directory.rename(directory.with_name("kubelet.old"))
        extender.wait_for(lambda told: told.reports[-1]["state"]["cpu_manager_state"] is None)
        write_state(root, HELD)
        extender.wait_for(lambda told: told.reports[-1]["state"]["cpu_manager_state"] == HELD["cpu_manager_state"])


def test_defect_of_ours_does_not_end_reporting(
    root: Path, extender: FakeExtender, caplog: pytest.LogCaptureFixture
) -> None:
    node = NodeReader(NodeSettings(root=root, node_name="n1"))
    failures = iter([ZeroDivisionError("ours")])

    def look(*, is_tick: bool) -> object:
        for failure in failures:
            raise failure
        return node.look(is_tick=is_tick)

    sink = HttpSink(extender.url, "n1", timeout_seconds=30, credentials=CredentialFiles())
    agent = Agent(look, sink, ExporterMetrics(), QUICK)  # type: ignore[arg-type]
    thread = threading.Thread(target=agent.run)
    thread.start()
    extender.wait_for(lambda told: told.reports)
    agent.stop()
    thread.join(PATIENCE_SECONDS)
    sink.close()

    assert "ZeroDivisionError" in caplog.text


def test_rotated_token_is_used_at_once(extender: FakeExtender, tmp_path: Path) -> None:
    token = tmp_path / "token"
    sink = HttpSink(extender.url, "n 1/x", timeout_seconds=30, credentials=CredentialFiles(token_file=token))

    assert "No such file" in sink.put_report(REPORT, b"{}").detail
    token.write_text("one\n")
    sink.put_report(REPORT, b"{}")
    token.write_text("two")
    sink.put_report(REPORT, b"{}")

    assert [message.headers["authorization"] for message in extender.messages] == ["Bearer one", "Bearer two"]
    assert extender.messages[0].path == "/v1/nodes/n%201%2Fx/report"
    sink.close()


def test_endless_answer_is_cut_off(extender: FakeExtender) -> None:
    extender.answer = lambda _message: Answer(status=500, body=b"x" * (8 << 20))
    sink = HttpSink(extender.url, "n1", timeout_seconds=30, credentials=CredentialFiles())

    reply = sink.put_report(REPORT, b"{}")

    assert reply.outcome is Delivery.UNAVAILABLE
    assert len(reply.detail) < 1000
    assert sink.put_report(REPORT, b"{}").outcome is Delivery.UNAVAILABLE, "the connection is not left in the middle"
    sink.close()


def test_sequence_grows_over_restarts_and_bursts() -> None:
    first = next_sequence(0)
    time.sleep(0.002)

    assert next_sequence(0) > first, "a restarted exporter"
    assert next_sequence(first + 10_000) == first + 10_001, "more than one in a millisecond"


def test_both_sides_prove_who_they_are_and_rotated_certificates_are_read(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    client = authority.issue_cert("node-n1")
    ca, certificate, key = tmp_path / "ca.pem", tmp_path / "tls.crt", tmp_path / "tls.key"
    stranger.cert_pem.write_to_path(str(ca))
    client.cert_chain_pems[0].write_to_path(str(certificate))
    client.private_key_pem.write_to_path(str(key))
    secure = FakeExtender(context=context)
    credentials = CredentialFiles(ca_file=ca, cert_file=certificate, key_file=key)
    sink = HttpSink(secure.url, "n1", timeout_seconds=30, credentials=credentials)

    distrusted = sink.put_report(REPORT, b"{}")
    authority.cert_pem.write_to_path(str(ca))
    trusted = sink.put_report(REPORT, b"{}")
    anonymous = HttpSink(secure.url, "n1", timeout_seconds=30, credentials=CredentialFiles(ca_file=ca)).put_report(
        REPORT, b"{}"
    )
    sink.close()
    secure.close()

    assert "CERTIFICATE_VERIFY_FAILED" in distrusted.detail
    assert trusted.outcome is Delivery.ACCEPTED
    assert anonymous.outcome is Delivery.UNAVAILABLE
    assert len(secure.messages) == 1


def test_a_refusal_that_goes_on_is_logged_when_it_begins_and_when_it_ends(
    root: Path, extender: FakeExtender, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    extender.answer = lambda _message: Answer(status=503, body=b'{"title": "Not now", "detail": "state"}')
    with running(root, extender.url, QUICK):
        extender.wait_for(lambda told: len(told.reports) >= 4)
        extender.answer = lambda _message: Answer()
        extender.wait_for(lambda told: told.heartbeats)

    lines = [record.getMessage() for record in caplog.records]
    assert sum("publishing failed" in line for line in lines) == 1, lines
    assert sum("publishing works again failures=" in line for line in lines) == 1, lines
