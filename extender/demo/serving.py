"""An extender in a thread of this process, over a real socket."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from extender.api.service import Service
from extender.app import make_app
from extender.runtime.server import make_server

START_SECONDS = 30.0


@contextmanager
def serving(service: Service) -> Iterator[str]:
    """Serve on the address of the settings, or on a free port if that port is taken. Provides the URL."""
    settings = service.settings
    try:
        listening = socket.create_server((settings.host, settings.port))
    except OSError:
        listening = socket.create_server((settings.host, 0))
    with listening:
        server = make_server(settings, make_app(service))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            deadline = time.monotonic() + START_SECONDS
            while not server.started and thread.is_alive() and time.monotonic() < deadline:
                time.sleep(0.01)
            if not server.started:
                raise RuntimeError("the extender did not start")
            yield f"http://{settings.host}:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
