"""A reply on the short way leaves the process in one write."""

import asyncio

import orjson

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.runtime.server import make_server
from extender.transport.places import Place
from extender.transport.protocol import BoundedProtocol
from tests.reports import args_of, pod_of

CALL = b"POST /scheduler/filter HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %d\r\n%b\r\n"


class Recorder(asyncio.Transport):
    """Keeps what is written, one item for each call of the system."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.writes: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def replied(body: bytes, fields: bytes) -> Recorder:
    """What is written in reply to a filter call."""
    settings = Settings(port=0)
    server = make_server(settings, make_app(make_service(settings)))
    server.config.load()
    server.lifespan = server.config.lifespan_class(server.config)
    place, transport = Place("127.0.0.1", 0.0, lambda _reason: None), Recorder()
    protocol: BoundedProtocol = server._protocol(place)
    protocol.connection_made(transport)
    protocol.data_received(CALL % (len(body), fields) + body)
    await asyncio.gather(*server.server_state.tasks)
    return transport


def test_head_and_body_are_one_write() -> None:
    body = b'{"Pod": {}, "NodeNames": []}'
    transport = asyncio.run(replied(body, b""))
    (written,) = transport.writes
    assert written.startswith(b"HTTP/1.1 200 OK\r\n")
    assert written.endswith(b"}")
    assert not transport.is_closed


def test_a_reply_that_closes_the_connection_is_written_before_it_closes() -> None:
    transport = asyncio.run(replied(orjson.dumps(args_of(pod_of(1), "a")), b"Connection: close\r\n"))
    (written,) = transport.writes
    assert b"\r\nconnection: close\r\n\r\n{" in written
    assert transport.is_closed
