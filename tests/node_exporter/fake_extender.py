"""An HTTP server that plays the extender: keeps what it was sent, and answers as the test says."""

import gzip
import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson

from tests.waiting import PATIENCE_SECONDS


@dataclass(frozen=True)
class Message:
    """One request: method, path, headers with lower-case names, and body, unpacked; `sent_bytes` as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)
    sent_bytes: int = 0

    @property
    def json(self) -> Any:  # noqa: ANN401 - what tests look into
        """The parsed body."""
        return orjson.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What to reply. `delay_seconds` is waited out before."""

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    delay_seconds: float = 0.0


class FakeExtender:
    """Serves on a free port of the loopback until closed, with TLS if given a context. `answer` may be replaced."""

    def __init__(self, port: int = 0, context: ssl.SSLContext | None = None) -> None:
        self.messages: list[Message] = []
        self.answer: Callable[[Message], Answer] = lambda _message: Answer()
        self._changed = threading.Condition()
        self._connections: list[socket.socket] = []
        extender = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def setup(self) -> None:
                super().setup()
                extender._connections.append(self.connection)

            def do_PUT(self) -> None:
                sent = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                body = gzip.decompress(sent) if headers.get("content-encoding") == "gzip" else sent
                message = Message(self.command, self.path, headers, body, sent_bytes=len(sent))
                answer = extender.answer(message)
                time.sleep(answer.delay_seconds)
                with extender._changed:
                    extender.messages.append(message)
                    extender._changed.notify_all()
                self.send_response(answer.status)
                for name, value in (*answer.headers, ("content-length", str(len(answer.body)))):
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer.body)

            do_POST = do_PUT  # noqa: N815 - the name that http.server calls

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        if context:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        self.port = self._server.server_address[1]
        self.url = f"http{'s' if context else ''}://127.0.0.1:{self.port}"

    @property
    def reports(self) -> list[Any]:
        """The reports received so far, parsed."""
        return [message.json for message in self.messages if message.path.endswith("/report")]

    @property
    def heartbeats(self) -> list[Any]:
        """The heartbeats received so far, parsed."""
        return [message.json for message in self.messages if message.path.endswith("/heartbeat")]

    def wait_for(self, condition: Callable[["FakeExtender"], object]) -> None:
        """Wait until the condition holds; fails the test if it does not within `PATIENCE_SECONDS`."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self), PATIENCE_SECONDS), "no such message came"

    def forget(self) -> None:
        """Keep only the last message."""
        with self._changed:
            del self.messages[:-1]

    def close(self) -> None:
        """Stop to answer, cut all connections, and free the port."""
        self._server.shutdown()
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._server.server_close()
