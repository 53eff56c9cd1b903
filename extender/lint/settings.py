"""Checks our settings wherever they are written: containers, ConfigMaps for `envFrom`, environment files."""

from collections.abc import Iterator, Mapping
from typing import Final

from extender.lint.catalogue import Finding, found
from extender.lint.context import Context
from extender.lint.documents import Located
from extender.lint.fields import meant
from extender.lint.values import is_true

PREFIX: Final = "NUMA_EXTENDER_"
SCHEDULER_KEEPS_IDLE_SECONDS: Final = 90


def lint_settings(variables: Mapping[str, Located], context: Context) -> Iterator[Finding]:
    """Findings about environment variables. Variables of other programs are skipped."""
    ours = {name: value for name, value in variables.items() if name.startswith(PREFIX)}
    for name, value in ours.items():
        if name not in context.defaults:
            near = meant(name, context.defaults)
            yield found(
                "setting-unknown",
                value,
                f"{name} is not a setting and is ignored",
                f"write {near}" if near else "remove it; docs/settings.md lists them all",
            )
    insecure = ours.get(f"{PREFIX}INSECURE")
    if insecure is not None and is_true(insecure.value):
        yield found(
            "insecure",
            insecure,
            "callers do not authenticate, and nothing is encrypted",
            "mount a certificate: NUMA_EXTENDER_TLS_CERT_FILE and NUMA_EXTENDER_TLS_KEY_FILE",
        )
    known = {name: str(value.value) for name, value in ours.items() if name in context.defaults}
    for name, reason in context.check_settings(known):
        if name == f"{PREFIX}KEEP_ALIVE_SECONDS":
            yield found(
                "keep-alive-short",
                ours[name],
                f"kube-scheduler keeps idle connections for {SCHEDULER_KEEPS_IDLE_SECONDS} s and does not retry "
                f"when one is closed during a call ({reason})",
                "set it above 90, or leave the default",
            )
        else:
            yield found("setting-invalid", ours[name], f"{name}: {reason}", "correct the value, or remove it")
