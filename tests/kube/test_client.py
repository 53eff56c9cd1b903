"""The client: deadlines, connections, credentials that rotate."""

import asyncio
import logging
import ssl
from pathlib import Path

import pytest
import trustme
import yaml
from kubernetes.client.configuration import Configuration

from extender.app import make_service
from extender.config.settings import Settings
from extender.kube.access import (
    HEADER_SECONDS,
    ClientConfigError,
    KubeconfigCredentials,
    TokenFile,
    discover,
    from_kubeconfig,
    in_cluster,
    plain,
)
from extender.kube.binder import AsyncBinder, Binder
from extender.kube.client import KubeClient, path_of
from extender.kube.errors import ApiError, NoReplyError, api_error
from extender.runtime.api_server import connected
from extender.scheduling.binder import Binding, PodBound
from tests.fakes.apiserver import FakeApiServer
from tests.kube.scripted import reply, scripted
from tests.kube.watching import Consumer, followed, pod, truth
from tests.waiting import PATIENCE_SECONDS, until
from tests.world.clock import Clock


def test_one_connection_serves_many_calls(server: FakeApiServer, client: KubeClient) -> None:
    for _ in range(10):
        client.request("GET", "/api/v1/nodes")
        with pytest.raises(ApiError):
            client.request("GET", "/api/v1/nodes/nowhere")

    assert len(server._connections) == 1


def test_a_refusal_carries_what_the_server_said(server: FakeApiServer, client: KubeClient) -> None:
    server.faults.fail(1, 429, retry_after=7)
    with pytest.raises(ApiError) as caught:
        client.request("GET", "/api/v1/nodes")

    error = caught.value
    assert (error.status, error.reason, error.retry_after_seconds) == (429, "TooManyRequests", 7.0)


def test_a_refusal_that_is_no_status_object() -> None:
    error = api_error(502, b"<html>bad gateway</html>", "soon")

    assert (error.status, error.reason, error.message) == (502, "", "<html>bad gateway</html>")
    assert error.retry_after_seconds is None


def test_a_call_ends_in_time_however_slowly_the_reply_trickles() -> None:
    """A sound reply, whose bytes come so often that no single read is late; the whole of it takes 10 s at least."""
    with scripted(reply(b'{"a":"%s"}' % (b"x" * 1000)), pause=0.01) as url:
        client = KubeClient(plain(url))
        with pytest.raises(NoReplyError) as caught:
            client.request("GET", "/", timeout_seconds=0.3)

    assert caught.value.maybe_done


@pytest.mark.parametrize("body", [b"nonsense", b"[]", b"null"])
def test_a_reply_that_is_no_object_is_no_reply(body: bytes) -> None:
    with scripted(reply(body)) as url, pytest.raises(NoReplyError, match="not"):
        KubeClient(plain(url)).request("GET", "/")


def test_a_reply_that_breaks_off_is_no_reply() -> None:
    with scripted(reply(b'{"a":1', length=100)) as url, pytest.raises(NoReplyError, match="ended early"):
        KubeClient(plain(url)).request("GET", "/")


def test_a_get_on_a_connection_closed_while_idle_is_made_again() -> None:
    with scripted(b"", reply(b'{"a":1}')) as url:
        assert KubeClient(plain(url)).request("GET", "/") == {"a": 1}


def test_a_post_whose_reply_is_lost_is_not_made_again() -> None:
    with scripted(b"", reply(b"{}")) as url:
        client = KubeClient(plain(url))
        with pytest.raises(NoReplyError) as caught:
            client.request("POST", "/", body={})
        assert caught.value.maybe_done
        client.request("GET", "/")


def test_nobody_listens() -> None:
    with FakeApiServer() as server:
        url = server.url
    with pytest.raises(NoReplyError) as caught:
        KubeClient(plain(url)).request("POST", "/", body={})

    assert not caught.value.maybe_done


def test_names_are_quoted_in_paths() -> None:
    path = path_of("/api/v1", "pods", namespace="a/b", name="c?d", subresource="binding")

    assert path == "/api/v1/namespaces/a%2Fb/pods/c%3Fd/binding"


