"""The kubelet's API over https, and how the exporter reaches it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from node_exporter.kubelet_api import KubeletApi
from tests.node_exporter.fake_kubelet import FakeKubeletApi


@pytest.fixture
def server() -> Iterator[FakeKubeletApi]:
    fake = FakeKubeletApi()
    yield fake
    fake.close()


@pytest.fixture
def api(server: FakeKubeletApi, tmp_path: Path) -> KubeletApi:
    server.authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    (tmp_path / "token").write_text("good\n")
    return KubeletApi(url=server.url, token_file=tmp_path / "token", ca_file=tmp_path / "ca.pem", timeout_seconds=30)
