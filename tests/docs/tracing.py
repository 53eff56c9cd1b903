"""Which files of the extender a call enters, and from which other files."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import reduce
from inspect import CO_GENERATOR
from pathlib import Path
from types import FrameType
from typing import Any, Final

from starlette.types import ASGIApp, Receive, Scope, Send

ROOT: Final = Path(__file__).parents[2]
EXTENDER: Final = f"{ROOT}/extender/"


class Entries:
    """The functions that run in a call.

    `files`: in the order of the first function that runs in each. `steps`: (file of the caller, file) of each function
    that another file calls. To read a property is no step. A generator, or a function that begins a thread (its
    caller is ""), is one only if its file is new. `functions`: their files and qualified names.
    """

    def __init__(self) -> None:
        self.files: list[str] = []
        self.functions: set[tuple[str, str]] = set()
        self.steps: list[tuple[str, str]] = []
        self._frames: dict[int, FrameType] = {}
        """By id, and kept: a coroutine that goes on after a wait has the same frame, and no other frame its id."""

    def add(self, frame: FrameType) -> None:
        """A function begins, or goes on after a wait."""
        name = _file_of(frame)
        if not name or id(frame) in self._frames:
            return
        self._frames[id(frame)] = frame
        self.functions.add((name, frame.f_code.co_qualname))
        is_new, caller = name not in self.files, _caller_of(frame)
        if is_new:
            self.files.append(name)
        goes_on = not is_new and (not caller or bool(frame.f_code.co_flags & CO_GENERATOR))
        if caller != name and not goes_on and not _is_property(frame):
            self.steps.append((caller, name))


_CALL: Final[ContextVar[Entries | None]] = ContextVar("entries of the call", default=None)
"""Threads to which a call hands work copy its context; background work of the service has none."""


class Traced:
    """An application whose calls are recorded: `entries` are those of the last one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.entries = Entries()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            self.entries = Entries()
            _CALL.set(self.entries)
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
    entries = _CALL.get() if event == "call" and frame.f_code.co_filename.startswith(EXTENDER) else None
    if entries is not None:
        entries.add(frame)


def _file_of(frame: FrameType) -> str:
    """The path of the function's file; "" outside the extender."""
    name = frame.f_code.co_filename
    return name.removeprefix(f"{ROOT}/") if name.startswith(EXTENDER) else ""


def _caller_of(frame: FrameType) -> str:
    """The file of the nearest caller in the extender."""
    back = frame.f_back
    while back is not None and not _file_of(back):
        back = back.f_back
    return "" if back is None else _file_of(back)


def _is_property(frame: FrameType) -> bool:
    names = frame.f_code.co_qualname.split(".")
    found: Any = reduce(lambda at, name: getattr(at, name, None), names, sys.modules.get(frame.f_globals["__name__"]))
    return isinstance(found, property)
