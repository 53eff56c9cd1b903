import ssl
from pathlib import Path

import orjson
import pytest
import trustme

from node_exporter.bounded_http import Connection, CredentialFiles
from node_exporter.podresources import ask_kubelet, kubelet_at
from tests.node_exporter.fake_kubelet import FakeKubeletApi


def test_configuration_and_version_of_the_running_kubelet(api: Connection) -> None:
    answer = ask_kubelet(api)

    assert (answer.document, answer.version, answer.problems) == ({"cpuManagerPolicy": "static"}, "v1.36.2", ())


def test_expired_token_is_named_and_a_rotated_one_is_read(api: Connection, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("expired")
    expired = ask_kubelet(api)
    (tmp_path / "token").write_text("good")

    assert [problem.reason for problem in expired.problems] == ["answered 401: the token is not accepted"] * 2
    assert ask_kubelet(api).problems == ()


def test_kubelet_of_another_authority_gets_no_token(api: Connection, server: FakeKubeletApi, tmp_path: Path) -> None:
    trustme.CA().cert_pem.write_to_path(str(tmp_path / "ca.pem"))

    answer = ask_kubelet(api)

    assert answer.document is None
    assert "CERTIFICATE_VERIFY_FAILED" in answer.problems[0].reason
    assert server.requests == []


def test_pinned_certificate_is_trusted_whatever_its_name(tmp_path: Path) -> None:
    certificate = trustme.CA().issue_cert("some.node")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    certificate.configure_cert(context)
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "kubelet.crt"))
    (tmp_path / "token").write_text("good")
    server = FakeKubeletApi(context)
    pinned = kubelet_at(server.url, CredentialFiles(token_file=tmp_path / "token", pin_file=tmp_path / "kubelet.crt"))

    assert ask_kubelet(pinned).version == "v1.36.2"
    trustme.CA().issue_cert("some.node").cert_chain_pems[0].write_to_path(str(tmp_path / "kubelet.crt"))
    assert ask_kubelet(pinned).document is None
    server.close()


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"kubeletconfig": 1}', b"\xff", b"<html>"])
def test_nonsense_is_a_problem(api: Connection, server: FakeKubeletApi, body: bytes) -> None:
    server.configz = server.metrics = body

    answer = ask_kubelet(api)

    assert (answer.document, answer.version) == (None, None)
    assert {problem.path for problem in answer.problems} == {"/configz", "/metrics"}


def test_version_is_found_among_many_metrics(api: Connection, server: FakeKubeletApi) -> None:
    server.metrics = b"kubelet_x 1\n" * 50_000 + server.metrics + b"z 1\n" * 50_000

    assert ask_kubelet(api).version == "v1.36.2"


def test_missing_token_and_silent_kubelet_are_problems(api: Connection, server: FakeKubeletApi, tmp_path: Path) -> None:
    server.close()
    assert ask_kubelet(api).problems != ()
    (tmp_path / "token").unlink()
    assert "No such file" in ask_kubelet(api).problems[0].reason


def test_address_must_be_https_and_certificate_must_be_checked(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="https"):
        kubelet_at("http://127.0.0.1:10255", CredentialFiles(token_file=tmp_path, ca_file=tmp_path))
    with pytest.raises(ValueError, match="either"):
        kubelet_at("https://127.0.0.1:10250", CredentialFiles(token_file=tmp_path))


def test_big_answer_is_refused(api: Connection, server: FakeKubeletApi) -> None:
    server.configz = orjson.dumps({"kubeletconfig": {"x": "y" * (5 << 20)}})

    assert "larger than" in ask_kubelet(api).problems[0].reason
