"""Reading of request bodies, limited in size both as sent and decompressed.

Rules of this file
- No more than the limit is ever held in memory, whatever the size after decompression.
- A compressed body is one gzip stream with nothing after it. Anything else declared as gzip is refused.
"""

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import Final

from fastapi import Request

from extender.wire.errors import WireError

MAX_RATIO: Final = 50
"""Ratio of decompressed to compressed size. Reports reach 30. A gzip bomb (1,000 and more) is refused after
microseconds."""
FREE_BYTES: Final = 1 << 20
"""Below this size, how much a body grows when it is decompressed is not checked."""
STEP_BYTES: Final = 1 << 16
"""Bytes decompressed in one step: about 0.1 ms of the event loop, so that many senders do not delay other calls."""
GZIP: Final = 16 + zlib.MAX_WBITS


class BodyTooLargeError(Exception):
    """The body is over the limit. It was not read to the end."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is larger than {limit} bytes")
        self.limit: Final = limit


class EncodingError(WireError):
    """The Content-Encoding is not accepted. `gzip` and `identity` are."""

    def __init__(self, encoding: str) -> None:
        super().__init__("", f"content-encoding {encoding[:40]!r} is not accepted; only gzip is")


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body, decompressed if it came with `Content-Encoding: gzip`.

    Raises:
        BodyTooLargeError: the body exceeds *limit* bytes, compressed or decompressed; raised as soon as that is known.
        EncodingError: another encoding.
        WireError: declared as gzip, but it is not.
    """
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise BodyTooLargeError(limit)
    unpacker = _unpacker(request.headers.get("content-encoding", ""))
    chunks: list[bytes] = []
    size = packed_size = 0
    if unpacker is None:
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise BodyTooLargeError(limit)
            if chunk:  # a body of one piece is not copied
                chunks.append(chunk)
        return b"".join(chunks)
    async for packed in request.stream():
        packed_size += len(packed)
        most = min(limit, max(FREE_BYTES, packed_size * MAX_RATIO))
        async for chunk in _pieces(unpacker, packed):
            size += len(chunk)
            if size > most:
                raise BodyTooLargeError(limit)
            chunks.append(chunk)
    if not unpacker.eof or unpacker.unused_data:
        raise WireError("", "the gzip stream is incomplete, or data follows it")
    return b"".join(chunks)


def _unpacker(encoding: str) -> "zlib._Decompress | None":
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip"):
        return zlib.decompressobj(GZIP)
    raise EncodingError(encoding)


async def _pieces(unpacker: "zlib._Decompress", packed: bytes) -> AsyncIterator[bytes]:
    """*packed* decompressed, in pieces of at most `STEP_BYTES`."""
    while True:
        try:
            chunk = unpacker.decompress(packed, STEP_BYTES)
        except zlib.error as error:
            raise WireError("", f"not gzip: {error}") from None
        yield chunk
        packed = unpacker.unconsumed_tail
        if not packed and len(chunk) < STEP_BYTES:  # zlib can still hold output after the last byte of input
            return
        await asyncio.sleep(0)
