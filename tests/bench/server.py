"""The extender with an echo route beside it: `python -m tests.bench.server PORT`."""

import sys

import orjson
from fastapi import Request, Response

from extender.app import make_app, make_server, make_service, set_up_collector
from extender.settings import Settings


def main(port: int) -> None:
    """Serve on loopback until SIGTERM."""
    set_up_collector()
    settings = Settings(port=port)
    app = make_app(make_service(settings))

    @app.post("/echo")
    async def echo(request: Request) -> Response:
        """What transport and JSON cost: every name that came goes back as passed, and nothing is looked up."""
        document = orjson.loads(await request.body())
        reply = {
            "Nodes": None,
            "NodeNames": document["NodeNames"],
            "FailedNodes": {},
            "FailedAndUnresolvableNodes": {},
            "Error": "",
        }
        return Response(orjson.dumps(reply), media_type="application/json")

    make_server(settings, app).run()


if __name__ == "__main__":
    main(int(sys.argv[1]))
