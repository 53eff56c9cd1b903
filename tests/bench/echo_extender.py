"""An extender that knows nothing: `python -m tests.bench.echo_extender PORT KUBECONFIG`.

It passes every node, gives every node the same score, drops reports, and binds. One asyncio protocol answers, and one
connection at a time to the API server sends each binding, so that little is measured but the protocol, its JSON and
the binding.
"""

import asyncio
import ssl
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httptools
import orjson
import uvloop
import yaml

VERBS = (b"filter", b"prioritize", b"bind")
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"


class ApiServer:
    """Sends bindings over connections that are kept."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        url = urlsplit(cluster["server"])
        self._host, self._port, self._tls = url.hostname, url.port, None
        if url.scheme == "https":
            self._tls = ssl.create_default_context(cafile=cluster["certificate-authority"])
        token = Path(user["tokenFile"]).read_text() if "tokenFile" in user else ""
        self._fields = f"Host: {url.netloc}\r\nAuthorization: Bearer {token}\r\nContent-Type: application/json\r\n"
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def bind(self, args: dict[str, str]) -> str:
        """Why the pod was not bound; empty if it was."""
        metadata = {"name": args["PodName"], "namespace": args["PodNamespace"], "uid": args["PodUID"]}
        target = {"apiVersion": "v1", "kind": "Node", "name": args["Node"]}
        body = orjson.dumps({"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target})
        path = f"/api/v1/namespaces/{args['PodNamespace']}/pods/{args['PodName']}/binding"
        head = f"POST {path} HTTP/1.1\r\n{self._fields}Content-Length: {len(body)}\r\n\r\n"
        try:
            answer = await self._exchange(head.encode() + body)
        except (OSError, asyncio.IncompleteReadError) as error:
            return repr(error)
        return "" if answer.split(b" ", 2)[1].startswith(b"2") else answer.decode()

    async def _exchange(self, request: bytes) -> bytes:
        while self._idle and self._idle[-1][0].at_eof():
            self._idle.pop()[1].close()
        if not self._idle:
            self._idle.append(await asyncio.open_connection(self._host, self._port, ssl=self._tls))
        reader, writer = self._idle.pop()
        try:
            writer.write(request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]
            answer = head + await reader.readexactly(int(length))
        except BaseException:
            writer.close()
            raise
        self._idle.append((reader, writer))
        return answer


class Echo(asyncio.Protocol):
    """One connection of kube-scheduler or of an exporter, which waits for each reply."""

    def __init__(self, api: ApiServer) -> None:
        self._api, self._parser = api, httptools.HttpRequestParser(self)
        self._url, self._body = b"", b""
        self._transport: asyncio.Transport
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url, self._body = url, b""

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        verb = self._url.rpartition(b"/")[2]
        args = orjson.loads(self._body) if verb in VERBS else {}
        if verb == b"filter":
            empty: dict[str, Any] = {"Nodes": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": ""}
            self._reply(empty | {"NodeNames": args["NodeNames"]})
        elif verb == b"prioritize":
            self._reply([{"Host": name, "Score": 0} for name in args["NodeNames"]])
        elif verb == b"bind":
            task = asyncio.get_running_loop().create_task(self._bind(args))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._reply({})

    async def _bind(self, args: dict[str, str]) -> None:
        self._reply({"Error": await self._api.bind(args)})

    def _reply(self, document: object) -> None:
        body = orjson.dumps(document)
        self._transport.write(HEAD % len(body) + body)


async def main(port: int, kubeconfig: Path) -> None:
    """Serve until the process ends."""
    api = ApiServer(kubeconfig)
    server = await asyncio.get_running_loop().create_server(lambda: Echo(api), "127.0.0.1", port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(int(sys.argv[1]), Path(sys.argv[2])))
