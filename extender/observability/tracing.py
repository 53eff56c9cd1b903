"""OpenTelemetry tracing, by setting. Off, nothing of it is imported and nothing is in the way of a request.

Where spans go is said with OpenTelemetry's own variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, …).
They are exported by a thread of its own, and dropped when the collector is away. A caller's `traceparent` is followed;
kube-scheduler sends none. /livez, /readyz and /metrics make no spans.
"""

from typing import Final

from fastapi import FastAPI

EXCLUDED: Final = "livez,readyz,metrics"


class TracingError(Exception):
    """Tracing was asked for and its libraries are not installed."""


def trace(app: FastAPI, version: str) -> None:
    """Make a span of every request to *app*.

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
