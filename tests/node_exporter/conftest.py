"""The kubelet's API over https, and how the exporter reaches it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from node_exporter.bounded_http import Connection, CredentialFiles
from node_exporter.podresources import kubelet_at
from tests.node_exporter.fake_kubelet import FakeKubeletApi


@pytest.fixture
def server() -> Iterator[FakeKubeletApi]:
    fake = FakeKubeletApi()
    yield fake
    fake.close()


@pytest.fixture
def api(server: FakeKubeletApi, tmp_path: Path) -> Connection:
    server.authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "token").write_text("good\n")
    credentials = CredentialFiles(token_file=tmp_path / "token", ca_file=tmp_path / "ca.pem")
    return kubelet_at(server.url, credentials, timeout_seconds=30)