def test_a_rotated_token_is_used_at_once_when_the_old_one_is_refused(server: FakeApiServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one\n")
    server.access.tokens = {"one": "extender"}
    client = KubeClient(plain(server.url, token))
    client.request("GET", "/api/v1/nodes")

    token.write_text("two")
    server.access.tokens = {"two": "extender"}
    client.request("GET", "/api/v1/nodes")
    client.request("POST", "/api/v1/nodes", body={"metadata": {"name": "a"}})

    server.access.tokens = {"three": "extender"}
    with pytest.raises(ApiError, match="401"):
        client.request("GET", "/api/v1/nodes")


def test_a_watch_outlives_the_rotation_of_its_token(server: FakeApiServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    server.access.tokens = {"one": "extender"}
    consumer = Consumer()

    with followed(KubeClient(plain(server.url, token)), consumer) as watch:
        until(lambda: server.open_streams == 1)
        server.access.tokens = {"two": "extender"}
        server.break_streams()
        until(lambda: watch.status().failures > 0)
        token.write_text("two")
        server.pods.create(pod("new", "node-a"))
        until(lambda: consumer.pods == truth(server) != {})

        assert watch.status().lists == 1


def test_a_token_file_is_read_again_after_its_time(tmp_path: Path) -> None:
    clock = Clock()
    path = tmp_path / "token"
    path.write_text("one")
    token = TokenFile(path, clock=clock)

    path.write_text("two")
    assert token.authorization() == "Bearer one"
    clock.now += 61
    assert token.authorization() == "Bearer two"
    path.write_text("")
    clock.now += 61
    assert token.authorization() == "Bearer two"
    path.unlink()
    assert not token.renew()
    assert token.authorization() == "Bearer two"


def test_no_token_is_an_error_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ClientConfigError, match="no token"):
        TokenFile(tmp_path / "nothing")


def test_the_service_account_of_the_pod(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("mine")
    (tmp_path / "ca.crt").write_text("certificate")
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}

    access = in_cluster(tmp_path, environ)

    assert access.configuration.host == "https://[fd00::1]:443"
    assert access.configuration.ssl_ca_cert == str(tmp_path / "ca.crt")
    assert access.credentials is not None
    assert access.credentials.authorization() == "Bearer mine"
    with pytest.raises(ClientConfigError, match="not in a cluster"):
        in_cluster(tmp_path, {})


def kubeconfig(path: Path, url: str, user: dict[str, str]) -> Path:
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return path


def test_a_kubeconfig_whose_token_file_rotates(
    server: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.kube.access._RELOAD_PAUSE_SECONDS", 0.0)
    (tmp_path / "token").write_text("one")
    server.access.tokens = {"one": "me"}
    access = from_kubeconfig(kubeconfig(tmp_path / "config", server.url, {"tokenFile": str(tmp_path / "token")}))
    client = KubeClient(access)
    client.request("GET", "/api/v1/nodes")

    (tmp_path / "token").write_text("two")
    server.access.tokens = {"two": "me"}
    client.request("GET", "/api/v1/nodes")


def test_the_header_of_a_kubeconfig_is_asked_for_again_after_its_time() -> None:
    clock, configuration = Clock(), Configuration()
    configuration.api_key["authorization"] = "Bearer one"
    credentials = KubeconfigCredentials(lambda: configuration, clock=clock)
    assert credentials.authorization() == "Bearer one"

    configuration.api_key["authorization"] = "Bearer two"
    assert credentials.authorization() == "Bearer one"
    clock.now += HEADER_SECONDS
    assert credentials.authorization() == "Bearer two"

    configuration.api_key["authorization"] = "Bearer three"
    clock.now += 1  # a 401: at once, if the kubeconfig was not loaded a moment ago
    assert credentials.renew()
    assert credentials.authorization() == "Bearer three"


def test_the_path_of_a_server_url_stays(server: FakeApiServer) -> None:
    """Rancher and others serve many clusters under one name."""
    with pytest.raises(ApiError) as caught:
        KubeClient(plain(f"{server.url}/k8s/clusters/c")).request("GET", "/api/v1/nodes")
    assert caught.value.status == 404


def test_calls_go_through_a_proxy() -> None:
    with scripted(reply(b'{"a":1}')) as proxy:
        access = plain("http://api.example.org")
        access.configuration.proxy, access.configuration.no_proxy = proxy, ""
        client = KubeClient(access)
        assert client.request("GET", "/api/v1/nodes") == {"a": 1}
        client.close()


@pytest.mark.parametrize("content", ["", "a: [", "current-context: x"])
def test_a_kubeconfig_that_cannot_be_used(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)

    with pytest.raises(ClientConfigError, match="kubeconfig"):
        from_kubeconfig(path)


def test_discovery_prefers_what_was_given(server: FakeApiServer, tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", server.url, {"token": "t"})
    environ = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}

    assert discover(path, environ).configuration.host == server.url
    with pytest.raises(ClientConfigError, match="not in a cluster"):
        discover(None, environ)


def test_a_certificate_that_nobody_verifies_is_one_line_of_ours(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    """With `insecure-skip-tls-verify`; urllib3 would warn at each connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("elsewhere.example.org").configure_cert(context)
    path = tmp_path / "kubeconfig"

    async def story(server: FakeApiServer) -> None:
        document = {
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "s", "cluster": {"server": server.url, "insecure-skip-tls-verify": True}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "s", "user": "u"}}],
        }  # fmt: skip
        path.write_text(yaml.safe_dump(document))
        service = make_service(Settings(kubeconfig=path))
        async with connected(service), asyncio.timeout(PATIENCE_SECONDS):
            while service.known.link.trouble:  # noqa: ASYNC110 - it knows no events
                await asyncio.sleep(0.01)

    with FakeApiServer(tls=context) as server:
        asyncio.run(story(server))

    assert [str(warning.message) for warning in recwarn] == []
    assert len([record for record in caplog.records if "insecure-skip-tls-verify" in record.getMessage()]) == 1


def test_bindings_that_fail_in_an_outage_are_one_warning(
    server: FakeApiServer, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "extender.kube.binder")
    server.pods.create(pod("a"))
    uid = (server.pods.get("a") or {})["metadata"]["uid"]
    binding = Binding(namespace="default", name="a", uid=uid, node_name="node-a")
    bindings = AsyncBinder(Binder(client, timeout_seconds=1.0))
    server.faults.fail(1000, 503)
    outcomes = [asyncio.run(bindings.bind(binding)) for _ in range(2)]
    server.faults.clear()
    outcomes.append(asyncio.run(bindings.bind(binding)))

    # Whether a call had the time to look at the pod after the 503, and failed at that too, depends on the machine.
    assert {type(outcome).__name__ for outcome in outcomes[:2]} <= {"MaybeBound", "NotBound"}
    assert isinstance(outcomes[2], PodBound)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "not bound pod=default/a node=node-a" in caplog.records[0].getMessage()
