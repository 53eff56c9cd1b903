"""The admission policy of NodeResourceTopology objects: its CEL, over users, objects and operations.

The expressions are those of the manifest. They are evaluated as the API server does: match constraints, then match
conditions, then all validations; an expression that fails refuses (failurePolicy: Fail).
"""

from dataclasses import dataclass, field, replace
from typing import Any

import cel
import pytest

from tests.manifests.rendering import named, rendered

NODE_NAME = "authentication.kubernetes.io/node-name"
EXPORTER = "system:serviceaccount:numa-node-exporter:numa-node-exporter"
OWN: dict[str, list[str]] = {
    NODE_NAME: ["node-a"],
    "authentication.kubernetes.io/node-uid": ["u"],
    "authentication.kubernetes.io/pod-name": ["numa-node-exporter-x"],
}
OBJECTS = rendered("overlays/standalone", "topology-objects", "topology-policy")
POLICY: dict[str, Any] = named(OBJECTS, "ValidatingAdmissionPolicy", "numa-node-exporter-topologies")["spec"]
BINDING: dict[str, Any] = named(OBJECTS, "ValidatingAdmissionPolicyBinding", "numa-node-exporter-topologies")["spec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A write, as the API server shows it to a policy."""

    operation: str = "UPDATE"
    name: str = "node-a"
    in_object: str | None = None
    """The name in the object; None: the same."""
    user: str = EXPORTER
    extra: dict[str, list[str]] | None = field(default_factory=lambda: OWN)
    group: str = "topology.node.k8s.io"
    resource: str = "noderesourcetopologies"


def is_let_through(request: Request) -> bool:
    """Whether the policy with its binding lets the request through."""
    (rule,) = POLICY["matchConstraints"]["resourceRules"]
    if (
        request.group not in rule["apiGroups"]
        or request.operation not in rule["operations"]
        or not {request.resource, f"{request.resource.partition('/')[0]}/*"} & set(rule["resources"])
    ):
        return True
    user: dict[str, Any] = {"username": request.user, "groups": []}
    if request.extra is not None:
        user["extra"] = request.extra
    content = {"metadata": {"name": request.in_object or request.name}}
    known = {
        "request": {"operation": request.operation, "name": request.name, "userInfo": user},
        "object": None if request.operation == "DELETE" else content,
        "oldObject": None if request.operation == "CREATE" else content,
    }
    try:
        if not all(cel.evaluate(condition["expression"], known) for condition in POLICY["matchConditions"]):
            return True
        return all(bool(cel.evaluate(validation["expression"], known)) for validation in POLICY["validations"])
    except (KeyError, TypeError, ValueError, RuntimeError):
        return bool(POLICY["failurePolicy"] != "Fail")


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
@pytest.mark.parametrize(
    ("request_", "is_let"),
    [
        (Request(), True),
        (Request(name="node-b"), False),
        (Request(name="node-b", in_object="node-a"), None),
        (Request(name="node-a.evil"), False),
        (Request(name="node"), False),
        (Request(resource="noderesourcetopologies/status", name="node-b"), False),
        (Request(extra=None), False),
        (Request(extra={}), False),
        (Request(extra={NODE_NAME: []}), False),
        (Request(extra={NODE_NAME: [""]}), False),
        (Request(extra={NODE_NAME: ["node-a", "node-b"]}), False),
        (Request(extra={"node-name": ["node-a"]}), False),
        (Request(user="system:serviceaccount:nfd:nfd-topology-updater", name="node-b"), True),
        (Request(user="system:serviceaccount:nfd:nfd-topology-updater", extra=None), True),
        (Request(user="system:serviceaccount:other:numa-node-exporter", name="node-b"), True),
        (Request(user="system:serviceaccount:numa-node-exporter:other", name="node-b", extra=None), True),
        (Request(user="system:node:node-b", name="node-a", extra=None), True),
        (Request(user="kubernetes-admin", name="node-b", extra=None), True),
        (Request(group="other.example", name="node-b"), True),
    ],
)
def test_who_may_write_what(operation: str, request_: Request, is_let: bool | None) -> None:  # noqa: FBT001
    if is_let is None:  # the object counts, and where there is none the address
        is_let = operation != "DELETE"

    assert is_let_through(replace(request_, operation=operation)) is is_let


def test_an_object_named_by_the_server_or_named_differently_is_refused() -> None:
    assert not is_let_through(Request(operation="CREATE", name="", in_object="node-b"))
    assert not is_let_through(Request(operation="CREATE", name="node-a", in_object="node-b"))
    assert is_let_through(Request(operation="CREATE", name="", in_object="node-a"))


def test_the_binding_denies_and_covers_every_object() -> None:
    assert BINDING == {"policyName": "numa-node-exporter-topologies", "validationActions": ["Deny"]}
    assert POLICY["failurePolicy"] == "Fail"
    assert all(validation["reason"] == "Forbidden" and validation["message"] for validation in POLICY["validations"])


def test_the_user_of_the_condition_is_the_exporter_of_the_daemon_set() -> None:
    daemon_set = named(OBJECTS, "DaemonSet", "numa-node-exporter")
    namespace = daemon_set["metadata"]["namespace"]
    account = daemon_set["spec"]["template"]["spec"]["serviceAccountName"]

    (condition,) = POLICY["matchConditions"]
    assert condition["expression"].endswith(f'"system:serviceaccount:{namespace}:{account}"')
