"""How a person's command proves who asks, and verifies the extender, over real TLS sockets."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner, Result

from extender.__main__ import main
from extender.config.settings import Settings
from extender.identity import AccessScope
from tests.fakes.apiserver import FakeApiServer
from tests.security.running import Files, Running, running

NAME = "numa-extender.numa-extender.svc"
"""The only name in the certificate, as behind a port-forward."""


@pytest.fixture(scope="module")
def named(tmp_path_factory: pytest.TempPathFactory, api_server: FakeApiServer) -> Iterator[tuple[Running, Files]]:
    files = Files(tmp_path_factory.mktemp("named"), trustme.CA(), trustme.CA())
    files.write_server(files.server_ca.issue_cert(NAME))
    files.write_client_ca(files.client_ca)
    files.server_ca.cert_pem.write_to_path(files.directory / "ca.crt")
    settings = Settings(port=0, drain_seconds=0, loopback_scopes=frozenset({AccessScope.SCHEDULE}), **files.settings)
    with running(settings, api_server) as service:
        yield service, files


def nodes(named: tuple[Running, Files], *options: str, token: str | None = "reader") -> Result:
    extender, files = named
    shown = []
    if token is not None:
        (files.directory / "token").write_text(token)
        shown = ["--token-file", str(files.directory / "token")]
    ca_file = str(files.directory / "ca.crt")
    return CliRunner().invoke(main, ["nodes", "--server", extender.tls, "--ca-file", ca_file, *shown, *options])


def test_a_certificate_of_another_name_than_the_url_s_is_taken_when_that_name_is_given(
    named: tuple[Running, Files],
) -> None:
    without = nodes(named)
    wrong = nodes(named, "--server-name", "somebody.else")
    right = nodes(named, "--server-name", NAME)

    assert without.exit_code == wrong.exit_code == 1
    assert "certificate verify failed" in without.output
    assert "certificate verify failed" in wrong.output
    assert right.exit_code == 0, right.output


@pytest.mark.parametrize(
    ("token", "reason"),
    [(None, "loopback do not have the scope read"), ("nothing", "may not"), ("made-up", "token")],
)
def test_who_is_turned_away_reads_how_to_get_a_token_that_works(
    named: tuple[Running, Files], token: str | None, reason: str
) -> None:
    result = nodes(named, "--server-name", NAME, token=token)

    assert result.exit_code == 1
    assert reason in result.output
    assert "--token-file" in result.output
    assert "numa-extender-reader" in result.output
    audience = Settings.model_fields["token_audience"].default
    assert f"kubectl -n numa-extender create token numa-reader --audience={audience}" in result.output


def test_the_page_offers_the_same_command() -> None:
    page = (Path(__file__).parents[2] / "extender/web/index.html").read_text()

    assert "kubectl -n numa-extender create token numa-reader --audience=numa-extender" in page
