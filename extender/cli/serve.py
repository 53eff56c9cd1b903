"""`numa-extender serve`."""

import logging
import os
from importlib.metadata import version
from typing import Any, Final

import click
from pydantic import ValidationError
from pydantic_settings import SettingsError

from extender.app import make_app, make_service, set_up_allocator, set_up_collector, set_up_threads
from extender.config.settings import PREFIX, Settings, unknown_variables
from extender.features.profiles import ProfileError
from extender.observability.logs import set_up_logging
from extender.observability.tracing import TracingError
from extender.runtime.server import make_server
from extender.transport.certificates import CertificateError

LOG: Final = logging.getLogger(__name__)


@click.command()
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="TCP port; 0 takes a free one.  [default: 9600]")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="[default: info]")
def serve(**flags: str | int | None) -> None:
    """Serve kube-scheduler, exporters and people over HTTP, until SIGTERM or Ctrl-C.

    All other settings are environment variables NUMA_EXTENDER_…. Flags take precedence. An empty variable counts as
    unset. An unknown variable is logged as a warning.
    """
    given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        faults = "; ".join(
            ": ".join((*_variable(fault["loc"]), fault["msg"].removeprefix("Value error, ")))
            for fault in error.errors()
        )
        raise click.ClickException(f"bad settings: {faults}") from None
    except SettingsError as error:
        raise click.ClickException(f"bad settings: {error}: {error.__cause__}") from None
    set_up_logging(settings.log_level, settings.log_format)
    for name, near in unknown_variables(os.environ):
        LOG.warning("unknown setting: %s has no effect%s", name, f"; did you mean {near}?" if near else "")
    set_up_allocator()
    set_up_collector()
    set_up_threads()
    try:
        server = make_server(settings, make_app(make_service(settings)))
    except CertificateError as error:
        raise click.ClickException(f"certificates: {error}") from None
    except (ProfileError, TracingError) as error:
        raise click.ClickException(str(error)) from None
    LOG.info("%s", start_line(settings))
    server.run()


def start_line(settings: Settings) -> str:
    """The first log line: version, mode and main settings.

    `mode`: `reports` without an API server, `api-server` with one, `lease` if several extenders elect a leader.
    """
    mode = "lease" if settings.lease == "on" else "api-server" if settings.watches else "reports"
    values = {
        "version": version("numa-extender"),
        "mode": mode,
        "strategy": settings.strategy,
        "topologies": settings.topologies,
        "http": f"{settings.host}:{settings.port}",
        "https": f"{settings.tls_host}:{settings.tls_port}" if settings.tls_cert_file else "off",
        "unknown_nodes": settings.unknown_nodes.value,
    }
    return " ".join(("starting", *(f"{key}={value}" for key, value in values.items())))


def _variable(location: tuple[int | str, ...]) -> tuple[str, ...]:
    """The environment variable of a field, as a tuple. Empty for a contradiction between fields."""
    return (f"{PREFIX}{str(location[0]).upper()}",) if location else ()
