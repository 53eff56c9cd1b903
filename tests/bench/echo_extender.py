"""An extender that knows nothing: `python -m tests.bench.echo_extender PORT KUBECONFIG`.

It passes every node, gives every node the same score, and binds as ours does. What it costs is transport and JSON.
"""

import sys
from pathlib import Path

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from extender.kube.access import discover
from extender.kube.binder import AsyncBinder, Binder
from extender.kube.client import KubeClient
from extender.scheduling.binder import Binding, PodBound


def make_app(kubeconfig: Path) -> Starlette:
    """The three verbs."""
    binder = AsyncBinder(Binder(KubeClient(discover(kubeconfig))))

    async def filter_(request: Request) -> Response:
        names = orjson.loads(await request.body())["NodeNames"]
        reply = {"Nodes": None, "NodeNames": names, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
        return _json(reply)

    async def prioritize(request: Request) -> Response:
        names = orjson.loads(await request.body())["NodeNames"]
        return _json([{"Host": name, "Score": 0} for name in names])

    async def bind(request: Request) -> Response:
        args = orjson.loads(await request.body())
        binding = Binding(
            namespace=args["PodNamespace"], name=args["PodName"], uid=args["PodUID"], node_name=args["Node"]
        )
        outcome = await binder.bind(binding)
        return _json({"Error": "" if isinstance(outcome, PodBound) else outcome.reason})

    verbs = {"filter": filter_, "prioritize": prioritize, "bind": bind}
    return Starlette(routes=[Route(f"/scheduler/{verb}", answer, methods=["POST"]) for verb, answer in verbs.items()])


def _json(document: object) -> Response:
    return Response(orjson.dumps(document), media_type="application/json")


if __name__ == "__main__":
    app = make_app(Path(sys.argv[2]))
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="error", access_log=False)
