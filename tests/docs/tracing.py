"""Which files of the extender a call enters, in the order of the first function that runs in each."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

ROOT: Final = Path(__file__).parents[2]
EXTENDER: Final = f"{ROOT}/extender/"
_CALL: Final[ContextVar[list[str] | None]] = ContextVar("files of the call", default=None)
"""Threads to which a call hands work copy its context; background work of the service has none."""


class Traced:
    """An application whose calls are recorded: `files` are those of the last one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.files: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.files = []
            _CALL.set(self.files)
        await self._app(scope, receive, send)


@contextmanager
def tracing() -> Iterator[None]:
    """Record in this thread and in threads that start inside the context."""
    threading.setprofile(_entered)
    sys.setprofile(_entered)
    try:
        yield
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _entered(frame: FrameType, event: str, _value: object) -> None:
    if event == "call" and frame.f_code.co_filename.startswith(EXTENDER):
        files = _CALL.get()
        if files is not None:
            name = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
            if name not in files:
                files.append(name)
