"""What the template is sent is whole, whenever people leave."""

import asyncio
import contextlib
import os
import signal

import orjson
from starlette.testclient import TestClient

from extender.app import make_app, make_questions, make_service
from extender.config.settings import Settings
from extender.questions.asked import Asked, QuestionKind
from extender.samples.nodes import Workload
from tests.reports import pod_of, report_of, sample

NODES = 300


def test_who_leaves_while_nodes_are_sent_breaks_nothing() -> None:
    service = make_service(Settings())
    with TestClient(make_app(service), client=("127.0.0.1", 1)) as client:
        for number in range(NODES):
            loads = [
                Workload(name=f"w{i}", resources={"cpu": 1, "memory": f"{number + 1}Mi"}, copies=2) for i in range(3)
            ]
            node = sample(f"node-{number}", workloads=loads)
            assert client.put(f"/v1/nodes/{node.name}/report", json=report_of(node)).is_success
    questions = make_questions(service)
    asked = Asked(kind=QuestionKind.WHAT_IF, body=orjson.dumps({"pod": pod_of(2)}))

    async def answer() -> bytes:
        return b"".join([piece async for piece in questions.ask(asked, "")])

    async def story() -> None:
        async with questions.open():
            template = await questions._running()
            os.kill(template._process.pid, signal.SIGSTOP)  # it reads nothing: the nodes do not fit into the socket
            leaving = asyncio.create_task(answer())
            await asyncio.sleep(0.5)  # long enough to fill the socket; the test holds wherever it is cancelled
            assert not leaving.done()
            leaving.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await leaving
            os.kill(template._process.pid, signal.SIGCONT)
            reply = orjson.loads(await answer())
            assert reply["summary"]["nodes"] == NODES
            assert await questions._running() is template, "the same template, not one that replaced it"

    asyncio.run(story())
