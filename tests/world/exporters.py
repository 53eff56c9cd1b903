"""The exporters of several nodes: a heartbeat in each round, and the report where the extender asks for it."""

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import orjson
from starlette.testclient import TestClient

Json = dict[str, Any]
Call = Callable[[str, str, bytes], int]
"""Method, path and body; the status of the reply, 0 without one."""


class Exporters:
    """`reports`: the newest report of each node, as it is sent."""

    def __init__(self) -> None:
        self.reports: dict[str, tuple[int, bytes]] = {}

    def change(self, report: Json) -> None:
        """From now on the node's exporter reports this; its sequence number is one more than before."""
        name = report["node_name"]
        sequence = self.reports.get(name, (0, b""))[0] + 1
        self.reports[name] = sequence, orjson.dumps({**report, "sequence": sequence})

    def tell(self, call: Call) -> list[str]:
        """One round of all nodes. Returns the nodes whose call failed, with the status; empty if none did."""
        failed = []
        for name, (sequence, body) in list(self.reports.items()):
            digest = hashlib.sha256(body).hexdigest()
            beat = {"boot_id": "boot-1", "sequence": sequence, "digest": digest, "observed_at": 1.0}
            status = call("POST", f"/v1/nodes/{name}/heartbeat", orjson.dumps(beat))
            if status in (404, 409):
                status = call("PUT", f"/v1/nodes/{name}/report", body)
            if status not in (200, 204):
                failed.append(f"{name}: {status}")
        return failed


def report_all(client: TestClient | httpx.Client, *reports: Mapping[str, Any]) -> None:
    """Send each report once. HTTPStatusError: the extender does not take it."""
    for report in reports:
        client.put(f"/v1/nodes/{report['node_name']}/report", json=report).raise_for_status()
