"""A reply leaves the process in one write, and nothing that was written is lost when a connection closes."""

import asyncio

import pytest
import uvicorn
from starlette.responses import Response
from starlette.types import ASGIApp
from uvicorn.server import ServerState

from extender.observability.metrics import Metrics
from extender.transport.places import ConnectionSlots, Place
from extender.transport.protocol import BoundedProtocol, ConnectionTimeouts, JoinedWrites

REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
TIMEOUTS = ConnectionTimeouts(head_seconds=9, body_seconds=9, answer_seconds=9)


class Recorder(asyncio.Transport):
    """Keeps what is written, one item for each call of the system."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self.writes: list[bytes] = []
        self.end = ""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writes.append(bytes(data))

    def close(self) -> None:
        self.end = "closed"

    def abort(self) -> None:
        self.end = "aborted"

    def is_closing(self) -> bool:
        return bool(self.end)

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


async def replied(app: ASGIApp, request: bytes = REQUEST) -> Recorder:
    """What is written in reply to the request."""
    config = uvicorn.Config(app, lifespan="off", access_log=False)
    config.load()
    state, places, transport = ServerState(), ConnectionSlots(1), Recorder()
    place = Place("127.0.0.1", 0.0, lambda _reason: None)
    protocol = BoundedProtocol(
        TIMEOUTS, Metrics(), places, place, config=config, server_state=state, app_state={}, _loop=None
    )
    places.enter(place)
    protocol.connection_made(transport)
    protocol.data_received(request)
    await asyncio.gather(*state.tasks)
    protocol.connection_lost(None)
    return transport


def test_head_and_body_are_one_write() -> None:
    async def scene() -> None:
        transport = await replied(Response(b"12345"))
        assert len(transport.writes) == 1
        assert transport.writes[0].startswith(b"HTTP/1.1 200 OK\r\n")
        assert transport.writes[0].endswith(b"\r\n\r\n12345")

    asyncio.run(scene())


def test_a_reply_that_closes_the_connection_is_written_before_it_closes() -> None:
    async def scene() -> None:
        transport = await replied(Response(b"12345"), REQUEST.replace(b"Host", b"Connection: close\r\nHost"))
        assert [write[-5:] for write in transport.writes] == [b"12345"]
        assert transport.end == "closed"

    asyncio.run(scene())


@pytest.mark.parametrize(("end", "written"), [("close", [b"ab"]), ("abort", [])])
def test_what_is_held_leaves_with_close_and_not_with_abort(end: str, written: list[bytes]) -> None:
    async def scene() -> None:
        transport = Recorder()
        joined = JoinedWrites(transport, asyncio.get_running_loop())
        joined.write(b"a")
        joined.write(b"b")
        assert (transport.writes, joined.get_write_buffer_size()) == ([], 2)
        getattr(joined, end)()
        await asyncio.sleep(0)
        assert transport.writes == written

    asyncio.run(scene())


def test_what_is_held_leaves_with_the_next_turn_of_the_loop() -> None:
    async def scene() -> None:
        transport = Recorder()
        JoinedWrites(transport, asyncio.get_running_loop()).write(b"a")
        await asyncio.sleep(0)
        assert transport.writes == [b"a"]

    asyncio.run(scene())
