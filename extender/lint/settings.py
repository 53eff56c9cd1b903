"""Checks our settings wherever they are written: containers, ConfigMaps for `envFrom`, environment files."""

from collections.abc import Iterator, Mapping
from typing import Final

from extender.lint.catalogue import Finding, found
from extender.lint.context import Context
from extender.lint.documents import Located
from extender.lint.fields import meant
from extender.lint.values import is_true

PREFIX: Final = "NUMA_EXTENDER_"


def lint_settings(variables: Mapping[str, Located], context: Context) -> Iterator[Finding]:
    """Findings about environment variables. Variables of other programs are skipped."""
    ours = {name: value for name, value in variables.items() if name.startswith(PREFIX)}
    for name, value in ours.items():
        if name not in context.defaults:
            yield found("setting-unknown", value, name=name, meant=meant(name, context.defaults))
    insecure = ours.get(f"{PREFIX}INSECURE")
    if insecure is not None and is_true(insecure.value):
        yield found("insecure", insecure)
    known = {name: str(value.value) for name, value in ours.items() if name in context.defaults}
    for name, reason in context.check_settings(known):
        if name == f"{PREFIX}KEEP_ALIVE_SECONDS":
            yield found("keep-alive-short", ours[name], reason=reason)
        else:
            yield found("setting-invalid", ours[name], name=name, reason=reason)
