"""An extender that only answers: every node passes, every score is 0, bind writes the binding, a report is dropped.

    python -m tests.live.echo PORT KUBECONFIG

What it costs is what kube-scheduler and the protocol cost. Requests are read by hand, so that little else is measured.
"""

import asyncio
import sys
from pathlib import Path

import httpx
import orjson
import yaml

Json = dict[str, object]


class Echo:
    """Answers on one port."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster = document["clusters"][0]["cluster"]
        token = Path(document["users"][0]["user"]["tokenFile"]).read_text()
        import ssl

        self._api = httpx.AsyncClient(
            base_url=cluster["server"],
            verify=ssl.create_default_context(cafile=cluster["certificate-authority"]),
            headers={"authorization": f"Bearer {token}"},
            trust_env=False,
        )

    async def serve(self, port: int) -> None:
        """Until the process ends."""
        server = await asyncio.start_server(self._connection, "127.0.0.1", port)
        await server.serve_forever()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                lines = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
                body = await reader.readexactly(int(lines.get("content-length", 0)))
                answer = orjson.dumps(await self._answer(head.split(" ", 2)[1].rpartition("/")[2], body))
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ")
                writer.write(str(len(answer)).encode() + b"\r\n\r\n" + answer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def _answer(self, verb: str, body: bytes) -> object:
        args = orjson.loads(body) if body else {}
        if verb == "filter":
            return {"NodeNames": args["NodeNames"], "FailedNodes": {}, "Error": ""}
        if verb == "prioritize":
            return [{"Host": name, "Score": 0} for name in args["NodeNames"]]
        if verb == "bind":
            return {"Error": await self._bind(args)}
        return {}

    async def _bind(self, args: dict[str, str]) -> str:
        metadata = {"name": args["PodName"], "namespace": args["PodNamespace"], "uid": args["PodUID"]}
        target = {"apiVersion": "v1", "kind": "Node", "name": args["Node"]}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        path = f"/api/v1/namespaces/{args['PodNamespace']}/pods/{args['PodName']}/binding"
        try:
            answer = await self._api.post(path, json=binding)
        except httpx.HTTPError as error:
            return repr(error)
        return "" if answer.is_success else answer.text


if __name__ == "__main__":
    asyncio.run(Echo(Path(sys.argv[2])).serve(int(sys.argv[1])))
