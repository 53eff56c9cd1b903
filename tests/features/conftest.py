"""The fixtures of the API and of the fake API server, for features."""

from tests.api.conftest import clock, service
from tests.kube.conftest import server

__all__ = ["clock", "server", "service"]
