"""The network and the checks of tokens: the part of the composition root that needs the extra `server`."""

import logging
import time
from collections.abc import Callable
from typing import Final

import uvicorn
from fastapi import FastAPI

from extender.api.service import Service
from extender.config.settings import Settings
from extender.kube.authority import TokenAuthority
from extender.kube.client import Requester
from extender.kube.reviews import Reviews, ReviewSettings
from extender.observability.metrics import Metrics
from extender.transport.certificates import CertificateFiles, Certificates
from extender.transport.server import Server

LOG: Final = logging.getLogger(__name__)
ACCEPTED_SECONDS: Final = 120.0
"""How long a positive answer of the API server is cached. The kubelet uses the same time for tokens sent to it."""
REFUSED_SECONDS: Final = 10.0


def make_authority(
    client: Requester, settings: Settings, metrics: Metrics, clock: Callable[[], float] = time.monotonic
) -> TokenAuthority:
    """An authority that checks tokens with the API server of *client*."""
    remembered = ReviewSettings(
        accepted_seconds=ACCEPTED_SECONDS,
        refused_seconds=REFUSED_SECONDS,
        grace_seconds=settings.review_grace_seconds,
        size=settings.max_nodes * 2,  # the current token of each node, and the one before
    )
    reviews = Reviews(
        client, remembered, clock=clock, count=lambda kind, outcome: metrics.reviews.labels(kind, outcome).inc()
    )
    return TokenAuthority(
        reviews, client, audience=settings.token_audience, read_audiences=settings.read_audiences, clock=clock
    )


def make_server(settings: Settings, app: FastAPI) -> Server:
    """The server for *app*. `Server.run` serves until SIGTERM or SIGINT, then lets requests in progress end.

    Raises:
        CertificateError: TLS is configured, and its files do not work.
    """
    service: Service = app.state.service
    config = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        timeout_keep_alive=settings.keep_alive_seconds,
        timeout_graceful_shutdown=settings.shutdown_seconds,
    )
    if settings.insecure:
        LOG.warning(
            "INSECURE: every caller that can connect to %s may do everything, without encryption", settings.host
        )
    certificates = None
    if settings.tls_cert_file is not None and settings.tls_key_file is not None:
        files = CertificateFiles(
            certificate=settings.tls_cert_file, key=settings.tls_key_file, client_ca=settings.tls_client_ca_file
        )
        certificates = Certificates(files, service.metrics)
    return Server(
        config,
        settings,
        service.lifecycle,
        service.metrics,
        certificates=certificates,
        begin_short=app.state.short_way.begin,
    )
