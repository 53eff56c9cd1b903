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
        yield found(
            "url-prefix",
            extender.near("urlPrefix"),
            f"{extender.text('urlPrefix')!r} is not an http:// or https:// URL to which a verb can be added",
            "write http://127.0.0.1:9600/scheduler for an extender beside the scheduler",
        )
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
        yield found(
            "ca-and-insecure",
            tls.near("insecure"),
            "a CA is set, but `insecure` disables verification",
            "remove `insecure`",
        )
    elif not ca and (insecure or extender.plain("enableHTTPS") is True):
        cause = (
            "`insecure: true`"
            if insecure
            else "`enableHTTPS: true` without a CA means insecure, whatever tlsConfig has"
        )
        yield found(
            "tls-unverified",
            tls.near("insecure") if insecure else extender.near("enableHTTPS"),
            f"{cause}: the certificate of {host} is not verified",
            "set tlsConfig.caFile (and serverName, if the certificate names another host)",
        )
    if bool(extender.text("tlsConfig", "certFile") or extender.text("tlsConfig", "certData")) != bool(
        extender.text("tlsConfig", "keyFile") or extender.text("tlsConfig", "keyData")
    ):
        yield found(
            "client-cert-incomplete", tls, "certificate and key must be set together", "set both certFile and keyFile"
        )
    if extender.text("tlsConfig", "caFile") and not insecure:
        yield found(
            "ca-read-once",
            tls.near("caFile"),
            "the client certificate is read again when it changes, this CA is not",
            "restart kube-scheduler when the CA is rotated, and keep the old one in the file until then",
        )


def _http(extender: Located, host: str) -> Iterator[Finding]:
    if extender.plain("enableHTTPS") is True:
        yield found(
            "https-flag-on-http",
            extender.near("enableHTTPS"),
            "urlPrefix says http://, and enableHTTPS does not change that",
            "write https:// in urlPrefix, with tlsConfig.caFile, or remove enableHTTPS",
        )
    if extender.get("tlsConfig") is not None:
        yield found(
            "tls-config-on-http",
            extender.near("tlsConfig"),
            "urlPrefix says http://",
            "write https:// in urlPrefix, or remove tlsConfig",
        )
    if not is_loopback(host):
        yield found(
            "plain-http",
            extender.near("urlPrefix"),
            f"anyone on the path to {host} can read every pod and reply in its place",
            "use loopback (the extender beside the scheduler), or https:// with tlsConfig.caFile",
        )


def _names(extender: Located, host: str, context: Context) -> Iterator[Finding]:
    if is_service_name(host) and context.surroundings.resolves_services is False:
        yield found(
            "service-name-on-host-network",
            extender.near("urlPrefix"),
            f"the scheduler runs on the host's network with the node's resolver, which does not know {host}",
            "set dnsPolicy: ClusterFirstWithHostNet in the scheduler's pod",
        )


def _timeout(extender: Located, context: Context) -> Iterator[Finding]:
    place, value = extender.near("httpTimeout"), extender.plain("httpTimeout")
    seconds = go_seconds(value)
    if value is None or seconds == 0:
        yield found("timeout-unset", place, "kube-scheduler waits 5 s for each call", "set httpTimeout, such as 5s")
        seconds = 5.0
    if seconds is None or seconds < 0:
        yield found("timeout-invalid", place, f"httpTimeout is {value!r}", "write a duration with its unit, such as 5s")
        return
    deadlines = context.surroundings.deadlines.items()
    verb, deadline = max(
        ((v, d) for v, d in deadlines if extender.text(v)), key=lambda item: item[1], default=("", 0.0)
    )
    if verb and seconds <= deadline:
        yield found(
            "timeout-below-deadline",
            place,
            f"kube-scheduler's time-out is {seconds:g} s, but the extender may take {deadline:g} s for {verb}",
            f"set httpTimeout above {deadline:g}s, or lower the extender's own limit",
        )
    if seconds > LONG_SECONDS:
        yield found(
            "timeout-long",
            place,
            f"an extender that hangs stops all scheduling for {seconds:g} s per pod, and prioritize hides it",
            "set httpTimeout to a few seconds: a call takes milliseconds",
        )
