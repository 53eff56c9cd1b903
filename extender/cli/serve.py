"""`numa-extender serve`."""

from typing import Any

import click
from pydantic import ValidationError

from extender.app import make_app, make_server, make_service, set_up_collector
from extender.logs import set_up_logging
from extender.settings import Settings
from extender.tracing import TracingError
from extender.transport.certificates import CertificateError


@click.command()
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), help="TCP port; 0 takes a free one.  [default: 9600]")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="[default: info]")
def serve(**flags: str | int | None) -> None:
    """Answer kube-scheduler, exporters and people over HTTP, until SIGTERM or Ctrl-C.

    Every other setting is an environment variable NUMA_EXTENDER_…; flags win.
    """
    given: dict[str, Any] = {name: value for name, value in flags.items() if value is not None}
    try:
        settings = Settings(**given)
    except ValidationError as error:
        faults = "; ".join(f"{'.'.join(map(str, f['loc']))}: {f['msg']}" for f in error.errors())
        raise click.ClickException(f"bad settings: {faults}") from None
    set_up_logging(settings.log_level, settings.log_format)
    set_up_collector()
    try:
        server = make_server(settings, make_app(make_service(settings)))
    except CertificateError as error:
        raise click.ClickException(f"certificates: {error}") from None
    except TracingError as error:
        raise click.ClickException(str(error)) from None
    server.run()
