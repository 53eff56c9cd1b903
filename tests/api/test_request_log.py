"""Request ids, counts and spans."""

import logging

import pytest
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.config.settings import Settings

LOOPBACK = ("127.0.0.1", 50_000)


def test_an_answer_carries_the_id_that_the_log_has(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        named = client.get("/v1/nodes/nowhere", headers={"X-Request-Id": "from-the-caller"})
        unnamed = client.get("/v1/nodes/nowhere", headers={"X-Request-Id": "two words"})

    assert named.headers["x-request-id"] == "from-the-caller"
    assert len(unnamed.headers["x-request-id"]) == 32
    assert "request method=GET path='/v1/nodes/nowhere' status=404" in caplog.text


def test_answers_are_counted_by_scope(client: TestClient, service: Service) -> None:
    client.get("/livez")
    client.get("/v1/nodes/nowhere")
    client.delete("/v1/nodes/nowhere")
    text = service.metrics.exposition().decode()

    for labels in ('scope="open",status="2xx"', 'scope="read",status="4xx"', 'scope="unlisted",status="4xx"'):
        assert f"numa_extender_responses_total{{{labels}}} 1.0" in text


def test_a_defect_is_counted_as_one(service: Service) -> None:
    app = make_app(service)

    @app.get("/v1/defect")
    async def defect() -> None:
        raise ZeroDivisionError

    with TestClient(app, client=LOOPBACK, raise_server_exceptions=False) as client:
        assert client.get("/v1/defect").status_code == 500
    assert 'responses_total{scope="read",status="5xx"} 1.0' in service.metrics.exposition().decode()


def test_a_span_of_each_request_that_follows_the_callers_trace() -> None:
    app = make_app(make_service(Settings(tracing="otlp")))
    spans = InMemorySpanExporter()
    provider = app.state.tracer_provider
    provider._active_span_processor._span_processors = (SimpleSpanProcessor(spans),)
    trace = "0af7651916cd43dd8448eb211c80319c"
    with TestClient(app, client=LOOPBACK) as client:
        client.post("/scheduler/filter", content=b"{}", headers={"traceparent": f"00-{trace}-b7ad6b7169203331-01"})
        client.get("/livez")
    (span,) = spans.get_finished_spans()

    assert f"{span.context.trace_id:032x}" == trace
    assert span.attributes is not None
    assert span.attributes["http.status_code"] == 200


def test_tracing_off_loads_nothing_of_it() -> None:
    import subprocess
    import sys

    code = "import sys; from extender.app import *; from extender.config.settings import Settings; "
    code += "make_app(make_service(Settings())); sys.exit(any('opentelemetry.sdk' in name for name in sys.modules))"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
