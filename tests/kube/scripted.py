"""A server that says exactly what a test writes down, for what no API server would ever say."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.waiting import PATIENCE_SECONDS


@contextmanager
def scripted(*replies: bytes, pause: float = 0.0) -> Iterator[str]:
    """A server that sends each connection the next of *replies*, byte by byte when there is a *pause*, and hangs up.

    After the last one it listens no more.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        for reply in replies:
            try:
                connection, _ = listener.accept()
            except OSError:
                break
            with connection:
                connection.recv(65536)
                try:
                    step = 1 if pause else max(1, len(reply))
                    for i in range(0, len(reply), step):
                        connection.sendall(reply[i : i + step])
                        time.sleep(pause)
                except OSError:
                    break
        listener.close()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        with contextlib.suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(PATIENCE_SECONDS)


def reply(body: bytes, *, status: str = "200 OK", length: int | None = None) -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body) if length is None else length}\r\n\r\n".encode() + body
