"""The extender with an echo route before it: `python -m tests.bench.server PORT [PSTATS]`.

With PSTATS the event loop's thread is profiled from SIGUSR1 on, and what was found is written there at the end.
"""

import cProfile
import signal
import sys

import orjson
from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from extender.app import make_app, make_service, set_up_collector
from extender.config.settings import Settings
from extender.identity import EVERYTHING
from extender.runtime.server import make_server
from tests.bench.filter_http import HOLD_SECONDS


def main(port: int) -> None:
    """Serve on loopback until SIGTERM."""
    set_up_collector()
    settings = Settings(
        port=port, loopback_scopes=EVERYTHING, gangs="on", gang_hold_seconds=HOLD_SECONDS, gang_rest_seconds=0
    )
    app = make_app(make_service(settings))
    gate = app.middleware_stack or app.build_middleware_stack()

    async def with_echo(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/echo":
            await _echo(scope, receive, send)
        else:
            await gate(scope, receive, send)

    app.middleware_stack = with_echo
    make_server(settings, app).run()


async def _echo(scope: Scope, receive: Receive, send: Send) -> None:
    """What transport and JSON cost: every name that came goes back as passed, and nothing is looked up or checked."""
    document = orjson.loads(await Request(scope, receive).body())
    reply = {
        "Nodes": None,
        "NodeNames": document["NodeNames"],
        "FailedNodes": {},
        "FailedAndUnresolvableNodes": {},
        "Error": "",
    }
    await Response(orjson.dumps(reply), media_type="application/json")(scope, receive, send)


def _profiled(port: int, path: str) -> None:
    profile = cProfile.Profile()
    signal.signal(signal.SIGTERM, lambda *_: None)  # the server raises it once more when it has stopped
    signal.signal(signal.SIGUSR1, lambda *_: profile.enable())
    main(port)
    profile.disable()
    profile.dump_stats(path)


if __name__ == "__main__":
    if len(sys.argv) == 2:
        main(int(sys.argv[1]))
    else:
        _profiled(int(sys.argv[1]), sys.argv[2])
