"""Publishes one NodeResourceTopology object through the API server, by server-side apply.

Rules of this file
- The object is written when the report has changed, and otherwise every `refresh_seconds`, so that readers can tell a
  silent node from an unchanged one. It is read only once, at startup.
- No other program may write the object. If another field manager has written zones or attributes, nothing is written,
  and the reply names the manager. Two publishers in one object would show a node that never existed.
- The Node owns the object, so that both are deleted together. The Node's UID is in our own token (Kubernetes 1.30 and
  later). Otherwise the Node is read; without permission to read it the object has no owner.

RBAC: `get`, `create`, `patch` on noderesourcetopologies (topology.node.k8s.io); `get` on nodes only before 1.30. RBAC
cannot say "only of your own node"; an admission policy that compares name and token can.
"""

import base64
import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import orjson

from node_exporter.bounded_http import Connection, HTTPReply
from node_exporter.files import mapping, objects, parse_json, read_token
from node_exporter.report import NodeReport
from node_exporter.sinks import Delivery, Reply
from node_exporter.sinks.http import no_answer, refused
from node_exporter.topology_object import API_VERSION, LEFT_OUT, REPORT, to_nrt

LOG = logging.getLogger(__name__)

FIELD_MANAGER = "numa-node-exporter"
CONFIRMED_AT = "numa-extender/confirmed-at"
"""Annotation: when the exporter last confirmed this state, by the node's clock."""
REFRESH_SECONDS = "numa-extender/refresh-seconds"
"""Annotation: how long after `CONFIRMED_AT` the next confirmation is due, with or without changes."""
MAX_ANSWER_BYTES = 2 << 20
METADATA_ONLY = {"accept": "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"}
CONTENT = frozenset({"f:zones", "f:attributes", "f:topologyPolicies"})


@dataclass(slots=True)
class _Written:
    """The object as last accepted, and when, by the monotonic clock."""

    content: dict[str, Any]
    at: float = field(default_factory=time.monotonic)


class NrtSink:
    """The object of one node, written again every *refresh_seconds*. Not thread-safe."""

    def __init__(self, api_server: Connection, node_name: str, *, refresh_seconds: float = 600.0) -> None:
        self._connection = api_server
        self._refresh_seconds = refresh_seconds
        self._node_name = node_name
        self._path = f"/apis/{API_VERSION}/noderesourcetopologies/{quote(node_name, safe='')}"
        self._node_uid: str | None = None
        self._is_ours = False
        self._written: _Written | None = None

    def put_report(self, report: NodeReport, body: bytes) -> Reply:
        """Write the object of the report."""
        del body
        try:
            if self._node_uid is None:
                self._node_uid = self._find_node_uid()
            content = to_nrt(report, node_uid=self._node_uid or None)
        except (OSError, ValueError) as error:
            return no_answer(error)
        self._warn_of_loss(content)
        return self._write(content)

    def post_heartbeat(self, body: bytes) -> Reply:
        """Write the object again if it is due. Otherwise do nothing."""
        del body
        if self._written is None:
            return Reply(outcome=Delivery.WANTS_REPORT)
        if time.monotonic() - self._written.at < self._refresh_seconds:
            return Reply(outcome=Delivery.ACCEPTED)
        return self._write(self._written.content)

    def close(self) -> None:
        """Close idle connections; the sink can be used again."""
        self._connection.close()

    def _write(self, content: dict[str, Any]) -> Reply:
        metadata = content["metadata"]
        signed = {
            CONFIRMED_AT: datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
            REFRESH_SECONDS: f"{self._refresh_seconds:.0f}",
        }
        body = orjson.dumps({
            **content,
            "metadata": {**metadata, "annotations": metadata["annotations"] | signed},
        })  # fmt: skip
        try:
            reply = self._own() or self._apply(body)
        except (OSError, ValueError) as error:
            return no_answer(error)
        if reply.outcome is Delivery.ACCEPTED:
            self._written = _Written(content)
        return reply

    def _own(self) -> Reply | None:
        """None if the object is ours or does not exist. Checked once."""
        if self._is_ours:
            return None
        answer = self._connection.send("GET", self._path, headers=METADATA_ONLY)
        if answer.status != 404 and not answer.is_success:
            return _refused(answer)
        strangers = _strangers(answer) if answer.is_success else set()
        if strangers:
            return _belongs_to(strangers)
        self._is_ours = True
        return None

    def _apply(self, body: bytes) -> Reply:
        answer = self._connection.send(
            "PATCH",
            f"{self._path}?fieldManager={FIELD_MANAGER}&force=false",
            content=body,
            headers={"content-type": "application/apply-patch+yaml", **METADATA_ONLY},
        )
        if not answer.is_success:
            self._is_ours = self._is_ours and answer.status != 409
            return _refused(answer)
        if strangers := _strangers(answer):
            self._is_ours = False
            return _belongs_to(strangers)
        return Reply(outcome=Delivery.ACCEPTED, sent_bytes=len(body))

    def _find_node_uid(self) -> str:
        """The UID of our Node. Empty if we have no permission to read it."""
        if uid := _uid_in_token(self._connection.credentials.token_file, self._node_name):
            return uid
        answer = self._connection.send("GET", f"/api/v1/nodes/{quote(self._node_name, safe='')}", headers=METADATA_ONLY)
        if answer.status in (401, 403, 404):
            LOG.warning("the object will have no owner: node not readable status=%d", answer.status)
            return ""
        if not answer.is_success:
            raise ValueError(f"reading the Node: {_refused(answer).detail}")
        found = mapping(mapping(parse_json(answer.content)).get("metadata")).get("uid")
        return found if isinstance(found, str) else ""

    def _warn_of_loss(self, content: dict[str, Any]) -> None:
        annotations = content["metadata"]["annotations"]
        if REPORT not in annotations:
            LOG.warning("the report is too large for the object: readers know only counts by NUMA node")
        elif LEFT_OUT in annotations:
            LOG.info("parts of the report do not fit into the object left_out=%s", annotations[LEFT_OUT])


def _refused(answer: HTTPReply) -> Reply:
    if answer.status == 404:
        detail = "404: the API server does not know NodeResourceTopology v1alpha2; is its CRD installed?"
        return Reply(outcome=Delivery.UNAVAILABLE, detail=detail)
    return refused(answer)


def _belongs_to(strangers: set[str]) -> Reply:
    names = ", ".join(sorted(strangers))
    return Reply(
        outcome=Delivery.REFUSED, detail=f"the node's object is also written by {names}; it must have one writer"
    )


def _strangers(answer: HTTPReply) -> set[str]:
    """Other field managers that have written the fields that readers use."""
    metadata = mapping(mapping(parse_json(answer.content)).get("metadata"))
    return {
        str(entry.get("manager"))
        for entry in objects(metadata.get("managedFields"))
        if isinstance(entry, dict) and entry.get("manager") != FIELD_MANAGER and _has_content(entry)
    }


def _has_content(entry: Mapping[str, Any]) -> bool:
    """Whether a managedFields entry names more than metadata. True as well for an entry that names nothing."""
    fields = entry.get("fieldsV1")
    return not isinstance(fields, dict) or bool(CONTENT & fields.keys())


def _uid_in_token(path: Path | None, node_name: str) -> str:
    """The Node's UID in our service-account token. Empty if it has none, or names another node."""
    try:
        payload = read_token(path).split(".")[1] if path else ""
        claims = parse_json(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    except (OSError, ValueError, IndexError):
        return ""
    node = mapping(mapping(mapping(claims).get("kubernetes.io")).get("node"))
    return str(node.get("uid") or "") if node.get("name") == node_name else ""
