"""Ports of the loopback for programs that must know theirs before they start, or keep it when they start again."""

import atexit
import socket


def reservation(port: int = 0) -> socket.socket:
    """A socket that is bound and never listens; *port* 0: to a port that was free. It has the port until it is closed.

    Meanwhile the system gives the port to nobody else. A server that sets SO_REUSEADDR, as all of ours do, can listen
    on it, also again after a restart. While none does, whoever connects is refused.
    """
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    bound.bind(("127.0.0.1", port))
    return bound


def reserve_port() -> int:
    """A port that is reserved as long as this process runs."""
    bound = reservation()
    atexit.register(bound.close)
    port: int = bound.getsockname()[1]
    return port
