"""The OpenAPI document and /docs."""

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

BODIES = {
    ("/scheduler/filter", "post"): "ExtenderArgs",
    ("/scheduler/prioritize", "post"): "ExtenderArgs",
    ("/scheduler/preempt", "post"): "ExtenderPreemptionArgs",
    ("/scheduler/bind", "post"): "ExtenderBindingArgs",
    ("/v1/nodes/{name}/report", "put"): "NodeReport",
    ("/v1/nodes/{name}/heartbeat", "post"): "Heartbeat",
    ("/v1/what-if", "post"): "WhatIfRequest",
}


def test_docs_need_no_internet(client: TestClient) -> None:
    page = client.get("/docs").text
    addresses = re.findall(r'(?:src|href)="([^"]+)"', page)

    assert len(addresses) == 4
    for address in addresses:
        assert address.startswith("/")
        assert client.get(address).status_code == 200
    assert "swagger-ui-bundle.js" in page


def test_the_document_says_how_a_caller_shows_its_token(client: TestClient) -> None:
    document = client.get("/openapi.json").json()

    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    assert document["security"] == [{"token": []}, {}], "callers on loopback need none"


def test_every_reference_in_the_document_resolves(client: TestClient) -> None:
    document = client.get("/openapi.json").json()

    references = set(_references(document))

    assert references
    for reference in references:
        assert reference.startswith("#/components/schemas/")
        assert reference.rsplit("/", 1)[1] in document["components"]["schemas"]


@pytest.mark.parametrize(("operation", "schema"), BODIES.items())
def test_bodies_are_described(client: TestClient, operation: tuple[str, str], schema: str) -> None:
    path, method = operation

    body = client.get("/openapi.json").json()["paths"][path][method]["requestBody"]

    assert body["content"]["application/json"]["schema"] == {"$ref": f"#/components/schemas/{schema}"}


def test_every_operation_has_a_summary_and_its_errors_are_problems(client: TestClient) -> None:
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for operation in operations.values():
            assert operation["summary"]
            assert operation["description"]
            for status, response in operation["responses"].items():
                if status >= "400":
                    assert list(response["content"]) == ["application/problem+json"], path


def _references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            if key == "$ref":
                yield each
            else:
                yield from _references(each)
    elif isinstance(value, list):
        for each in value:
            yield from _references(each)
