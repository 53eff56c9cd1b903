"""The OpenAPI document against the real app: whatever it allows is answered as it says, and never with a 5xx."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.samples.machines import GPU
from extender.samples.nodes import Workload
from tests.reports import args_of, pod_of, report_of, sample

LOOPBACK = ("127.0.0.1", 50_000)
Scope = dict[str, Any]
Case: TypeAlias = Any
Operation: TypeAlias = Any
"""Schemathesis' own types need arguments that it does not document."""


def _app() -> Callable[..., Awaitable[None]]:
    """A service that knows two nodes and has answered a call; every caller is on loopback."""
    app = make_app(make_service(Settings(max_nodes=5, question_workers=0)))
    with TestClient(app, client=LOOPBACK) as client:
        for name in ("node-a", "node-b"):
            node = sample(
                name, workloads=[Workload(name="w", resources={"cpu": 4, "memory": "1Gi"})], devices={GPU: [0]}
            )
            client.put(f"/v1/nodes/{name}/report", json=report_of(node)).raise_for_status()
        client.post("/scheduler/filter", json=args_of(pod_of(2), "node-a", "node-b")).raise_for_status()

    async def from_loopback(scope: Scope, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        await app({**scope, "client": LOOPBACK}, receive, send)

    return from_loopback


SCHEMA = schemathesis.openapi.from_asgi("/openapi.json", _app())
PEOPLE = {"what-if", "decisions", "nodes"}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
FEW = settings(
    max_examples=5, deadline=None, phases=(Phase.generate,), suppress_health_check=list(HealthCheck), derandomize=True
)
OPERATIONS = [each.ok() for each in SCHEMA.get_all_operations()]  # type: ignore[union-attr] # or the test fails


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.label)
def test_what_the_document_allows_is_answered_as_it_says(operation: Operation) -> None:
    """Of the scheduler's verbs only that they are no 5xx: what they answer has tests of its own."""
    checks = CHECKS if PEOPLE & set(operation.tags or ()) else [not_a_server_error]

    @FEW
    @given(operation.as_strategy())
    def ask(case: Case) -> None:
        case.call_and_validate(checks=checks)

    ask()


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.label)
def test_nor_does_what_it_forbids_lead_to_a_5xx(operation: Operation) -> None:
    @FEW
    @given(operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE))
    def ask(case: Case) -> None:
        case.call_and_validate(checks=[not_a_server_error])

    try:
        ask()
    except Unsatisfiable:
        pytest.skip("the document forbids nothing here")


def test_following_links_from_answer_to_answer_never_leads_to_a_5xx() -> None:
    class Machine(SCHEMA.as_state_machine()):  # type: ignore[misc] # made at run time
        def validate_response(self, response: object, case: Case, **_more: object) -> None:
            case.validate_response(response, checks=[not_a_server_error])

    Machine.run(settings=settings(FEW, max_examples=4, stateful_step_count=5))
