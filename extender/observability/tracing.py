"""OpenTelemetry tracing, off by default. When it is off, nothing of it is imported.

OpenTelemetry's own variables say where spans go (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, …). A separate
thread exports them and drops them while the collector is unreachable. A caller's `traceparent` is used; kube-scheduler
sends none. /livez, /readyz and /metrics create no spans.
"""

from typing import Final

from fastapi import FastAPI

EXCLUDED: Final = "livez,readyz,metrics"


class TracingError(Exception):
    """Tracing is on, but its libraries are not installed."""


def trace(app: FastAPI, version: str) -> None:
    """Create a span for every request to *app*.

    Raises:
        TracingError: the extra `tracing` is not installed.
    """
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415 - optional
        from opentelemetry.instrumentation.asgi import OpenTelemetryMiddleware  # noqa: PLC0415 - optional
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - optional
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - optional
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 - optional
        from opentelemetry.util.http import parse_excluded_urls  # noqa: PLC0415 - optional
    except ImportError as error:
        raise TracingError(f"tracing needs: pip install 'numa-extender[tracing]' ({error})") from error
    resource = Resource.create({"service.name": app.title, "service.version": version})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    app.state.tracer_provider = provider
    app.add_middleware(
        OpenTelemetryMiddleware,
        excluded_urls=parse_excluded_urls(EXCLUDED),
        tracer_provider=provider,
        exclude_spans=["receive", "send"],
    )
