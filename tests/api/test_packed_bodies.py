"""Bodies that come packed: unpacked within the limit, or refused."""

import gzip
import zlib

import orjson
import pytest
from starlette.testclient import TestClient

from extender.api.http.bodies import STEP_BYTES
from tests.reports import report_of, sample

LIMIT = 1 << 20
BODY = orjson.dumps(report_of(sample()))


def put(client: TestClient, content: bytes, encoding: str = "gzip") -> tuple[int, str]:
    """Status and detail of the answer."""
    reply = client.put("/v1/nodes/node-a/report", content=content, headers={"content-encoding": encoding})
    return reply.status_code, reply.json().get("detail", "")


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "GZip", "identity", ""])
def test_a_report_may_be_packed(client: TestClient, encoding: str) -> None:
    content = gzip.compress(BODY) if "gzip" in encoding.lower() else BODY

    assert put(client, content, encoding) == (200, "")


def test_a_bomb_is_a_413_at_the_limit(client: TestClient) -> None:
    bomb = gzip.compress(bytes(200 * LIMIT))
    assert len(bomb) < LIMIT

    assert put(client, bomb) == (413, f"the body is larger than {LIMIT} bytes")
    assert put(client, gzip.compress(b" " * (LIMIT + 1)))[0] == 413
    assert put(client, gzip.compress(BODY + b" " * (LIMIT - len(BODY))))[0] == 200


@pytest.mark.parametrize("length", [0, 1, 255, 256, 257, 258, 259, 300])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_body_that_ends_near_a_step_arrives_whole(client: TestClient, length: int, steps: int) -> None:
    """A few bytes of input at the end can stand for 258 bytes of the body, before and after the limit of a step."""
    body = BODY + b" " * (steps * STEP_BYTES - len(BODY) % STEP_BYTES + length - 129)

    assert put(client, gzip.compress(body))[0] == 200


@pytest.mark.parametrize(
    ("content", "detail"),
    [
        (BODY, "not gzip"),
        (zlib.compress(BODY), "not gzip"),
        (gzip.compress(BODY)[:-9], "stream is incomplete"),
        (gzip.compress(BODY) + b"more", "data follows it"),
        (gzip.compress(BODY[:9]) + gzip.compress(BODY[9:]), "data follows it"),
        (b"", "stream is incomplete"),
    ],
)
def test_what_only_claims_to_be_gzip_is_refused(client: TestClient, content: bytes, detail: str) -> None:
    status, told = put(client, content)

    assert status == 422
    assert detail in told


@pytest.mark.parametrize("encoding", ["br", "zstd", "deflate", "gzip, gzip"])
def test_other_encodings_are_a_415_that_names_ours(client: TestClient, encoding: str) -> None:
    assert put(client, BODY, encoding) == (415, f"content-encoding {encoding!r} is not accepted; only gzip is")
