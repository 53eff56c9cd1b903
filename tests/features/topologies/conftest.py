"""A client of the fake API server."""

from tests.kube.conftest import client

__all__ = ["client"]
