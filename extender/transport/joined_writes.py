"""Sends the parts of a reply together: one call of the system and one TLS record, where uvicorn writes twice.

uvicorn writes the head of a reply and its body one after the other, and uvloop sends each of them at once. The client
then wakes up twice, and parses the head alone first.
"""

import asyncio
from typing import Any, Final


class JoinedWrites(asyncio.Transport):
    """*transport*, except that bytes wait until `flush`, `close`, or the next turn of *loop*."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport: Final = transport
        self._loop: Final = loop
        self._held: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send with what is written next."""
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(bytes(data))

    def flush(self) -> None:
        """Send now what was written."""
        if self._held:
            held, self._held = self._held, []
            self._transport.write(b"".join(held))

    def close(self) -> None:
        """Send what was written, and close."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        self._held = []
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether the connection is closed or closing."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as asyncio declares it
        """The information that asyncio's transport has."""
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """Bytes that the client has not taken yet."""
        return sum(map(len, self._held)) + self._transport.get_write_buffer_size()
