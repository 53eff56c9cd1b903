"""Checks how kube-scheduler connects to an extender: URL, TLS, time-out.

Source: kube-scheduler extender.go makeTransport and NewHTTPExtender; client-go transport.TLSConfigFor.
"""

from collections.abc import Iterator

from extender.lint.catalogue import Finding, found
from extender.lint.context import Context
from extender.lint.documents import Located
from extender.lint.values import go_seconds, is_loopback, is_service_name, split_url

LONG_SECONDS = 10.0


def lint_transport(extender: Located, context: Context) -> Iterator[Finding]:
    """Findings about one entry of `extenders`."""
    url = split_url(extender.text("urlPrefix"))
    if url is None or url.query or url.fragment:
        yield found("url-prefix", extender.near("urlPrefix"), url=extender.text("urlPrefix"))
    else:
        host = url.hostname or ""
        yield from _https(extender, host) if url.scheme == "https" else _http(extender, host)
        yield from _names(extender, host, context)
    yield from _timeout(extender, context)


def _https(extender: Located, host: str) -> Iterator[Finding]:
    tls = extender.near("tlsConfig")
    ca = extender.text("tlsConfig", "caFile") or extender.text("tlsConfig", "caData")
    insecure = extender.plain("tlsConfig", "insecure") is True
    if ca and insecure:
        yield found("ca-and-insecure", tls.near("insecure"))
    elif not ca and (insecure or extender.plain("enableHTTPS") is True):
        place = tls.near("insecure") if insecure else extender.near("enableHTTPS")
        yield found("tls-unverified", place, host=host, flag="`insecure: true`" if insecure else None)
    if bool(extender.text("tlsConfig", "certFile") or extender.text("tlsConfig", "certData")) != bool(
        extender.text("tlsConfig", "keyFile") or extender.text("tlsConfig", "keyData")
    ):
        yield found("client-cert-incomplete", tls)
    if extender.text("tlsConfig", "caFile") and not insecure:
        yield found("ca-read-once", tls.near("caFile"))


def _http(extender: Located, host: str) -> Iterator[Finding]:
    if extender.plain("enableHTTPS") is True:
        yield found("https-flag-on-http", extender.near("enableHTTPS"))
    if extender.get("tlsConfig") is not None:
        yield found("tls-config-on-http", extender.near("tlsConfig"))
    if not is_loopback(host):
        yield found("plain-http", extender.near("urlPrefix"), host=host)


def _names(extender: Located, host: str, context: Context) -> Iterator[Finding]:
    if is_service_name(host) and context.surroundings.resolves_services is False:
        yield found("service-name-on-host-network", extender.near("urlPrefix"), host=host)


def _timeout(extender: Located, context: Context) -> Iterator[Finding]:
    place, value = extender.near("httpTimeout"), extender.plain("httpTimeout")
    seconds = go_seconds(value)
    if value is None or seconds == 0:
        yield found("timeout-unset", place)
        seconds = 5.0
    if seconds is None or seconds < 0:
        yield found("timeout-invalid", place, value=value)
        return
    deadlines = context.surroundings.deadlines.items()
    verb, deadline = max(
        ((v, d) for v, d in deadlines if extender.text(v)), key=lambda item: item[1], default=("", 0.0)
    )
    if verb and seconds <= deadline:
        yield found("timeout-below-deadline", place, seconds=seconds, deadline=deadline, verb=verb)
    if seconds > LONG_SECONDS:
        yield found("timeout-long", place, seconds=seconds)
